"""Takes runs of plainly good records, checked in full: the compiled twin of `checks.FullCheck`; see `record_runs.py`.

Left to the plain check: a record that is not in order or not right, a blank, a topic that is not ASCII, a record without
`__CRC32#` behind one that has it, and one without whose topic or properties could be what a tear left.
"""

import numpy as np
import numpy.typing as npt

from store.compiled.compiling import Bytes, Number, compiled
from store.compiled.crc32_kernel import crc32
from store.format.frame_kernel import bits_of, is_same, load_i32, load_i64, locate, store_time_at
from store.format.guard_kernel import GUARD_SIZE, MARKER_SIZE, is_guard_right, marker_matches
from store.format.sys_flag import INNER_BATCH, TRANSACTION_MASK, TransactionType

Int32s = npt.NDArray[np.int32]
Int64Rows = npt.NDArray[np.int64]

QUEUE_COUNT_MAX = 4096
SLOT_COUNT = 4 * QUEUE_COUNT_MAX  # a power of two
# Rows of the table of queues that the kernel fills: where the topic lies in `data`, its queue, the last queue offset, and
# where in `data` the last record of the queue lies that is an inner batch (-1: none is).
TOPIC_AT, TOPIC_SIZE, QUEUE_ID, QUEUE_OFFSET, BATCH_AT, ROW_COUNT = range(6)

_NAME_SIZE = MARKER_SIZE - 1
_TRANSACTION_MASK = int(TRANSACTION_MASK)
_PREPARED = int(TransactionType.PREPARED)
_INNER_BATCH = int(INNER_BATCH)
_INT64_MIN = -(1 << 63)
_ROLLBACK = int(TransactionType.ROLLBACK)


@compiled
def _is_plainly_whole(data: Bytes, at: Number, end: Number) -> Number:
    """Whether properties without a guard are ASCII and end with one that has a name and a value, or are empty."""
    if at == end:
        return True
    if bits_of(data, at, end) > 0x7F or data[end - 1] == 0:
        return False
    if data[end - 1] == 2:
        return True
    name_at = end
    while name_at > at and data[name_at - 1] != 2:
        name_at -= 1
    value_at = name_at
    while value_at < end and data[value_at] != 1:
        value_at += 1
    return name_at < value_at < end - 1


@compiled
def _queue_number(
    data: Bytes, topic_at: Number, topic_size: Number, queue_id: Number, queues: Int64Rows, count: Number, slots: Int32s
) -> Number:
    """The number of a queue in the table, `count` for one that was just entered; -1 when it does not fit."""
    hash_, first = np.uint64(queue_id), np.uint64(topic_at)
    for index in range(np.uint64(topic_size)):
        hash_ = hash_ * np.uint64(0x100000001B3) ^ np.uint64(data[first + index])
    slot = np.int64(np.uint64(hash_ * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)) & (SLOT_COUNT - 1)
    while slots[slot] >= 0:
        number = np.int64(slots[slot])
        if (
            queues[QUEUE_ID, number] == queue_id
            and queues[TOPIC_SIZE, number] == topic_size
            and is_same(data, queues[TOPIC_AT, number], topic_at, topic_size)
        ):
            return number
        slot = (slot + 1) & (SLOT_COUNT - 1)
    if count == QUEUE_COUNT_MAX:
        return -1
    slots[slot] = count
    queues[TOPIC_AT, count] = topic_at
    queues[TOPIC_SIZE, count] = topic_size
    queues[QUEUE_ID, count] = queue_id
    queues[BATCH_AT, count] = -1
    return count


@compiled
def check_run(
    data: Bytes,
    at: Number,
    commit_log_offset: Number,
    is_guarded: Number,
    queues: Int64Rows,
    slots: Int32s,
) -> tuple[Number, Number, Number, Number, Number, Number]:
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
    count: Number = 0
    queue_count: Number = 0
    store_time_millis: Number = _INT64_MIN
    last_at = at
    end = len(data)
    slots[:] = -1
    while at < end:
        size, body_at, topic_at, properties_at = locate(data, at, end, commit_log_offset)
        if size == 0:
            break
        frame_end = at + size
        topic_size = properties_at - 2 - topic_at
        body_size = load_i32(data, body_at - 4)
        if body_size > 0 and crc32(data, body_at, body_at + body_size) & 0x7FFFFFFF != load_i32(data, at + 8):
            break
        if bits_of(data, topic_at, topic_at + topic_size) > 0x7F:
            break
        if frame_end - properties_at >= GUARD_SIZE:
            matches = marker_matches(data, frame_end - GUARD_SIZE, frame_end)
        else:
            matches = marker_matches(data, properties_at, frame_end)
        if matches == MARKER_SIZE:
            if frame_end - properties_at < GUARD_SIZE or not is_guard_right(data, at, frame_end):
                break
            guarded = True
        else:
            if is_guarded or matches > _NAME_SIZE // 2:
                break
            has_zero = topic_size == 0
            for index in range(topic_at, topic_at + topic_size):
                has_zero |= data[index] == 0
            if has_zero or not _is_plainly_whole(data, properties_at, frame_end):
                break
            guarded = False
        sys_flag = load_i32(data, at + 36)
        transaction = sys_flag & _TRANSACTION_MASK
        if transaction not in (_PREPARED, _ROLLBACK):
            number = _queue_number(data, topic_at, topic_size, load_i32(data, at + 12), queues, queue_count, slots)
            if number < 0:
                break
            queue_count = max(queue_count, number + 1)
            queues[QUEUE_OFFSET, number] = load_i64(data, at + 20)
            if sys_flag & _INNER_BATCH:
                queues[BATCH_AT, number] = at
        store_time_millis = max(store_time_millis, load_i64(data, store_time_at(data, at)))
        is_guarded = guarded
        last_at = at
        count += 1
        at = frame_end
        commit_log_offset += size
    return count, last_at, at, is_guarded, store_time_millis, queue_count


def touch() -> None:
    """Compile what is called from outside."""
    data = np.zeros(1, dtype=np.uint8)
    data.flags.writeable = False
    check_run(
        data,
        0,
        0,
        False,
        np.empty((ROW_COUNT, QUEUE_COUNT_MAX), dtype=np.int64),
        np.empty(SLOT_COUNT, dtype=np.int32),
    )
