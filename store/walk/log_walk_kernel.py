# cython: boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Takes runs of plainly good records, checked in full: the compiled twin of `checks.FullCheck`; see `record_runs.py`.

Left to the plain check: a record that is not in order or not right, a blank, a topic that is not ASCII, a record without
`__CRC32#` behind one that has it, and one without whose topic or properties could be what a tear left.
"""

import cython

from store.compiled.bytes_part import LOW_64, Bytes, bits_of, find_byte, is_same, load_i32, load_i64, need, reading
from store.format.frame_part import (
    GUARD_SIZE,
    MARKER_SIZE,
    Frame,
    is_body_right,
    is_guard_right,
    locate,
    marker_matches,
    store_time_at,
)
from store.format.sys_flag import INNER_BATCH, TRANSACTION_MASK, TransactionType

QUEUE_COUNT_MAX = 4096
SLOT_COUNT = 4 * QUEUE_COUNT_MAX  # a power of two
# Rows of the table of queues that the kernel fills: where the topic lies in `data`, its queue, the last queue offset, and
# where in `data` the last record of the queue lies that is an inner batch (-1: none is).
TOPIC_AT, TOPIC_SIZE, QUEUE_ID, QUEUE_OFFSET, BATCH_AT, ROW_COUNT = range(6)

# The same and others as numbers of C.
_TOPIC_AT = cython.declare(cython.Py_ssize_t, TOPIC_AT)
_TOPIC_SIZE = cython.declare(cython.Py_ssize_t, TOPIC_SIZE)
_QUEUE_ID = cython.declare(cython.Py_ssize_t, QUEUE_ID)
_QUEUE_OFFSET = cython.declare(cython.Py_ssize_t, QUEUE_OFFSET)
_BATCH_AT = cython.declare(cython.Py_ssize_t, BATCH_AT)
_QUEUE_COUNT_MAX = cython.declare(cython.longlong, QUEUE_COUNT_MAX)
_SLOT_MASK = cython.declare(cython.longlong, SLOT_COUNT - 1)
_TRANSACTION_MASK = cython.declare(cython.longlong, int(TRANSACTION_MASK))
_PREPARED = cython.declare(cython.longlong, int(TransactionType.PREPARED))
_ROLLBACK = cython.declare(cython.longlong, int(TransactionType.ROLLBACK))
_INNER_BATCH = cython.declare(cython.longlong, int(INNER_BATCH))
_INT64_MIN = cython.declare(cython.longlong, -(1 << 63))
_HASH_FACTOR = cython.declare(cython.ulonglong, 0x100000001B3)
_GOLDEN = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(name_at=cython.longlong, value_at=cython.longlong)
def _is_plainly_whole(data: Bytes, at: cython.longlong, end: cython.longlong) -> cython.int:
    """Whether properties without a guard are ASCII and end with one that has a name and a value, or are empty."""
    if at == end:
        return 1
    if bits_of(data, at, end) > 0x7F or data.data[end - 1] == 0:
        return 0
    if data.data[end - 1] == 2:
        return 1
    name_at = end
    while name_at > at and data.data[name_at - 1] != 2:
        name_at -= 1
    value_at = find_byte(data, name_at, end, 1)
    return name_at < value_at < end - 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-2)
@cython.locals(hash_=cython.ulonglong, index=cython.Py_ssize_t, slot=cython.longlong, number=cython.longlong)
def _queue_number(
    data: Bytes,
    topic_at: cython.longlong,
    topic_size: cython.longlong,
    queue_id: cython.longlong,
    queues: cython.longlong[:, ::1],
    count: cython.longlong,
    slots: cython.int[::1],
) -> cython.longlong:
    """The number of a queue in the table, `count` for one that was just entered; -1 when it does not fit."""
    hash_ = queue_id & LOW_64
    need(data, topic_at, topic_at + topic_size)
    with cython.boundscheck(False):
        for index in range(topic_at, topic_at + topic_size):
            hash_ = (hash_ * _HASH_FACTOR & LOW_64) ^ data.data[index]
    slot = (hash_ * _GOLDEN & LOW_64) >> 40
    slot &= _SLOT_MASK
    while slots[slot] >= 0:
        number = slots[slot]
        if (
            queues[_QUEUE_ID, number] == queue_id
            and queues[_TOPIC_SIZE, number] == topic_size
            and is_same(data, queues[_TOPIC_AT, number], topic_at, topic_size)
        ):
            return number
        slot = slot + 1 & _SLOT_MASK
    if count == _QUEUE_COUNT_MAX:
        return -1
    slots[slot] = count
    queues[_TOPIC_AT, count] = topic_at
    queues[_TOPIC_SIZE, count] = topic_size
    queues[_QUEUE_ID, count] = queue_id
    queues[_BATCH_AT, count] = -1
    return count


@cython.locals(
    bytes_=Bytes, frame=Frame, count=cython.longlong, queue_count=cython.longlong, store_time_millis=cython.longlong,
    last_at=cython.longlong, end=cython.longlong, index=cython.Py_ssize_t, frame_end=cython.longlong,
    topic_size=cython.longlong, body_size=cython.longlong, matches=cython.longlong, guarded=cython.bint,
    has_zero=cython.int, sys_flag=cython.longlong, transaction=cython.longlong, number=cython.longlong,
)  # fmt: skip
def check_run(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    commit_log_offset: cython.longlong,
    is_guarded: cython.bint,
    queues: cython.longlong[:, ::1],
    slots: cython.int[::1],
) -> tuple[int, int, int, bool, int, int]:
    """Checks records from data[at] on up to the first that is not plainly good or does not fit the table of queues.

    Args:
        data: bytes of the log.
        at: where in it the first record starts.
        commit_log_offset: of that place.
        is_guarded: whether the record before carries a `__CRC32#`.
        queues: int64[ROW_COUNT, QUEUE_COUNT_MAX], filled for the queues that occur.
        slots: int32[SLOT_COUNT], overwritten.

    Returns:
        How many records there are, where in `data` the last one starts and the next one, whether the last one is
        guarded, their greatest store time, and how many queues there are.
    """
    if not cython.compiled:
        queues, slots = memoryview(queues), memoryview(slots)
    bytes_ = reading(data)
    frame = Frame()
    count = queue_count = 0
    store_time_millis = _INT64_MIN
    last_at = at
    end = len(bytes_.data)
    with cython.nogil:
        with cython.boundscheck(False):  # so that it is one instruction for many
            for index in range(slots.shape[0]):
                slots[index] = -1
        while at < end:
            if not locate(bytes_, at, end, commit_log_offset, frame):
                break
            frame_end = at + frame.size
            topic_size = frame.properties_at - 2 - frame.topic_at
            body_size = load_i32(bytes_, frame.body_at - 4)
            if not is_body_right(bytes_, at, frame.body_at, body_size):
                break
            if bits_of(bytes_, frame.topic_at, frame.topic_at + topic_size) > 0x7F:
                break
            if frame_end - frame.properties_at >= GUARD_SIZE:
                matches = marker_matches(bytes_, frame_end - GUARD_SIZE, frame_end)
            else:
                matches = marker_matches(bytes_, frame.properties_at, frame_end)
            if matches == MARKER_SIZE:
                if frame_end - frame.properties_at < GUARD_SIZE or not is_guard_right(bytes_, at, frame_end):
                    break
                guarded = True
            else:
                if is_guarded or matches > (MARKER_SIZE - 1) // 2:
                    break
                has_zero = topic_size == 0 or (
                    find_byte(bytes_, frame.topic_at, frame.topic_at + topic_size, 0) < frame.topic_at + topic_size
                )
                if has_zero or not _is_plainly_whole(bytes_, frame.properties_at, frame_end):
                    break
                guarded = False
            sys_flag = load_i32(bytes_, at + 36)
            transaction = sys_flag & _TRANSACTION_MASK
            if transaction != _PREPARED and transaction != _ROLLBACK:  # noqa: PLR1714 - no set in C
                number = _queue_number(
                    bytes_, frame.topic_at, topic_size, load_i32(bytes_, at + 12), queues, queue_count, slots
                )
                if number < 0:
                    break
                queue_count = max(queue_count, number + 1)
                queues[_QUEUE_OFFSET, number] = load_i64(bytes_, at + 20)
                if sys_flag & _INNER_BATCH:
                    queues[_BATCH_AT, number] = at
            store_time_millis = max(store_time_millis, load_i64(bytes_, store_time_at(bytes_, at)))
            is_guarded = guarded
            last_at = at
            count += 1
            at = frame_end
            commit_log_offset += frame.size
    return count, last_at, at, is_guarded, store_time_millis, queue_count
