# cython: boundscheck=True, wraparound=False, cdivision=True
"""The two operations on a table of recent unique keys that run for every message; see `commitlog_svc/append/recent_keys.py`.

A slot is a mark (15 bits of the hash) above 48 bits of an offset, relative to the table's base and plus 1; 0 is empty.
"""

import cython

from commitlog_svc.append import layout

_ROW_COLUMNS = cython.declare(cython.Py_ssize_t, layout.ROW_COLUMN_COUNT)
_KEY_HASH = cython.declare(cython.Py_ssize_t, layout.KEY_HASH)
_COMMIT_LOG_OFFSET = cython.declare(cython.Py_ssize_t, layout.COMMIT_LOG_OFFSET)


@cython.locals(
    mask=cython.longlong, index=cython.Py_ssize_t, hash_=cython.longlong, mark=cython.longlong, at=cython.longlong,
    same_mark_count=cython.longlong, _tried=cython.Py_ssize_t,
)  # fmt: skip
def note(
    slots: cython.longlong[::1],
    base_offset: cython.longlong,
    same_mark_count_max: cython.longlong,
    rows: cython.longlong[:, ::1],
    count: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Enters the hashes of placed rows; returns how many."""
    if not cython.compiled:
        slots, rows = memoryview(slots), memoryview(rows)
    if rows.shape[1] < _ROW_COLUMNS or count > rows.shape[0]:
        return 0
    mask = slots.shape[0] - 1
    with cython.nogil:
        for index in range(count):
            hash_ = rows[index, _KEY_HASH]
            mark = hash_ >> 46 & 0x7FFF
            at = hash_ & mask
            same_mark_count = 0
            for _tried in range(slots.shape[0]):
                if slots[at] == 0:
                    slots[at] = mark << 48 | (rows[index, _COMMIT_LOG_OFFSET] - base_offset + 1)
                    break
                if slots[at] >> 48 == mark:
                    same_mark_count += 1
                if same_mark_count >= same_mark_count_max:
                    break
                at = at + 1 & mask
    return count


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(mask=cython.longlong, mark=cython.longlong, at=cython.longlong, _tried=cython.Py_ssize_t)
def _holds(slots: cython.longlong[::1], hash_: cython.longlong) -> cython.int:
    mask = slots.shape[0] - 1
    mark = hash_ >> 46 & 0x7FFF
    at = hash_ & mask
    for _tried in range(slots.shape[0]):
        if slots[at] == 0:
            return 0
        if slots[at] >> 48 == mark:
            return 1
        at = at + 1 & mask
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(mask=cython.longlong, at=cython.longlong)
def _enters(scratch: cython.longlong[::1], hash_: cython.longlong) -> cython.int:
    """Enters a hash, whether it is new."""
    mask = scratch.shape[0] - 1
    at = hash_ & mask
    while scratch[at] >= 0:
        if scratch[at] == hash_:
            return 0
        at = at + 1 & mask
    scratch[at] = hash_
    return 1


@cython.locals(found=cython.int, index=cython.Py_ssize_t, hash_=cython.longlong)
def may_hold(
    older: cython.longlong[::1],
    newer: cython.longlong[::1],
    rows: cython.longlong[:, ::1],
    count: cython.Py_ssize_t,
    scratch: cython.longlong[::1],
) -> cython.int:
    """1 when a row's key may be in one of the tables, or twice among the rows; else 0.

    The length of `scratch` is a power of two and more than twice the count; its content does not matter.
    """
    if not cython.compiled:
        older, newer, rows, scratch = memoryview(older), memoryview(newer), memoryview(rows), memoryview(scratch)
    if rows.shape[1] < _ROW_COLUMNS or count > rows.shape[0] or 2 * count >= scratch.shape[0]:
        return 1
    found = 0
    with cython.nogil:
        for index in range(scratch.shape[0]):
            scratch[index] = -1
        for index in range(count):
            hash_ = rows[index, _KEY_HASH]
            if not _enters(scratch, hash_) or _holds(older, hash_) or _holds(newer, hash_):
                found = 1
                break
    return found
