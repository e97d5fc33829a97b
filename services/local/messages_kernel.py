"""Stored records as the bytes of `StoredMessage`s, or as they are, read and checked in a log file without an object for each.

`encode` takes ordinary records and stops at the first that is not: the plain path (`convert.stored_message`) decides what that
one is, and what its answer or error is. Not ordinary are: an IPv6 host; properties that are not UTF-8; a property name that
comes twice, or more than PROPERTY_COUNT_MAX properties; a time that is outside the years 1970 to 9999; a record that is larger
than the buffer, is not in order, has a wrong CRC, or is not the one of its position of the queue.

The fields are those of `reput.message.v1.StoredMessage`; a test compares each message with the plain one. Records as they are
need no properties that are ordinary: nothing of them is rewritten.
"""

import numpy as np
import numpy.typing as npt

from store.compiled.bytes_kernel import copy, find_byte, is_bytes, is_utf8, put_number, put_varint, size_of_varint
from store.compiled.compiling import Bytes, Number, compiled
from store.compiled.pread_kernel import PREAD_AT, pread
from store.format.frame_kernel import bits_of, is_same, load_i32, load_i64, locate
from store.format.guard_kernel import BODY_CRC_AT, is_doubtful
from store.format.properties import KEYS, TAGS, UNIQ_KEY
from store.format.record_layout import FRAME_SIZE_BYTES_MIN

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

# Why `encode` has stopped: no row is left; the bodies have as many bytes as are wanted; the target has no room; the row lies
# outside the part of the file that may be read; the row is not ordinary.
DONE, FULL, NO_ROOM, BEYOND, UNUSUAL = range(5)
# Each name is compared with those before it.
PROPERTY_COUNT_MAX = 64
SPAN_COUNT = 4 * PROPERTY_COUNT_MAX

_MESSAGES_TAG, _RECORDS_TAG = (
    0x0A,
    0x42,
)  # of the answer; those below are of StoredMessage, times 8 plus the value's kind
_QUEUE_OFFSET, _COMMIT_LOG_OFFSET, _STORE_SIZE, _FLAG, _SYS_FLAG, _BORN_TIME = 0x18, 0x20, 0x28, 0x30, 0x38, 0x42
_BORN_HOST, _STORE_TIME, _STORE_HOST, _RECONSUME_TIMES, _PREPARED_OFFSET, _BODY_CRC = 0x4A, 0x52, 0x5A, 0x60, 0x68, 0x70
_BODY, _PROPERTIES, _TAGS, _KEYS, _UNIQUE_KEY, _OFFSET_MSG_ID = 0x7A, 0x82, 0x8A, 0x92, 0x9A, 0xA2
_ENTRY_NAME, _ENTRY_VALUE, _SECONDS, _NANOS = 0x0A, 0x12, 0x08, 0x10

_HOSTS_V6 = 0x30
_TIME_MILLIS_MAX = 253_402_300_799_999
_STORE_HOST_AT, _RECONSUME_TIMES_AT, _PREPARED_OFFSET_AT = 64, 72, 76
_TAGS_NAME, _KEYS_NAME, _UNIQUE_KEY_NAME = (
    np.frombuffer(name.encode(), dtype=np.uint8).copy() for name in (TAGS, KEYS, UNIQ_KEY)
)
_HEX = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8).copy()
_NAME_END, _PROPERTY_END, _SPACE = 0x01, 0x02, 0x20
# A message without head, tail, body and properties takes fewer bytes; properties take less than 8 times their stored bytes.
_FIELDS_SIZE_MAX = 256
_PROPERTIES_GROWTH = 8


