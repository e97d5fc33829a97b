# cython: boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Stored records as the bytes of `StoredMessage`s, or as they are, read and checked in a log file without an object for each.

`encode` takes ordinary records and stops at the first that is not: the plain path (`convert.stored_message`) decides what that
one is, and what its answer or error is. `encode_one` takes a single record, of any queue. Not ordinary are: an IPv6 host;
properties that are not UTF-8; a property name that comes twice, or more than PROPERTY_COUNT_MAX properties; a time that is
outside the years 1970 to 9999; a record that is larger than the buffer, is not in order, has a wrong CRC, or is not the one of
its position of the queue.

The fields are those of `reput.message.v1.StoredMessage`; a test compares each message with the plain one. Records as they are
need no properties that are ordinary: nothing of them is rewritten.
"""

import cython

from store.compiled.bytes_part import (
    LOW_32,
    Bytes,
    bits_of,
    copy,
    find_byte,
    hex_digits,
    is_bytes,
    is_same,
    is_utf8,
    load_i32,
    load_i64,
    put,
    put_number,
    put_varint,
    read_file,
    reading,
    size_of_varint,
    writing,
)
from store.format.frame_part import BODY_CRC_AT, Frame, is_doubtful, locate
from store.format.properties import KEYS, TAGS, UNIQ_KEY
from store.format.record_layout import FRAME_SIZE_BYTES_MIN

# Why `encode` has stopped: no row is left; the bodies have as many bytes as are wanted; the target has no room; the row lies
# outside the part of the file that may be read; the row is not ordinary.
DONE, FULL, NO_ROOM, BEYOND, UNUSUAL = range(5)
# Most records are smaller: one read.
FIRST_READ_BYTES = 8192
# Each name is compared with those before it.
PROPERTY_COUNT_MAX = 64
SPAN_COUNT = 4 * PROPERTY_COUNT_MAX

# The same and others as numbers of C.
_DONE = cython.declare(cython.int, DONE)
_FULL = cython.declare(cython.int, FULL)
_NO_ROOM = cython.declare(cython.int, NO_ROOM)
_BEYOND = cython.declare(cython.int, BEYOND)
_UNUSUAL = cython.declare(cython.int, UNUSUAL)
_PROPERTY_COUNT_MAX = cython.declare(cython.Py_ssize_t, PROPERTY_COUNT_MAX)
_SIZE_MIN = cython.declare(cython.longlong, FRAME_SIZE_BYTES_MIN)
_FIRST_READ = cython.declare(cython.longlong, FIRST_READ_BYTES)
_HOSTS_V6 = cython.declare(cython.longlong, 0x30)
_TIME_MILLIS_MAX = cython.declare(cython.longlong, 253_402_300_799_999)
# A message without head, tail, body and properties takes fewer bytes; properties take less than 8 times their stored bytes.
_FIELDS_SIZE_MAX = cython.declare(cython.longlong, 256)
_PROPERTIES_GROWTH = cython.declare(cython.longlong, 8)
_HOST_SIZE_MAX = cython.declare(cython.Py_ssize_t, 27)  # 255.255.255.255:-2147483648

# Fields of the answer, then of StoredMessage, of an entry of its properties and of Timestamp: times 8 plus the value's kind. A
# number of 16 or larger takes two bytes, of which the second is 1.
_MESSAGES = cython.declare(cython.int, 0x0A)
_RECORDS = cython.declare(cython.int, 0x42)
_TOPIC = cython.declare(cython.int, 0x0A)
_QUEUE_ID = cython.declare(cython.int, 0x10)
_QUEUE_OFFSET = cython.declare(cython.int, 0x18)
_COMMIT_LOG_OFFSET = cython.declare(cython.int, 0x20)
_STORE_SIZE = cython.declare(cython.int, 0x28)
_FLAG = cython.declare(cython.int, 0x30)
_SYS_FLAG = cython.declare(cython.int, 0x38)
_BORN_TIME = cython.declare(cython.int, 0x42)
_BORN_HOST = cython.declare(cython.int, 0x4A)
_STORE_TIME = cython.declare(cython.int, 0x52)
_STORE_HOST = cython.declare(cython.int, 0x5A)
_RECONSUME_TIMES = cython.declare(cython.int, 0x60)
_PREPARED_OFFSET = cython.declare(cython.int, 0x68)
_BODY_CRC = cython.declare(cython.int, 0x70)
_BODY = cython.declare(cython.int, 0x7A)
_PROPERTIES = cython.declare(cython.int, 0x82)
_TAGS = cython.declare(cython.int, 0x8A)
_KEYS = cython.declare(cython.int, 0x92)
_UNIQUE_KEY = cython.declare(cython.int, 0x9A)
_OFFSET_MSG_ID = cython.declare(cython.int, 0xA2)
_ENTRY_NAME = cython.declare(cython.int, 0x0A)
_ENTRY_VALUE = cython.declare(cython.int, 0x12)
_SECONDS = cython.declare(cython.int, 0x08)
_NANOS = cython.declare(cython.int, 0x10)

_TAGS_NAME = cython.declare(Bytes, reading(TAGS.encode()))
_KEYS_NAME = cython.declare(Bytes, reading(KEYS.encode()))
_UNIQUE_KEY_NAME = cython.declare(Bytes, reading(UNIQ_KEY.encode()))


@cython.final
@cython.cclass
class _Host:
    """The text of the host that was written last.

    Attributes:
        stored: its 8 bytes, as a number.
        text: a buffer that begins with it.
        size: of the text; 0: none was written.
    """

    stored = cython.declare(cython.longlong)
    text = cython.declare(Bytes)
    size = cython.declare(cython.Py_ssize_t)

    def __init__(self) -> None:
        self.stored, self.size = 0, 0
        self.text = writing(bytearray(_HOST_SIZE_MAX))


@cython.final
@cython.cclass
class Buffers:
    """What a run needs for itself; can be used for one run after the other.

    Args:
        records: for records, as many as fit.
        spans: scratch of SPAN_COUNT: begin and end of the name and of the value of each property.
        target: gets the messages.
    """

    records = cython.declare(Bytes)
    target = cython.declare(Bytes)
    spans = cython.declare(cython.longlong[::1])
    frame = cython.declare(Frame)
    born_host = cython.declare(_Host)
    store_host = cython.declare(_Host)

    def __init__(self, records: cython.uchar[::1], spans: cython.longlong[::1], target: cython.uchar[::1]) -> None:
        if len(spans) < SPAN_COUNT:
            raise ValueError("the scratch for properties is too small")
        self.records, self.target, self.frame = writing(records), writing(target), Frame()
        self.spans = spans if cython.compiled else memoryview(spans)
        self.born_host, self.store_host = _Host(), _Host()


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(end=cython.Py_ssize_t)
def _put_time(target: Bytes, at: cython.Py_ssize_t, tag: cython.int, time_millis: cython.longlong) -> cython.Py_ssize_t:
    """Writes a Timestamp."""
    end = put_number(target, at + 2, _SECONDS, time_millis // 1000)
    end = put_number(target, end, _NANOS, time_millis % 1000 * 1_000_000)
    target.room[at] = tag
    target.room[at + 1] = end - at - 2
    return end


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(end=cython.Py_ssize_t, place=cython.Py_ssize_t, rest=cython.longlong)
def _put_decimal(target: Bytes, at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    if value < 0:
        target.room[at] = 0x2D
        at += 1
        value = -value
    end = at + 1
    rest = value
    while rest > 9:
        rest //= 10
        end += 1
    for place in range(end - 1, at - 1, -1):
        target.room[place] = 0x30 + value % 10
        value //= 10
    return end


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(end=cython.Py_ssize_t, place=cython.Py_ssize_t)
def _make_host(host: _Host, records: Bytes, host_at: cython.Py_ssize_t) -> cython.int:
    """Notes an IPv4 host and its text, `IP:port`."""
    end = 0
    for place in range(4):
        end = _put_decimal(host.text, end, records.data[host_at + place])
        host.text.room[end] = 0x2E if place < 3 else 0x3A
        end += 1
    host.size = _put_decimal(host.text, end, load_i32(records, host_at + 4))
    host.stored = load_i64(records, host_at)
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def _put_host(
    target: Bytes, at: cython.Py_ssize_t, tag: cython.int, records: Bytes, host_at: cython.Py_ssize_t, host: _Host
) -> cython.Py_ssize_t:
    """Writes an IPv4 host as `IP:port`; most are that of the record before."""
    if host.size == 0 or host.stored != load_i64(records, host_at):
        _make_host(host, records, host_at)
    target.room[at] = tag
    target.room[at + 1] = host.size
    return copy(host.text, 0, host.size, target, at + 2)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(to=cython.Py_ssize_t)
def _put_text(
    target: Bytes,
    at: cython.Py_ssize_t,
    tag: cython.int,
    records: Bytes,
    begin: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes a field of bytes whose number is 16 or larger."""
    target.room[at] = tag
    target.room[at + 1] = 1
    to = put_varint(target, at + 2, end - begin)
    return copy(records, begin, end, target, to)


