"""The two operations on a table of recent unique keys that run for every message; see `commitlog_svc/append/recent_keys.py`.

A slot is a mark (15 bits of the hash) above 48 bits of an offset, relative to the table's base and plus 1; 0 is empty.
"""

import numpy as np

from commitlog_svc.append.layout import COMMIT_LOG_OFFSET, KEY_HASH, ROW_COLUMN_COUNT, Int64s
from store.compiled.compiling import compiled

_MARK_SHIFT = 48
_HASH_MARK_SHIFT = 46
_MARK_MASK = 0x7FFF


@compiled
def note(slots: Int64s, base_offset: int, same_mark_count_max: int, rows: Int64s, count: int) -> int:
    """Enters the hashes of placed rows; returns how many."""
    if rows.shape[1] < ROW_COLUMN_COUNT or count > len(rows):
        return 0
    mask = len(slots) - 1
    for index in range(count):
        hash_ = rows[index, KEY_HASH]
        mark = hash_ >> _HASH_MARK_SHIFT & _MARK_MASK
        at = hash_ & mask
        same_mark_count = 0
        for _ in range(len(slots)):
            if slots[at] == 0:
                slots[at] = mark << _MARK_SHIFT | (rows[index, COMMIT_LOG_OFFSET] - base_offset + 1)
                break
            same_mark_count += slots[at] >> _MARK_SHIFT == mark
            if same_mark_count >= same_mark_count_max:
                break
            at = (at + 1) & mask
    return count


@compiled
def _holds(slots: Int64s, hash_: int) -> bool:
    mask = len(slots) - 1
    mark = hash_ >> _HASH_MARK_SHIFT & _MARK_MASK
    at = hash_ & mask
    for _ in range(len(slots)):
        if slots[at] == 0:
            return False
        if slots[at] >> _MARK_SHIFT == mark:
            return True
        at = (at + 1) & mask
    return False


@compiled
def may_hold(older: Int64s, newer: Int64s, rows: Int64s, count: int, scratch: Int64s) -> int:
    """1 when a row's key may be in one of the tables, or twice among the rows; else 0.

    The length of `scratch` is a power of two and more than twice the count; its content does not matter.
    """
    if rows.shape[1] < ROW_COLUMN_COUNT or count > len(rows) or 2 * count >= len(scratch):
        return 1
    mask = len(scratch) - 1
    scratch[:] = -1
    for index in range(count):
        hash_ = rows[index, KEY_HASH]
        at = hash_ & mask
        while scratch[at] >= 0:
            if scratch[at] == hash_:
                return 1
            at = (at + 1) & mask
        scratch[at] = hash_
        if _holds(older, hash_) or _holds(newer, hash_):
            return 1
    return 0


def touch() -> None:
    """Compiles all."""
    slots, rows = np.zeros(8, dtype=np.int64), np.zeros((1, ROW_COLUMN_COUNT), dtype=np.int64)
    may_hold(slots, slots, rows, 1, slots.copy())
    note(slots, 0, 8, rows, 1)