@compiled
def _put_time(target: Bytes, at: Number, tag: Number, time_millis: Number) -> Number:
    """Writes a Timestamp."""
    target[at] = tag
    end = put_number(target, at + 2, _SECONDS, time_millis // 1000)
    end = put_number(target, end, _NANOS, time_millis % 1000 * 1_000_000)
    target[at + 1] = end - at - 2
    return end


@compiled
def _put_decimal(target: Bytes, at: Number, value: Number) -> Number:
    if value < 0:
        target[at] = 0x2D
        at += 1
        value = -value
    size, rest = 1, value
    while rest > 9:
        rest //= 10
        size += 1
    for place in range(size - 1, -1, -1):
        target[at + place] = 0x30 + value % 10
        value //= 10
    return at + size


@compiled
def _put_host(target: Bytes, at: Number, tag: Number, records: Bytes, host_at: Number) -> Number:
    """Writes an IPv4 host as `IP:port`."""
    target[at] = tag
    end = at + 2
    for place in range(4):
        end = _put_decimal(target, end, np.int64(records[host_at + place]))
        target[end] = 0x2E if place < 3 else 0x3A
        end += 1
    end = _put_decimal(target, end, load_i32(records, host_at + 4))
    target[at + 1] = end - at - 2
    return end


@compiled
def _put_hex(target: Bytes, at: Number, records: Bytes, begin: Number, size: Number) -> Number:
    for place in range(size):
        byte = np.int64(records[begin + place])
        target[at + 2 * place] = _HEX[byte >> 4]
        target[at + 2 * place + 1] = _HEX[byte & 0xF]
    return at + 2 * size


@compiled
def _put_text(target: Bytes, at: Number, tag: Number, records: Bytes, begin: Number, end: Number) -> Number:
    """Writes a field of bytes whose number is 16 or larger."""
    target[at], target[at + 1] = tag, 1
    return copy(records, begin, end, target, put_varint(target, at + 2, end - begin))


@compiled
def _find_properties(records: Bytes, at: Number, end: Number, spans: Int64s) -> Number:
    """Notes begin and end of names and values, as `store/format/properties.py` reads them; -1 when a name comes twice."""
    count: Number = 0
    while at < end:
        name_at = at
        at = find_byte(records, name_at, end, _PROPERTY_END)
        name_end = find_byte(records, name_at, at, _NAME_END)
        value_at, value_end = name_end + 1, at
        at += 1
        if name_end == name_at or value_at >= value_end:
            continue
        if count >= PROPERTY_COUNT_MAX:
            return -1
        size = name_end - name_at
        for place in range(0, 4 * count, 4):
            if spans[place + 1] - spans[place] == size and is_same(records, spans[place], name_at, size):
                return -1
        place = 4 * count
        spans[place], spans[place + 1], spans[place + 2], spans[place + 3] = name_at, name_end, value_at, value_end
        count += 1
    return count


@compiled
def _put_properties(target: Bytes, to: Number, records: Bytes, spans: Int64s, count: Number) -> Number:
    """Writes the properties, and copies of those that have fields of their own."""
    tags = keys = unique_key = -1
    for place in range(0, 4 * count, 4):
        name_at, name_end, value_at, value_end = spans[place], spans[place + 1], spans[place + 2], spans[place + 3]
        name_size, value_size = name_end - name_at, value_end - value_at
        if is_bytes(records, name_at, name_size, _TAGS_NAME):
            tags = place
        elif is_bytes(records, name_at, name_size, _KEYS_NAME):
            keys = place
        elif is_bytes(records, name_at, name_size, _UNIQUE_KEY_NAME):
            unique_key = place
        target[to], target[to + 1] = _PROPERTIES, 1
        entry_size = 2 + size_of_varint(name_size) + name_size + size_of_varint(value_size) + value_size
        to = put_number(target, put_varint(target, to + 2, entry_size), _ENTRY_NAME, name_size)
        to = copy(records, name_at, name_end, target, to)
        to = copy(records, value_at, value_end, target, put_number(target, to, _ENTRY_VALUE, value_size))
    if tags >= 0:
        to = _put_text(target, to, _TAGS, records, spans[tags + 2], spans[tags + 3])
    if keys >= 0:
        at, end = spans[keys + 2], spans[keys + 3]
        while at < end:
            key_end = find_byte(records, at, end, _SPACE)
            if key_end > at:
                to = _put_text(target, to, _KEYS, records, at, key_end)
            at = key_end + 1
    if unique_key >= 0:
        to = _put_text(target, to, _UNIQUE_KEY, records, spans[unique_key + 2], spans[unique_key + 3])
    return to


@compiled
def _put_message(
    target: Bytes,
    to: Number,
    length_size: Number,
    head: Bytes,
    tail: Bytes,
    records: Bytes,
    at: Number,
    body_at: Number,
    spans: Int64s,
    property_count: Number,
) -> Number:
    """Writes a message with its tag and length; `length_size` bytes are kept for the length, one is enough for fewer."""
    begin = to + 1 + length_size
    end = copy(head, 0, len(head), target, begin)
    body_size = load_i32(records, body_at - 4)
    end = put_number(target, end, _QUEUE_OFFSET, load_i64(records, at + 20))
    end = put_number(target, end, _COMMIT_LOG_OFFSET, load_i64(records, at + 28))
    end = put_number(target, end, _STORE_SIZE, load_i32(records, at))
    end = put_number(target, end, _FLAG, load_i32(records, at + 16))
    end = put_number(target, end, _SYS_FLAG, load_i32(records, at + 36))
    end = _put_time(target, end, _BORN_TIME, load_i64(records, at + 40))
    end = _put_host(target, end, _BORN_HOST, records, at + 48)
    end = _put_time(target, end, _STORE_TIME, load_i64(records, at + 56))
    end = _put_host(target, end, _STORE_HOST, records, at + _STORE_HOST_AT)
    end = put_number(target, end, _RECONSUME_TIMES, load_i32(records, at + _RECONSUME_TIMES_AT))
    end = put_number(target, end, _PREPARED_OFFSET, load_i64(records, at + _PREPARED_OFFSET_AT))
    end = put_number(target, end, _BODY_CRC, load_i32(records, at + BODY_CRC_AT) & 0xFFFFFFFF)
    end = put_number(target, end, _BODY, body_size)
    end = copy(records, body_at, body_at + body_size, target, end)
    end = _put_properties(target, end, records, spans, property_count)
    target[end], target[end + 1], target[end + 2] = _OFFSET_MSG_ID, 1, 32
    end = _put_hex(target, end + 3, records, at + _STORE_HOST_AT, 8)
    end = _put_hex(target, end, records, at + 28, 8)
    end = copy(tail, 0, len(tail), target, end)
    target[to] = _MESSAGES_TAG
    content_at = put_varint(target, to + 1, end - begin)
    return end if content_at == begin else copy(target, begin, end, target, content_at)


@compiled
def _put_record(target: Bytes, to: Number, records: Bytes, at: Number, size: Number) -> Number:
    """Writes a record with its tag and length."""
    target[to] = _RECORDS_TAG
    return copy(records, at, at + size, target, put_varint(target, to + 1, size))


@compiled
def encode(
    reading: Number,
    fd: Number,
    file_offset: Number,
    end_offset: Number,
    offsets: Int64s,
    sizes: Int32s,
    row: Number,
    queue_offset: Number,
    queue_id: Number,
    topic: Bytes,
    head: Bytes,
    tail: Bytes,
    as_records: Number,
    is_first: Number,
    body_bytes_left: Number,
    records: Bytes,
    spans: Int64s,
    target: Bytes,
) -> tuple[Number, Number, Number, Number]:
    """Writes the messages of consecutive units of a queue, each as field 1 of an answer; stops before one that it cannot take.

    With `as_records` it writes their records, each as field 8.

    Args:
        reading: PREAD_AT.
        fd: of the log file.
        file_offset: commit-log offset of its first byte.
        end_offset: nothing is read from this commit-log offset on.
        offsets: where the records start.
        sizes: their sizes in bytes.
        row: the first unit wanted.
        queue_offset: position of `row` in the queue.
        queue_id: the queue.
        topic: its topic, in UTF-8.
        head: fields 1 and 2 of each message.
        tail: fields 21 and later.
        as_records: whether records are wanted.
        is_first: whether a message is taken whatever the size of its body.
        body_bytes_left: bodies of the other messages.
        records: buffer for records.
        spans: scratch of SPAN_COUNT.
        target: gets the messages.

    Returns:
        the next row; how many bytes of `target` are written; what is left for bodies; why it has stopped.
    """
    to: Number = 0
    at: Number = 0
    read_end = row
    code = DONE
    while row < len(offsets) and row < len(sizes):
        if row == read_end:
            offset, size_bytes = offsets[row], np.int64(0)
            while read_end < len(offsets) and read_end < len(sizes):
                size = np.int64(sizes[read_end])
                if (
                    size < FRAME_SIZE_BYTES_MIN or size > len(records) - size_bytes
                    or offsets[read_end] != offset + size_bytes or offset + size_bytes > end_offset - size
                    or (size_bytes > 0 and size_bytes >= body_bytes_left)
                ):  # fmt: skip
                    break
                size_bytes += size
                read_end += 1
            if offset < file_offset or offset >= end_offset or np.int64(sizes[row]) > end_offset - offset:
                code = BEYOND
                break
            if read_end == row or pread(reading, fd, offset - file_offset, size_bytes, records, 0) != size_bytes:
                code = UNUSUAL
                break
            at = np.int64(0)
        size = np.int64(sizes[row])
        found, body_at, topic_at, properties_at = locate(records, at, at + size, offsets[row])
        if (
            found != size or load_i32(records, at + 36) & _HOSTS_V6
            or load_i32(records, at + 12) != queue_id or load_i64(records, at + 20) != queue_offset
            or not is_bytes(records, topic_at, properties_at - 2 - topic_at, topic)
            or is_doubtful(records, at, at + size, body_at, properties_at)
            or load_i64(records, at + 40) < 0 or load_i64(records, at + 40) > _TIME_MILLIS_MAX
            or load_i64(records, at + 56) < 0 or load_i64(records, at + 56) > _TIME_MILLIS_MAX
        ):  # fmt: skip
            code = UNUSUAL
            break
        property_count: Number = 0
        if not as_records:
            if bits_of(records, properties_at, at + size) > 0x7F and not is_utf8(records, properties_at, at + size):
                code = UNUSUAL
                break
            property_count = _find_properties(records, properties_at, at + size, spans)
            if property_count < 0:
                code = UNUSUAL
                break
        body_size = load_i32(records, body_at - 4)
        if not is_first and body_size > body_bytes_left:
            code = FULL
            break
        size_max = _FIELDS_SIZE_MAX + size
        if not as_records:
            size_max += len(head) + len(tail) + _PROPERTIES_GROWTH * (at + size - properties_at)
        if size_max > len(target) - to:
            code = NO_ROOM
            break
        if as_records:
            to = _put_record(target, to, records, at, size)
        else:
            to = _put_message(
                target, to, size_of_varint(size_max), head, tail, records, at, body_at, spans, property_count
            )
        body_bytes_left -= body_size
        is_first = 0
        at += size
        queue_offset += 1
        row += 1
    return row, to, body_bytes_left, code


def touch() -> None:
    """Compiles it."""
    data = np.zeros(1, dtype=np.uint8)
    data.flags.writeable = False
    encode(
        PREAD_AT, -1, 0, 0, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int32), 0, 0, 0, data, data, data, 0, 1, 0,
        np.zeros(1, dtype=np.uint8), np.zeros(SPAN_COUNT, dtype=np.int64), np.zeros(1, dtype=np.uint8),
    )  # fmt: skip
