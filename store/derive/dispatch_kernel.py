"""Decodes ordinary records to the columns of DispatchColumns: the compiled twin of `record_dispatch.py` and `index_keys.py`.

These records are not ordinary, and left to the plain twins: a damaged record, one with bytes above 0x7F in its topic or in
a property that counts, and one of the topic whose tags code is not the hash of its tags.
"""

import numpy as np
import numpy.typing as npt

from store.compiled.bytes_kernel import find_byte
from store.compiled.compiling import Bytes, Number, compiled
from store.format.frame_kernel import is_same, load_i32, load_i64, locate, store_time_at
from store.format.properties import KEYS, TAGS, UNIQ_KEY
from store.format.sys_flag import TRANSACTION_MASK, TransactionType
from store.format.topic import SCHEDULE_TOPIC

Int32Rows = npt.NDArray[np.int32]
Int64Rows = npt.NDArray[np.int64]

TOPIC_COUNT_MAX = 1024
SLOT_COUNT = 4 * TOPIC_COUNT_MAX  # a power of two
# Rows of the two tables that the kernel fills.
TOPIC_NUMBER, QUEUE_ID, RECORD_SIZE, SYS_FLAG, ROW_COUNT_32 = range(5)
QUEUE_OFFSET, COMMIT_LOG_OFFSET, TAGS_CODE, STORE_TIME, ROW_COUNT_64 = range(5)
TOPIC_AT, TOPIC_SIZE, TOPIC_HASH, TOPIC_ROW_COUNT = range(4)

_SCHEDULE_TOPIC = np.frombuffer(SCHEDULE_TOPIC.encode(), dtype=np.uint8)
_TAGS, _KEYS, _UNIQ_KEY = (np.frombuffer(name.encode() + b"\x01", dtype=np.uint8) for name in (TAGS, KEYS, UNIQ_KEY))
_ROLLBACK = int(TransactionType.ROLLBACK)
_TRANSACTION_MASK = int(TRANSACTION_MASK)
_UNUSUAL = -1
_FULL = -2


@compiled
def _hash_on(data: Bytes, begin: Number, end: Number, value: Number) -> Number:
    """Java's String.hashCode of a text whose hash so far is `value` and that goes on with data[begin:end].

    A byte above 0x7F makes it negative; else it is the hash as an unsigned 32-bit number.
    """
    first = np.uint64(begin)
    result = np.uint32(value)
    seen = np.uint8(0)
    for index in range(np.uint64(end - begin)):
        byte = data[first + index]
        result = np.uint32(result * np.uint32(31) + byte)
        seen |= byte
    return np.int64(-1) if seen > 0x7F else np.int64(result)


@compiled
def _topic_number(
    data: Bytes, topic_at: Number, topic_size: Number, topics: Int64Rows, topic_count: Number, slots: Int32Rows
) -> Number:
    """The number of a topic; `topic_count` if it is new, _UNUSUAL or _FULL."""
    hash_ = _hash_on(data, topic_at, topic_at + topic_size, 0)
    if hash_ < 0:
        return _UNUSUAL
    slot = (hash_ * 0x9E3779B1 >> 16) & (SLOT_COUNT - 1)
    while slots[slot] >= 0:
        number = np.int64(slots[slot])
        if (
            topics[TOPIC_HASH, number] == hash_
            and topics[TOPIC_SIZE, number] == topic_size
            and is_same(data, topics[TOPIC_AT, number], topic_at, topic_size)
        ):
            return number
        slot = (slot + 1) & (SLOT_COUNT - 1)
    if topic_size == len(_SCHEDULE_TOPIC) and _begins_with(data, topic_at, _SCHEDULE_TOPIC):
        return _UNUSUAL
    if topic_count == TOPIC_COUNT_MAX:
        return _FULL
    slots[slot] = topic_count
    topics[TOPIC_AT, topic_count] = topic_at
    topics[TOPIC_SIZE, topic_count] = topic_size
    topics[TOPIC_HASH, topic_count] = hash_
    return topic_count


@compiled
def _begins_with(data: Bytes, at: Number, name: Bytes) -> Number:
    first = np.uint64(at)
    for index in range(np.uint64(len(name))):  # noqa: SIM110 - numba has no all()
        if data[first + index] != name[index]:
            return False
    return True


@compiled
def _find_properties(data: Bytes, at: Number, end: Number) -> tuple[Number, Number, Number, Number, Number, Number]:
    """Begin and end of the values of TAGS, KEYS and UNIQ_KEY; an empty range for a missing one.

    The last one of a name counts; an empty one does not.
    """
    tags_at = tags_end = keys_at = keys_end = unique_key_at = unique_key_end = 0
    while at < end:
        name_at = at
        at = find_byte(data, at, end, 2)
        size = at - name_at
        if size > len(_TAGS) and _begins_with(data, name_at, _TAGS):
            tags_at, tags_end = name_at + len(_TAGS), at
        elif size > len(_KEYS) and _begins_with(data, name_at, _KEYS):
            keys_at, keys_end = name_at + len(_KEYS), at
        elif size > len(_UNIQ_KEY) and _begins_with(data, name_at, _UNIQ_KEY):
            unique_key_at, unique_key_end = name_at + len(_UNIQ_KEY), at
        at += 1
    return tags_at, tags_end, keys_at, keys_end, unique_key_at, unique_key_end


