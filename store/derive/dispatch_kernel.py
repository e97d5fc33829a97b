# cython: boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Decodes ordinary records to the columns of DispatchColumns: the compiled twin of `record_dispatch.py` and `index_keys.py`.

These records are not ordinary, and left to the plain twins: a damaged record, one with bytes above 0x7F in its topic or in
a property that counts, and one of the topic whose tags code is not the hash of its tags.
"""

import cython

from store.format.properties import KEYS, TAGS, UNIQ_KEY
from store.format.record_layout import FRAME_SIZE_BYTES_MIN, HEADS, MAGIC_V1, MAGIC_V2
from store.format.sys_flag import TRANSACTION_MASK, TransactionType
from store.format.topic import SCHEDULE_TOPIC

TOPIC_COUNT_MAX = 1024
SLOT_COUNT = 4 * TOPIC_COUNT_MAX  # a power of two
# Rows of the two tables that the kernel fills.
TOPIC_NUMBER, QUEUE_ID, RECORD_SIZE, SYS_FLAG, ROW_COUNT_32 = range(5)
QUEUE_OFFSET, COMMIT_LOG_OFFSET, TAGS_CODE, STORE_TIME, ROW_COUNT_64 = range(5)
TOPIC_AT, TOPIC_SIZE, TOPIC_HASH, TOPIC_ROW_COUNT = range(4)

# The same and others as numbers of C.
_TOPIC_COUNT_MAX = cython.declare(cython.longlong, TOPIC_COUNT_MAX)
_SLOT_MASK = cython.declare(cython.longlong, SLOT_COUNT - 1)
_TOPIC_NUMBER = cython.declare(cython.Py_ssize_t, TOPIC_NUMBER)
_QUEUE_ID = cython.declare(cython.Py_ssize_t, QUEUE_ID)
_RECORD_SIZE = cython.declare(cython.Py_ssize_t, RECORD_SIZE)
_SYS_FLAG = cython.declare(cython.Py_ssize_t, SYS_FLAG)
_QUEUE_OFFSET = cython.declare(cython.Py_ssize_t, QUEUE_OFFSET)
_COMMIT_LOG_OFFSET = cython.declare(cython.Py_ssize_t, COMMIT_LOG_OFFSET)
_TAGS_CODE = cython.declare(cython.Py_ssize_t, TAGS_CODE)
_STORE_TIME = cython.declare(cython.Py_ssize_t, STORE_TIME)
_TOPIC_AT = cython.declare(cython.Py_ssize_t, TOPIC_AT)
_TOPIC_SIZE = cython.declare(cython.Py_ssize_t, TOPIC_SIZE)
_TOPIC_HASH = cython.declare(cython.Py_ssize_t, TOPIC_HASH)
_FRAME_SIZE_MIN = cython.declare(cython.longlong, FRAME_SIZE_BYTES_MIN)
_HEAD_SIZE = cython.declare(cython.longlong, HEADS[0].size)
_MAGIC_V1 = cython.declare(cython.longlong, MAGIC_V1)
_MAGIC_V2 = cython.declare(cython.longlong, MAGIC_V2)
_ROLLBACK = cython.declare(cython.longlong, int(TransactionType.ROLLBACK))
_TRANSACTION_MASK = cython.declare(cython.longlong, int(TRANSACTION_MASK))
_HOST_V6_EXTRA = cython.declare(cython.longlong, 12)
_TOPIC_SIZE_MAX_V1 = cython.declare(cython.longlong, 127)
_SIGN_32 = cython.declare(cython.longlong, 0x80000000)
_LOW_32 = cython.declare(cython.longlong, 0xFFFFFFFF)
_GOLDEN = cython.declare(cython.longlong, 0x1E3779B1)
_SCHEDULE_TOPIC = cython.declare(cython.const[cython.uchar][::1], memoryview(SCHEDULE_TOPIC.encode()))
_TAGS = cython.declare(cython.const[cython.uchar][::1], memoryview(TAGS.encode() + b"\x01"))
_KEYS = cython.declare(cython.const[cython.uchar][::1], memoryview(KEYS.encode() + b"\x01"))
_UNIQ_KEY = cython.declare(cython.const[cython.uchar][::1], memoryview(UNIQ_KEY.encode() + b"\x01"))
_UNUSUAL = cython.declare(cython.longlong, -1)
_FULL = cython.declare(cython.longlong, -2)


@cython.final
@cython.cclass
class _Record:
    """The bytes of the log, and where in them the parts of one record lie; an empty range for a property that it does not have.

    Functions take it instead of the bytes: an array is 208 bytes that each call would copy.
    """

    data = cython.declare(cython.const[cython.uchar][::1])
    size = cython.declare(cython.longlong)
    topic_at = cython.declare(cython.longlong)
    properties_at = cython.declare(cython.longlong)
    tags_at = cython.declare(cython.longlong)
    tags_end = cython.declare(cython.longlong)
    keys_at = cython.declare(cython.longlong)
    keys_end = cython.declare(cython.longlong)
    unique_key_at = cython.declare(cython.longlong)
    unique_key_end = cython.declare(cython.longlong)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-0x76543210, check=True)
def _load_i16(record: _Record, at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = record.data[at]
    value = value << 8 | record.data[at + 1]
    return (value ^ 0x8000) - 0x8000


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-0x76543210, check=True)
def _load_i32(record: _Record, at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = record.data[at]
    value = value << 24 | record.data[at + 1] << 16 | record.data[at + 2] << 8 | record.data[at + 3]
    return (value ^ _SIGN_32) - _SIGN_32


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-0x76543210, check=True)
def _load_i64(record: _Record, at: cython.Py_ssize_t) -> cython.longlong:
    return _load_i32(record, at) << 32 | (_load_i32(record, at + 4) & _LOW_32)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(
    size=cython.longlong, magic=cython.longlong, flags=cython.longlong, body_at=cython.longlong,
    frame_end=cython.longlong, body_size=cython.longlong, length_at=cython.longlong, topic_at=cython.longlong,
    topic_size=cython.longlong, properties_at=cython.longlong, properties_size=cython.longlong,
)  # fmt: skip
def _locate(
    record: _Record,
    at: cython.longlong,
    end: cython.longlong,
    commit_log_offset: cython.longlong,
) -> cython.int:
    """Whether a record in order is there; see `frame_kernel.locate`."""
    if end - at < _FRAME_SIZE_MIN:
        return 0
    size = _load_i32(record, at)
    magic = _load_i32(record, at + 4)
    if size < _FRAME_SIZE_MIN or size > end - at or _load_i64(record, at + 28) != commit_log_offset:
        return 0
    flags = record.data[at + 39]
    body_at = at + _HEAD_SIZE + _HOST_V6_EXTRA * ((flags >> 4 & 1) + (flags >> 5 & 1))
    frame_end = at + size
    if body_at + 3 > frame_end:
        return 0
    body_size = _load_i32(record, body_at - 4)
    if body_size < 0 or body_size > frame_end - body_at - 3:
        return 0
    length_at = body_at + body_size
    if magic == _MAGIC_V1:
        topic_at = length_at + 1
        topic_size = record.data[length_at]
        if topic_size > _TOPIC_SIZE_MAX_V1:
            return 0
    elif magic == _MAGIC_V2:
        topic_at = length_at + 2
        topic_size = _load_i16(record, length_at)
        if topic_size < 0:
            return 0
    else:
        return 0
    properties_at = topic_at + topic_size + 2
    if properties_at > frame_end:
        return 0
    properties_size = _load_i16(record, properties_at - 2)
    if properties_size < 0 or properties_at + properties_size != frame_end:
        return 0
    record.size = size
    record.topic_at = topic_at
    record.properties_at = properties_at
    return 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def _need(record: _Record, begin: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
    """Checks that data[begin:end] lies in the data: once for a loop that does not check each byte."""
    if begin < 0 or end > record.data.shape[0]:
        with cython.gil:
            raise IndexError((begin, end, record.data.shape[0]))
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(index=cython.Py_ssize_t)
def _is_same(record: _Record, one: cython.Py_ssize_t, other: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
    _need(record, one, one + size)
    _need(record, other, other + size)
    with cython.boundscheck(False):
        for index in range(size):
            if record.data[one + index] != record.data[other + index]:
                return 0
    return 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(index=cython.Py_ssize_t)
def _begins_with(record: _Record, at: cython.Py_ssize_t, name: cython.const[cython.uchar][::1]) -> cython.int:
    _need(record, at, at + name.shape[0])
    with cython.boundscheck(False):
        for index in range(name.shape[0]):
            if record.data[at + index] != name[index]:
                return 0
    return 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def _find_byte(
    record: _Record, at: cython.Py_ssize_t, end: cython.Py_ssize_t, wanted: cython.uchar
) -> cython.Py_ssize_t:
    """Where the first such byte stands in data[at:end]; `end` without one."""
    _need(record, at, end)
    with cython.boundscheck(False):
        while at < end and record.data[at] != wanted:
            at += 1
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-2)
@cython.locals(index=cython.Py_ssize_t, result=cython.uint, byte=cython.uint, seen=cython.uint)
def _hash_on(record: _Record, begin: cython.Py_ssize_t, end: cython.Py_ssize_t, value: cython.uint) -> cython.longlong:
    """Java's String.hashCode of a text whose hash so far is `value` and that goes on with data[begin:end].

    A byte above 0x7F makes it -1; else it is the hash as an unsigned 32-bit number.
    """
    result = value
    seen = 0
    _need(record, begin, end)
    with cython.boundscheck(False):
        for index in range(begin, end):
            byte = record.data[index]
            result = result * 31 + byte & _LOW_32
            seen |= byte
    return -1 if seen > 0x7F else result


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-3)
@cython.locals(hash_=cython.longlong, slot=cython.longlong, number=cython.longlong)
def _topic_number(
    record: _Record,
    topic_at: cython.longlong,
    topic_size: cython.longlong,
    topics: cython.longlong[:, ::1],
    topic_count: cython.longlong,
    slots: cython.int[::1],
) -> cython.longlong:
    """The number of a topic; `topic_count` if it is new, _UNUSUAL or _FULL."""
    hash_ = _hash_on(record, topic_at, topic_at + topic_size, 0)
    if hash_ < 0:
        return _UNUSUAL
    slot = (hash_ * _GOLDEN >> 16) & _SLOT_MASK
    while slots[slot] >= 0:
        number = slots[slot]
        if (
            topics[_TOPIC_HASH, number] == hash_
            and topics[_TOPIC_SIZE, number] == topic_size
            and _is_same(record, topics[_TOPIC_AT, number], topic_at, topic_size)
        ):
            return number
        slot = slot + 1 & _SLOT_MASK
    if topic_size == _SCHEDULE_TOPIC.shape[0] and _begins_with(record, topic_at, _SCHEDULE_TOPIC):
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
@cython.locals(name_at=cython.Py_ssize_t, size=cython.Py_ssize_t)
def _find_properties(record: _Record, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
    """Sets where the values of TAGS, KEYS and UNIQ_KEY are. The last one of a name counts; an empty one does not."""
    record.tags_at = record.tags_end = record.keys_at = record.keys_end = 0
    record.unique_key_at = record.unique_key_end = 0
    while at < end:
        name_at = at
        at = _find_byte(record, at, end, 2)
        size = at - name_at
        if size > _TAGS.shape[0] and _begins_with(record, name_at, _TAGS):
            record.tags_at = name_at + _TAGS.shape[0]
            record.tags_end = at
        elif size > _KEYS.shape[0] and _begins_with(record, name_at, _KEYS):
            record.keys_at = name_at + _KEYS.shape[0]
            record.keys_end = at
        elif size > _UNIQ_KEY.shape[0] and _begins_with(record, name_at, _UNIQ_KEY):
            record.unique_key_at = name_at + _UNIQ_KEY.shape[0]
            record.unique_key_end = at
        at += 1
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _index_hash(hash_: cython.longlong) -> cython.longlong:
    """`index_layout.key_hash` of a text whose Java hash is this, unsigned."""
    if hash_ == _SIGN_32:
        return 0
    return hash_ if hash_ < _SIGN_32 else _LOW_32 + 1 - hash_


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-3)
@cython.locals(begin=cython.Py_ssize_t, hash_=cython.longlong)
def _add_keys(
    record: _Record,
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
        at = _find_byte(record, at, end, 0x20)
        if at > begin:
            hash_ = _hash_on(record, begin, at, prefix_hash)
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
    record=_Record, count=cython.longlong, key_count=cython.longlong, topic_count=cython.longlong,
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
        data, rows_32, rows_64, key_records, key_hashes, topics, slots = map(
            memoryview, (data, rows_32, rows_64, key_records, key_hashes, topics, slots)
        )
    record = _Record()
    record.data = data
    count = key_count = topic_count = topic_number = 0
    end = len(data)
    count_max = min(record_count_max, rows_32.shape[1], rows_64.shape[1])
    with cython.nogil:
        with cython.boundscheck(False):  # so that it is one instruction for many
            for index in range(slots.shape[0]):
                slots[index] = -1
        while count < count_max and at < end:
            if not _locate(record, at, end, commit_log_offset):
                break
            topic_size = record.properties_at - 2 - record.topic_at
            if not (
                topic_count > 0
                and topics[_TOPIC_SIZE, topic_number] == topic_size
                and _is_same(record, topics[_TOPIC_AT, topic_number], record.topic_at, topic_size)
            ):
                number = _topic_number(record, record.topic_at, topic_size, topics, topic_count, slots)
                if number < 0:
                    break
                topic_number = number
            topic_hash = topics[_TOPIC_HASH, topic_number]
            _find_properties(record, record.properties_at, at + record.size)
            tags_hash = _hash_on(record, record.tags_at, record.tags_end, 0)
            key_prefix = topic_hash * 31 + 0x23 & _LOW_32
            sys_flag = _load_i32(record, at + 36)
            keys_now = key_count
            if record.unique_key_end > record.unique_key_at:
                hash_ = _hash_on(record, record.unique_key_at, record.unique_key_end, key_prefix)
                if hash_ < 0 or keys_now == min(key_records.shape[0], key_hashes.shape[0]):
                    break
                key_records[keys_now] = count
                key_hashes[keys_now] = _index_hash(hash_)
                keys_now += 1
            keys_now = _add_keys(
                record, record.keys_at, record.keys_end, key_prefix, count, keys_now, key_records, key_hashes
            )
            if tags_hash < 0 or keys_now < 0:
                break
            if sys_flag & _TRANSACTION_MASK != _ROLLBACK:
                key_count = keys_now
            topic_count = max(topic_count, topic_number + 1)
            time_at = at + 56 + _HOST_V6_EXTRA * (data[at + 39] >> 4 & 1)
            rows_32[_TOPIC_NUMBER, count] = topic_number
            rows_32[_QUEUE_ID, count] = _load_i32(record, at + 12)
            rows_32[_RECORD_SIZE, count] = record.size
            rows_32[_SYS_FLAG, count] = sys_flag
            rows_64[_QUEUE_OFFSET, count] = _load_i64(record, at + 20)
            rows_64[_COMMIT_LOG_OFFSET, count] = commit_log_offset
            rows_64[_TAGS_CODE, count] = (tags_hash ^ _SIGN_32) - _SIGN_32
            rows_64[_STORE_TIME, count] = _load_i64(record, time_at)
            count += 1
            at += record.size
            commit_log_offset += record.size
    return count, key_count, topic_count, at


@cython.locals(text=_Record, prefix_hash=cython.longlong, count=cython.longlong)
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
        data, records, hashes = memoryview(data), memoryview(records), memoryview(hashes)
    text = _Record()
    text.data = data
    with cython.nogil:
        prefix_hash = _hash_on(text, 0, prefix_size, 0)
        count = _UNUSUAL
        if prefix_hash >= 0:
            count = _add_keys(text, prefix_size, data.shape[0], prefix_hash, 0, 0, records, hashes)
    return count
