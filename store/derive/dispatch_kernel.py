# cython: boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Decodes ordinary records to the columns of DispatchColumns: the compiled twin of `record_dispatch.py` and `index_keys.py`.

These records are not ordinary, and left to the plain twins: a damaged record, one with bytes above 0x7F in its topic or in
a property that counts, one of the topic whose tags code is not the hash of its tags, and one with units in light queues.
"""

import cython

from store.compiled.bytes_part import (
    LOW_32,
    SIGN_32,
    Bytes,
    begins_with,
    find_byte,
    is_same,
    load_i32,
    load_i64,
    need,
    reading,
)
from store.derive.index_keys import NO_TAGS
from store.format.derived.index_layout import tag_key
from store.format.frame_part import Frame, locate, store_time_at
from store.format.properties import KEYS, MULTI_DISPATCH, TAGS, UNIQ_KEY
from store.format.sys_flag import TRANSACTION_MASK, TransactionType
from store.format.topic import SCHEDULE_TOPIC

TOPIC_COUNT_MAX = 1024
SLOT_COUNT = 4 * TOPIC_COUNT_MAX  # a power of two
# Rows of the two tables that the kernel fills.
TOPIC_NUMBER, QUEUE_ID, RECORD_SIZE, SYS_FLAG, TAGS_HASH, ROW_COUNT_32 = range(6)
QUEUE_OFFSET, COMMIT_LOG_OFFSET, TAGS_CODE, STORE_TIME, ROW_COUNT_64 = range(5)
TOPIC_AT, TOPIC_SIZE, TOPIC_HASH, TOPIC_ROW_COUNT = range(4)

# The same and others as numbers of C.
_TOPIC_COUNT_MAX = cython.declare(cython.longlong, TOPIC_COUNT_MAX)
_SLOT_MASK = cython.declare(cython.longlong, SLOT_COUNT - 1)
_TOPIC_NUMBER = cython.declare(cython.Py_ssize_t, TOPIC_NUMBER)
_QUEUE_ID = cython.declare(cython.Py_ssize_t, QUEUE_ID)
_RECORD_SIZE = cython.declare(cython.Py_ssize_t, RECORD_SIZE)
_SYS_FLAG = cython.declare(cython.Py_ssize_t, SYS_FLAG)
_TAGS_HASH = cython.declare(cython.Py_ssize_t, TAGS_HASH)
_QUEUE_OFFSET = cython.declare(cython.Py_ssize_t, QUEUE_OFFSET)
_COMMIT_LOG_OFFSET = cython.declare(cython.Py_ssize_t, COMMIT_LOG_OFFSET)
_TAGS_CODE = cython.declare(cython.Py_ssize_t, TAGS_CODE)
_STORE_TIME = cython.declare(cython.Py_ssize_t, STORE_TIME)
_TOPIC_AT = cython.declare(cython.Py_ssize_t, TOPIC_AT)
_TOPIC_SIZE = cython.declare(cython.Py_ssize_t, TOPIC_SIZE)
_TOPIC_HASH = cython.declare(cython.Py_ssize_t, TOPIC_HASH)
_ROLLBACK = cython.declare(cython.longlong, int(TransactionType.ROLLBACK))
_TRANSACTION_MASK = cython.declare(cython.longlong, int(TRANSACTION_MASK))
_GOLDEN = cython.declare(cython.longlong, 0x1E3779B1)
_SCHEDULE_TOPIC = cython.declare(Bytes, reading(SCHEDULE_TOPIC.encode()))
_TAGS = cython.declare(Bytes, reading(TAGS.encode() + b"\x01"))
_KEYS = cython.declare(Bytes, reading(KEYS.encode() + b"\x01"))
_UNIQ_KEY = cython.declare(Bytes, reading(UNIQ_KEY.encode() + b"\x01"))
_MULTI_DISPATCH = cython.declare(Bytes, reading(MULTI_DISPATCH.encode() + b"\x01"))
_OF_TAGS = cython.declare(Bytes, reading(tag_key("").encode()))
_NO_TAGS = cython.declare(cython.longlong, NO_TAGS)
_UNUSUAL = cython.declare(cython.longlong, -1)
_FULL = cython.declare(cython.longlong, -2)


@cython.final
@cython.cclass
class _Properties:
    """Where the values of the properties of one record lie; an empty range for one that it does not have."""

    tags_at = cython.declare(cython.longlong)
    tags_end = cython.declare(cython.longlong)
    keys_at = cython.declare(cython.longlong)
    keys_end = cython.declare(cython.longlong)
    unique_key_at = cython.declare(cython.longlong)
    unique_key_end = cython.declare(cython.longlong)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-2)
@cython.locals(index=cython.Py_ssize_t, result=cython.uint, byte=cython.uint, seen=cython.uint)
def _hash_on(data: Bytes, begin: cython.Py_ssize_t, end: cython.Py_ssize_t, value: cython.uint) -> cython.longlong:
    """Java's String.hashCode of a text whose hash so far is `value` and that goes on with data[begin:end].

    A byte above 0x7F makes it -1; else it is the hash as an unsigned 32-bit number.
    """
    result = value
    seen = 0
    need(data, begin, end)
    with cython.boundscheck(False):
        for index in range(begin, end):
            byte = data.data[index]
            result = result * 31 + byte & LOW_32
            seen |= byte
    return -1 if seen > 0x7F else result


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-3)
@cython.locals(hash_=cython.longlong, slot=cython.longlong, number=cython.longlong)
def _topic_number(
    data: Bytes,
    topic_at: cython.longlong,
    topic_size: cython.longlong,
    topics: cython.longlong[:, ::1],
    topic_count: cython.longlong,
    slots: cython.int[::1],
) -> cython.longlong:
    """The number of a topic; `topic_count` if it is new, _UNUSUAL or _FULL."""
    hash_ = _hash_on(data, topic_at, topic_at + topic_size, 0)
    if hash_ < 0:
        return _UNUSUAL
    slot = (hash_ * _GOLDEN >> 16) & _SLOT_MASK
    while slots[slot] >= 0:
        number = slots[slot]
        if (
            topics[_TOPIC_HASH, number] == hash_
            and topics[_TOPIC_SIZE, number] == topic_size
            and is_same(data, topics[_TOPIC_AT, number], topic_at, topic_size)
        ):
            return number
        slot = slot + 1 & _SLOT_MASK
    if topic_size == len(_SCHEDULE_TOPIC.data) and begins_with(data, topic_at, _SCHEDULE_TOPIC):
        return _UNUSUAL
    if topic_count == _TOPIC_COUNT_MAX:
        return _FULL
    slots[slot] = topic_count
    topics[_TOPIC_AT, topic_count] = topic_at
    topics[_TOPIC_SIZE, topic_count] = topic_size
    topics[_TOPIC_HASH, topic_count] = hash_
    return topic_count


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(name_at=cython.Py_ssize_t, size=cython.Py_ssize_t, dispatches=cython.int)
def _find_properties(data: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, found: _Properties) -> cython.int:
    """Sets where the values of TAGS, KEYS and UNIQ_KEY are. The last one of a name counts; an empty one does not.

    Returns:
        1 when the record names further queues, else 0.
    """
    dispatches = 0
    found.tags_at = found.tags_end = found.keys_at = found.keys_end = 0
    found.unique_key_at = found.unique_key_end = 0
    while at < end:
        name_at = at
        at = find_byte(data, at, end, 2)
        size = at - name_at
        if size > len(_TAGS.data) and begins_with(data, name_at, _TAGS):
            found.tags_at = name_at + len(_TAGS.data)
            found.tags_end = at
        elif size > len(_KEYS.data) and begins_with(data, name_at, _KEYS):
            found.keys_at = name_at + len(_KEYS.data)
            found.keys_end = at
        elif size > len(_UNIQ_KEY.data) and begins_with(data, name_at, _UNIQ_KEY):
            found.unique_key_at = name_at + len(_UNIQ_KEY.data)
            found.unique_key_end = at
        elif size > len(_MULTI_DISPATCH.data) and begins_with(data, name_at, _MULTI_DISPATCH):
            dispatches = 1
        at += 1
    return dispatches


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _index_hash(hash_: cython.longlong) -> cython.longlong:
    """`index_layout.key_hash` of a text whose Java hash is this, unsigned."""
    if hash_ == SIGN_32:
        return 0
    return hash_ if hash_ < SIGN_32 else LOW_32 + 1 - hash_


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-3)
@cython.locals(begin=cython.Py_ssize_t, hash_=cython.longlong)
def _add_keys(
    data: Bytes,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    prefix_hash: cython.longlong,
    number: cython.longlong,
    count: cython.longlong,
    records: cython.int[::1],
    hashes: cython.int[::1],
) -> cython.longlong:
    """Adds each of the keys in data[at:end], split at spaces; returns the new count, _UNUSUAL or _FULL."""
    while at < end:
        begin = at
        at = find_byte(data, at, end, 0x20)
        if at > begin:
            hash_ = _hash_on(data, begin, at, prefix_hash)
            if hash_ < 0:
                return _UNUSUAL
            if count == min(records.shape[0], hashes.shape[0]):
                return _FULL
            records[count] = number
            hashes[count] = _index_hash(hash_)
            count += 1
        at += 1
    return count


@cython.locals(
    bytes_=Bytes, frame=Frame, found=_Properties, count=cython.longlong, key_count=cython.longlong, topic_count=cython.longlong,
    index=cython.Py_ssize_t, end=cython.longlong, count_max=cython.longlong, topic_number=cython.longlong,
    topic_size=cython.longlong, topic_hash=cython.longlong, number=cython.longlong, tags_hash=cython.longlong,
    key_prefix=cython.longlong, sys_flag=cython.longlong, keys_now=cython.longlong, hash_=cython.longlong,
    time_at=cython.longlong,
)  # fmt: skip
def fill_columns(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    commit_log_offset: cython.longlong,
    record_count_max: cython.longlong,
    rows_32: cython.int[:, ::1],
    rows_64: cython.longlong[:, ::1],
    key_records: cython.int[::1],
    key_hashes: cython.int[::1],
    topics: cython.longlong[:, ::1],
    slots: cython.int[::1],
) -> tuple[int, int, int, int]:
    """Fills the tables with records from data[at] on; stops before the first that is not ordinary or does not fit.

    Returns:
        How many records, keys and topics the tables hold, and where in `data` the next record starts.
    """
    if not cython.compiled:
        rows_32, rows_64, key_records, key_hashes, topics, slots = map(
            memoryview, (rows_32, rows_64, key_records, key_hashes, topics, slots)
        )
    bytes_ = reading(data)
    frame = Frame()
    found = _Properties()
    count = key_count = topic_count = topic_number = 0
    end = len(bytes_.data)
    count_max = min(record_count_max, rows_32.shape[1], rows_64.shape[1])
    with cython.nogil:
        with cython.boundscheck(False):  # so that it is one instruction for many
            for index in range(slots.shape[0]):
                slots[index] = -1
        while count < count_max and at < end:
            if not locate(bytes_, at, end, commit_log_offset, frame):
                break
            topic_size = frame.properties_at - 2 - frame.topic_at
            if not (
                topic_count > 0
                and topics[_TOPIC_SIZE, topic_number] == topic_size
                and is_same(bytes_, topics[_TOPIC_AT, topic_number], frame.topic_at, topic_size)
            ):
                number = _topic_number(bytes_, frame.topic_at, topic_size, topics, topic_count, slots)
                if number < 0:
                    break
                topic_number = number
            topic_hash = topics[_TOPIC_HASH, topic_number]
            if _find_properties(bytes_, frame.properties_at, at + frame.size, found):
                break
            tags_hash = _hash_on(bytes_, found.tags_at, found.tags_end, 0)
            key_prefix = topic_hash * 31 + 0x23 & LOW_32
            sys_flag = load_i32(bytes_, at + 36)
            keys_now = key_count
            if found.unique_key_end > found.unique_key_at:
                hash_ = _hash_on(bytes_, found.unique_key_at, found.unique_key_end, key_prefix)
                if hash_ < 0 or keys_now == min(key_records.shape[0], key_hashes.shape[0]):
                    break
                key_records[keys_now] = count
                key_hashes[keys_now] = _index_hash(hash_)
                keys_now += 1
            keys_now = _add_keys(
                bytes_, found.keys_at, found.keys_end, key_prefix, count, keys_now, key_records, key_hashes
            )
            if tags_hash < 0 or keys_now < 0:
                break
            hash_ = _NO_TAGS
            if sys_flag & _TRANSACTION_MASK != _ROLLBACK:
                key_count = keys_now
                if found.tags_end > found.tags_at:
                    hash_ = _hash_on(_OF_TAGS, 0, len(_OF_TAGS.data), key_prefix)
                    hash_ = _index_hash(_hash_on(bytes_, found.tags_at, found.tags_end, hash_))
            topic_count = max(topic_count, topic_number + 1)
            time_at = store_time_at(bytes_, at)
            rows_32[_TOPIC_NUMBER, count] = topic_number
            rows_32[_QUEUE_ID, count] = load_i32(bytes_, at + 12)
            rows_32[_RECORD_SIZE, count] = frame.size
            rows_32[_SYS_FLAG, count] = sys_flag
            rows_32[_TAGS_HASH, count] = hash_
            rows_64[_QUEUE_OFFSET, count] = load_i64(bytes_, at + 20)
            rows_64[_COMMIT_LOG_OFFSET, count] = commit_log_offset
            rows_64[_TAGS_CODE, count] = (tags_hash ^ SIGN_32) - SIGN_32
            rows_64[_STORE_TIME, count] = load_i64(bytes_, time_at)
            count += 1
            at += frame.size
            commit_log_offset += frame.size
    return count, key_count, topic_count, at


@cython.locals(text=Bytes, prefix_hash=cython.longlong, count=cython.longlong)
def hash_keys(
    data: cython.const[cython.uchar][::1],
    prefix_size: cython.Py_ssize_t,
    records: cython.int[::1],
    hashes: cython.int[::1],
) -> int:
    """Sets the index hashes of the keys in data[prefix_size:], split at spaces, each behind the prefix data[:prefix_size].

    Returns:
        How many keys there are; negative when a byte is above 0x7F or there are more than `records` or `hashes` hold.
    """
    if not cython.compiled:
        records, hashes = memoryview(records), memoryview(hashes)
    text = reading(data)
    with cython.nogil:
        prefix_hash = _hash_on(text, 0, prefix_size, 0)
        count = _UNUSUAL
        if prefix_hash >= 0:
            count = _add_keys(text, prefix_size, len(text.data), prefix_hash, 0, 0, records, hashes)
    return count