@compiled
def _index_hash(hash_: Number) -> Number:
    """`index_layout.key_hash` of a text whose Java hash is this, unsigned."""
    if hash_ == 0x80000000:
        return 0
    return hash_ if hash_ < 0x80000000 else 0x100000000 - hash_


@compiled
def _add_keys(
    data: Bytes,
    at: Number,
    end: Number,
    prefix_hash: Number,
    record: Number,
    count: Number,
    records: Int32Rows,
    hashes: Int32Rows,
) -> Number:
    """Adds each of the keys in data[at:end], split at spaces; returns the new count, _UNUSUAL or _FULL."""
    while at < end:
        begin = at
        at = find_byte(data, at, end, 0x20)
        if at > begin:
            hash_ = _hash_on(data, begin, at, prefix_hash)
            if hash_ < 0:
                return _UNUSUAL
            if count == len(records):
                return _FULL
            records[count] = record
            hashes[count] = _index_hash(hash_)
            count += 1
        at += 1
    return count


@compiled
def fill_columns(
    data: Bytes,
    at: Number,
    commit_log_offset: Number,
    record_count_max: Number,
    rows_32: Int32Rows,
    rows_64: Int64Rows,
    key_records: Int32Rows,
    key_hashes: Int32Rows,
    topics: Int64Rows,
    slots: Int32Rows,
) -> tuple[Number, Number, Number, Number]:
    """Fills the tables with records from data[at] on; stops before the first that is not ordinary or does not fit.

    Returns:
        How many records, keys and topics the tables hold, and where in `data` the next record starts.
    """
    count: Number = 0
    key_count: Number = 0
    topic_count: Number = 0
    slots[:] = -1
    end = len(data)
    record_count_max = min(record_count_max, rows_32.shape[1], rows_64.shape[1])
    topic_number = np.int64(0)
    while count < record_count_max and at < end:
        size, _, topic_at, properties_at = locate(data, at, end, commit_log_offset)
        if size == 0:
            break
        topic_size = properties_at - 2 - topic_at
        if not (
            topic_count > 0
            and topics[TOPIC_SIZE, topic_number] == topic_size
            and is_same(data, topics[TOPIC_AT, topic_number], topic_at, topic_size)
        ):
            number = _topic_number(data, topic_at, topic_size, topics, topic_count, slots)
            if number < 0:
                break
            topic_number = number
        topic_hash = topics[TOPIC_HASH, topic_number]
        tags_at, tags_end, keys_at, keys_end, unique_key_at, unique_key_end = _find_properties(
            data, properties_at, at + size
        )
        tags_hash = _hash_on(data, tags_at, tags_end, 0)
        key_prefix = topic_hash * 31 + 0x23 & 0xFFFFFFFF
        sys_flag = load_i32(data, at + 36)
        keys_now = key_count
        if unique_key_end > unique_key_at:
            hash_ = _hash_on(data, unique_key_at, unique_key_end, key_prefix)
            if hash_ < 0 or keys_now == len(key_records):
                break
            key_records[keys_now] = count
            key_hashes[keys_now] = _index_hash(hash_)
            keys_now += 1
        keys_now = _add_keys(data, keys_at, keys_end, key_prefix, count, keys_now, key_records, key_hashes)
        if tags_hash < 0 or keys_now < 0:
            break
        if sys_flag & _TRANSACTION_MASK != _ROLLBACK:
            key_count = keys_now
        topic_count = max(topic_count, topic_number + 1)
        rows_32[TOPIC_NUMBER, count] = topic_number
        rows_32[QUEUE_ID, count] = load_i32(data, at + 12)
        rows_32[RECORD_SIZE, count] = size
        rows_32[SYS_FLAG, count] = sys_flag
        rows_64[QUEUE_OFFSET, count] = load_i64(data, at + 20)
        rows_64[COMMIT_LOG_OFFSET, count] = commit_log_offset
        rows_64[TAGS_CODE, count] = (tags_hash ^ 0x80000000) - 0x80000000
        rows_64[STORE_TIME, count] = load_i64(data, store_time_at(data, at))
        count += 1
        at += size
        commit_log_offset += size
    return count, key_count, topic_count, at


def touch() -> None:
    """Compile what is called from outside."""
    data = np.zeros(1, dtype=np.uint8)
    data.flags.writeable = False
    fill_columns(
        data,
        0,
        0,
        1,
        np.empty((ROW_COUNT_32, 1), dtype=np.int32),
        np.empty((ROW_COUNT_64, 1), dtype=np.int64),
        np.empty(1, dtype=np.int32),
        np.empty(1, dtype=np.int32),
        np.empty((TOPIC_ROW_COUNT, TOPIC_COUNT_MAX), dtype=np.int64),
        np.empty(SLOT_COUNT, dtype=np.int32),
    )