@cython.cfunc
@cython.nogil
@cython.exceptval(-2)
@cython.locals(
    count=cython.Py_ssize_t, name_at=cython.Py_ssize_t, name_end=cython.Py_ssize_t, size=cython.Py_ssize_t,
    place=cython.Py_ssize_t,
)  # fmt: skip
def _find_properties(
    records: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, spans: cython.longlong[::1]
) -> cython.Py_ssize_t:
    """Notes begin and end of names and values, as `store/format/properties.py` reads them.

    Returns:
        How many properties there are; -1 when a name comes twice or there are too many.
    """
    count = 0
    while at < end:
        name_at = at
        at = find_byte(records, name_at, end, 0x02)
        name_end = find_byte(records, name_at, at, 0x01)
        size = name_end - name_at
        if size > 0 and name_end + 1 < at:
            if count >= _PROPERTY_COUNT_MAX:
                return -1
            for place in range(count):
                if spans[4 * place + 1] - spans[4 * place] == size and is_same(
                    records, spans[4 * place], name_at, size
                ):
                    return -1
            spans[4 * count] = name_at
            spans[4 * count + 1] = name_end
            spans[4 * count + 2] = name_end + 1
            spans[4 * count + 3] = at
            count += 1
        at += 1
    return count


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(
    tags=cython.Py_ssize_t, keys=cython.Py_ssize_t, unique_key=cython.Py_ssize_t, place=cython.Py_ssize_t,
    name_at=cython.Py_ssize_t, value_at=cython.Py_ssize_t, name_size=cython.Py_ssize_t, value_size=cython.Py_ssize_t,
    at=cython.Py_ssize_t, end=cython.Py_ssize_t, key_end=cython.Py_ssize_t,
)  # fmt: skip
def _put_properties(
    target: Bytes, to: cython.Py_ssize_t, records: Bytes, spans: cython.longlong[::1], count: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Writes the properties, and copies of those that have fields of their own."""
    tags = keys = unique_key = -1
    for place in range(0, 4 * count, 4):
        name_at = spans[place]
        value_at = spans[place + 2]
        name_size = spans[place + 1] - name_at
        value_size = spans[place + 3] - value_at
        if is_bytes(records, name_at, name_size, _TAGS_NAME):
            tags = place
        elif is_bytes(records, name_at, name_size, _KEYS_NAME):
            keys = place
        elif is_bytes(records, name_at, name_size, _UNIQUE_KEY_NAME):
            unique_key = place
        target.room[to] = _PROPERTIES
        target.room[to + 1] = 1
        to = put_varint(
            target, to + 2, 2 + size_of_varint(name_size) + name_size + size_of_varint(value_size) + value_size
        )
        to = put_number(target, to, _ENTRY_NAME, name_size)
        to = copy(records, name_at, name_at + name_size, target, to)
        to = put_number(target, to, _ENTRY_VALUE, value_size)
        to = copy(records, value_at, value_at + value_size, target, to)
    if tags >= 0:
        to = _put_text(target, to, _TAGS, records, spans[tags + 2], spans[tags + 3])
    if keys >= 0:
        at = spans[keys + 2]
        end = spans[keys + 3]
        while at < end:
            key_end = find_byte(records, at, end, 0x20)
            if key_end > at:
                to = _put_text(target, to, _KEYS, records, at, key_end)
            at = key_end + 1
    if unique_key >= 0:
        to = _put_text(target, to, _UNIQUE_KEY, records, spans[unique_key + 2], spans[unique_key + 3])
    return to


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(body_size=cython.longlong)
def _put_fields(
    buffers: Buffers,
    target: Bytes,
    end: cython.Py_ssize_t,
    tail: Bytes,
    records: Bytes,
    at: cython.Py_ssize_t,
    body_at: cython.Py_ssize_t,
    spans: cython.longlong[::1],
    property_count: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes the fields of a message behind its topic and queue."""
    body_size = load_i32(records, body_at - 4)
    end = put_number(target, end, _QUEUE_OFFSET, load_i64(records, at + 20))
    end = put_number(target, end, _COMMIT_LOG_OFFSET, load_i64(records, at + 28))
    end = put_number(target, end, _STORE_SIZE, load_i32(records, at))
    end = put_number(target, end, _FLAG, load_i32(records, at + 16))
    end = put_number(target, end, _SYS_FLAG, load_i32(records, at + 36))
    end = _put_time(target, end, _BORN_TIME, load_i64(records, at + 40))
    end = _put_host(target, end, _BORN_HOST, records, at + 48, buffers.born_host)
    end = _put_time(target, end, _STORE_TIME, load_i64(records, at + 56))
    end = _put_host(target, end, _STORE_HOST, records, at + 64, buffers.store_host)
    end = put_number(target, end, _RECONSUME_TIMES, load_i32(records, at + 72))
    end = put_number(target, end, _PREPARED_OFFSET, load_i64(records, at + 76))
    end = put_number(target, end, _BODY_CRC, load_i32(records, at + BODY_CRC_AT) & LOW_32)
    end = put_number(target, end, _BODY, body_size)
    end = copy(records, body_at, body_at + body_size, target, end)
    end = _put_properties(target, end, records, spans, property_count)
    target.room[end] = _OFFSET_MSG_ID
    target.room[end + 1] = 1
    target.room[end + 2] = 32
    put(target, end + 3, hex_digits(load_i32(records, at + 64)), 8)
    put(target, end + 11, hex_digits(load_i32(records, at + 68)), 8)
    put(target, end + 19, hex_digits(load_i32(records, at + 28)), 8)
    put(target, end + 27, hex_digits(load_i32(records, at + 32)), 8)
    return copy(tail, 0, len(tail.data), target, end + 35)


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(begin=cython.Py_ssize_t, end=cython.Py_ssize_t, content_at=cython.Py_ssize_t)
def _put_message(
    buffers: Buffers,
    target: Bytes,
    to: cython.Py_ssize_t,
    length_size: cython.Py_ssize_t,
    head: Bytes,
    tail: Bytes,
    records: Bytes,
    at: cython.Py_ssize_t,
    body_at: cython.Py_ssize_t,
    spans: cython.longlong[::1],
    property_count: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes a message with its tag and length; `length_size` bytes are kept for the length, it may take fewer."""
    begin = to + 1 + length_size
    end = copy(head, 0, len(head.data), target, begin)
    end = _put_fields(buffers, target, end, tail, records, at, body_at, spans, property_count)
    target.room[to] = _MESSAGES
    content_at = put_varint(target, to + 1, end - begin)
    return end if content_at == begin else copy(target, begin, end, target, content_at)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def _has_plain_times(records: Bytes, at: cython.Py_ssize_t) -> cython.int:
    """Whether born time and store time of a record with IPv4 hosts are of the years 1970 to 9999."""
    return 0 <= load_i64(records, at + 40) <= _TIME_MILLIS_MAX and 0 <= load_i64(records, at + 56) <= _TIME_MILLIS_MAX


@cython.locals(
    records=Bytes, target=Bytes, spans=cython.longlong[::1], frame=Frame, wanted=Bytes, first=Bytes, last=Bytes,
    to=cython.Py_ssize_t, at=cython.Py_ssize_t, read_end=cython.Py_ssize_t, code=cython.int, row_count=cython.Py_ssize_t,
    offset=cython.longlong, size_bytes=cython.longlong, size=cython.longlong, property_count=cython.Py_ssize_t,
    body_size=cython.longlong, size_max=cython.longlong,
)  # fmt: skip
def encode(
    buffers: Buffers,
    fd: cython.int,
    file_offset: cython.longlong,
    end_offset: cython.longlong,
    offsets: cython.const[cython.longlong][::1],
    sizes: cython.const[cython.int][::1],
    row: cython.Py_ssize_t,
    queue_offset: cython.longlong,
    queue_id: cython.longlong,
    topic: bytes,
    head: bytes,
    tail: bytes,
    as_records: cython.bint,
    is_first: cython.bint,
    body_bytes_left: cython.longlong,
) -> tuple[int, int, int, int]:
    """Writes the messages of consecutive units of a queue, each as field 1 of an answer; stops before one that it cannot take.

    With `as_records` it writes their records, each as field 8.

    Args:
        buffers: its target gets the messages.
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

    Returns:
        The next row; how many bytes of the target are written; what is left for bodies; why it has stopped.
    """
    if not cython.compiled:
        offsets, sizes = memoryview(offsets), memoryview(sizes)
    records, target, spans, frame = buffers.records, buffers.target, buffers.spans, buffers.frame
    wanted, first, last = reading(topic), reading(head), reading(tail)
    row_count = min(offsets.shape[0], sizes.shape[0])
    to = at = 0
    read_end = row
    code = _DONE
    with cython.nogil:
        while row < row_count:
            if row == read_end:
                offset = offsets[row]
                size_bytes = 0
                while read_end < row_count:
                    size = sizes[read_end]
                    if (
                        size < _SIZE_MIN or size > records.data.shape[0] - size_bytes
                        or offsets[read_end] != offset + size_bytes or offset + size_bytes > end_offset - size
                        or (size_bytes > 0 and size_bytes >= body_bytes_left)
                    ):  # fmt: skip
                        break
                    size_bytes += size
                    read_end += 1
                if offset < file_offset or offset >= end_offset or sizes[row] > end_offset - offset:
                    code = _BEYOND
                    break
                if read_end == row or read_file(fd, offset - file_offset, size_bytes, records, 0) != size_bytes:
                    code = _UNUSUAL
                    break
                at = 0
            size = sizes[row]
            if (
                not locate(records, at, at + size, offsets[row], frame) or frame.size != size
                or load_i32(records, at + 36) & _HOSTS_V6 or not _has_plain_times(records, at)
                or load_i32(records, at + 12) != queue_id or load_i64(records, at + 20) != queue_offset
                or not is_bytes(records, frame.topic_at, frame.properties_at - 2 - frame.topic_at, wanted)
                or is_doubtful(records, at, at + size, frame.body_at, frame.properties_at)
            ):  # fmt: skip
                code = _UNUSUAL
                break
            property_count = 0
            if not as_records:
                if bits_of(records, frame.properties_at, at + size) > 0x7F and not is_utf8(
                    records, frame.properties_at, at + size
                ):
                    code = _UNUSUAL
                    break
                property_count = _find_properties(records, frame.properties_at, at + size, spans)
                if property_count < 0:
                    code = _UNUSUAL
                    break
            body_size = load_i32(records, frame.body_at - 4)
            if not is_first and body_size > body_bytes_left:
                code = _FULL
                break
            size_max = _FIELDS_SIZE_MAX + size
            if not as_records:
                size_max += len(first.data) + len(last.data) + _PROPERTIES_GROWTH * (at + size - frame.properties_at)
            if size_max > target.room.shape[0] - to:
                code = _NO_ROOM
                break
            if as_records:
                to = put_number(target, to, _RECORDS, size)
                to = copy(records, at, at + size, target, to)
            else:
                to = _put_message(
                    buffers,
                    target,
                    to,
                    size_of_varint(size_max),
                    first,
                    last,
                    records,
                    at,
                    frame.body_at,
                    spans,
                    property_count,
                )
            body_bytes_left -= body_size
            is_first = False
            at += size
            queue_offset += 1
            row += 1
    return row, to, body_bytes_left, code


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(
    size=cython.longlong, read_size=cython.longlong, topic_size=cython.longlong, topic_end=cython.longlong,
    property_count=cython.Py_ssize_t, to=cython.Py_ssize_t,
)  # fmt: skip
def _put_one(
    buffers: Buffers,
    records: Bytes,
    target: Bytes,
    spans: cython.longlong[::1],
    frame: Frame,
    fd: cython.int,
    at_in_file: cython.longlong,
    size_max: cython.longlong,
    commit_log_offset: cython.longlong,
    tail: Bytes,
) -> cython.Py_ssize_t:
    """Reads the record at that byte of the file, at most so large, and writes its message; see `encode_one`."""
    size_max = min(size_max, records.data.shape[0])
    read_size = min(size_max, _FIRST_READ)
    if read_size < _SIZE_MIN or read_file(fd, at_in_file, read_size, records, 0) != read_size:
        return 0
    size = load_i32(records, 0)
    if (
        size < _SIZE_MIN
        or size > size_max
        or (size > read_size and read_file(fd, at_in_file, size, records, 0) != size)
    ):
        return 0
    if not locate(records, 0, size, commit_log_offset, frame):
        return 0
    topic_end = frame.properties_at - 2
    topic_size = topic_end - frame.topic_at
    if (
        topic_size == 0 or load_i32(records, 36) & _HOSTS_V6 or not _has_plain_times(records, 0)
        or is_doubtful(records, 0, size, frame.body_at, frame.properties_at)
        or (bits_of(records, frame.topic_at, size) > 0x7F and not (
            is_utf8(records, frame.topic_at, topic_end) and is_utf8(records, frame.properties_at, size)
        ))
    ):  # fmt: skip
        return 0
    property_count = _find_properties(records, frame.properties_at, size, spans)
    if (
        property_count < 0
        or _FIELDS_SIZE_MAX + size + len(tail.data) + _PROPERTIES_GROWTH * (size - frame.properties_at)
        > target.room.shape[0]
    ):
        return 0
    to = put_number(target, 0, _TOPIC, topic_size)
    to = copy(records, frame.topic_at, topic_end, target, to)
    to = put_number(target, to, _QUEUE_ID, load_i32(records, 12))
    return _put_fields(buffers, target, to, tail, records, 0, frame.body_at, spans, property_count)


@cython.locals(
    records=Bytes, target=Bytes, spans=cython.longlong[::1], frame=Frame, last=Bytes, size_bytes=cython.Py_ssize_t,
)  # fmt: skip
def encode_one(
    buffers: Buffers,
    fd: cython.int,
    file_offset: cython.longlong,
    end_offset: cython.longlong,
    commit_log_offset: cython.longlong,
    tail: bytes,
) -> int:
    """Writes the message of one record, without a tag and length before it.

    Args:
        buffers: its target gets the message.
        fd: of the log file.
        file_offset: commit-log offset of its first byte.
        end_offset: nothing is read from this commit-log offset on.
        commit_log_offset: where the record starts.
        tail: fields 21 and later.

    Returns:
        How many bytes of the target are written; 0: no ordinary record starts there.
    """
    records, target, spans, frame = buffers.records, buffers.target, buffers.spans, buffers.frame
    last = reading(tail)
    with cython.nogil:
        size_bytes = _put_one(
            buffers,
            records,
            target,
            spans,
            frame,
            fd,
            commit_log_offset - file_offset,
            end_offset - commit_log_offset,
            commit_log_offset,
            last,
        )
    return size_bytes  # noqa: RET504 - an object cannot be made in the block above
