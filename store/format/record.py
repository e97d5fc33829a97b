"""Record: one stored message, and its bytes in the log (drawn in `record_layout.py`).

Rules of this file:

- Every length is checked against the size of the record before it is used; no input makes a read outside.
- Decoding checks everything that can be checked: lengths add up, the body has its CRC, the record its `__CRC32#` if it has
  one, and the record is at the offset that it states. RocketMQ itself checks the body only.
- A broker without `enabledAppendPropCRC` copies a message with all properties, an old `__CRC32#` too. In a record with a
  property that only such a copy has, a wrong `__CRC32#` is no damage (ADR 0054).
- `encode_record(decode_record(frame)) == frame` for every record whose topic is UTF-8: properties stay raw bytes.
- Errors differ for an incomplete and a wrong record: at the end of a log the first is a torn write, the second damage.

The append path encodes a record in two steps. `prepare_record` encodes all that is known before a message has its place; many
threads may call it at the same time. `patch_record` writes the three numbers that only the one writer of the log knows.
Together they make the same bytes as `encode_record`, but faster: they build no `Record` and read the body at most twice (for
its CRC, and for the record's CRC if that is on).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from store.errors import InvalidMessageError, RecordCorruptedError
from store.format.host import Host, decode_host, encode_host
from store.format.java_text import decode_java_utf8, encode_java_utf8
from store.format.properties import (
    KEYS,
    PROPERTIES_SIZE_BYTES_MAX,
    TAGS,
    UNIQ_KEY,
    is_stored_again,
    parse_properties,
    split_keys,
)
from store.format.record_layout import (
    BLANK_MAGIC,
    BLANK_SIZE_BYTES,
    CRC_MARKER,
    CRC_PROPERTY_SIZE_BYTES,
    FRAME_SIZE_BYTES_MIN,
    HEADS,
    I16,
    I32,
    I64,
    MAGIC_V1,
    MAGIC_V2,
    OFFSETS,
    QUEUE_OFFSET_AT,
    SIZE_AND_MAGIC,
    STORE_TIMES_AT,
    SYS_FLAG_LOW_BYTE_AT,
    TOPIC_SIZE_BYTES_MAX_V1,
    decode_crc_digits,
    encode_crc_property,
    masked_crc,
    resembles_crc_property,
)
from store.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6

Buffer = bytes | bytearray | memoryview


class IncompleteRecordError(RecordCorruptedError):
    """The bytes end before the record does; the bytes that are there are consistent."""


class RecordHeader(NamedTuple):
    """The part of a record before its body; of a blank only `size_bytes` and `magic` mean anything.

    Attributes:
        size_bytes: of the whole record; of a blank: all bytes that are left in its file.
        magic: MAGIC_V1, MAGIC_V2 or BLANK_MAGIC.
    """

    size_bytes: int
    magic: int
    body_crc: int = 0
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    commit_log_offset: int = 0
    sys_flag: int = 0
    born_time_millis: int = 0
    born_host_bytes: bytes = b""
    store_time_millis: int = 0
    store_host_bytes: bytes = b""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_size_bytes: int = 0

    @property
    def is_blank(self) -> bool:
        """Whether it closes its file."""
        return self.magic == BLANK_MAGIC


def encode_blank(size_bytes: int) -> bytes:
    """The 8 bytes that close a file with `size_bytes` left; the rest of the file stays as it is (zeros)."""
    assert size_bytes >= BLANK_SIZE_BYTES, size_bytes
    return SIZE_AND_MAGIC.pack(size_bytes, BLANK_MAGIC)


def decode_header(buf: Buffer, at: int = 0, commit_log_offset: int | None = None) -> RecordHeader:
    """The numbers before the body, or a blank; checks only size, magic and that the body fits.

    Only the header's own bytes need to be in `buf`.

    Raises:
        IncompleteRecordError: `buf` ends inside the header.
        RecordCorruptedError: no record starts here, or the record states another offset.
    """
    where = commit_log_offset if commit_log_offset is not None else at
    available = len(buf) - at
    if available < BLANK_SIZE_BYTES:
        raise incomplete(where, available, BLANK_SIZE_BYTES)
    size, magic = SIZE_AND_MAGIC.unpack_from(buf, at)
    if magic == BLANK_MAGIC:
        if size < BLANK_SIZE_BYTES:
            raise corrupted(where, f"a blank claims {size} bytes")
        return RecordHeader(size, magic)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise corrupted(where, f"{magic} is not the magic of a record")
    if size < FRAME_SIZE_BYTES_MIN:
        raise corrupted(where, f"a record claims {size} bytes")
    if available <= SYS_FLAG_LOW_BYTE_AT:
        raise incomplete(where, available, size)
    head = HEADS[(buf[at + SYS_FLAG_LOW_BYTE_AT] >> 4) & 3]
    if available < head.size:
        raise incomplete(where, available, size)
    header = RecordHeader._make(head.unpack_from(buf, at))
    if not 0 <= header.body_size_bytes <= size - head.size - 3:
        raise corrupted(where, f"a body of {header.body_size_bytes} bytes does not fit into a record of {size} bytes")
    if commit_log_offset is not None and header.commit_log_offset != commit_log_offset:
        raise corrupted(where, f"the record states commit-log offset {header.commit_log_offset}")
    return header


def locate_topic(frame: memoryview, magic: int, topic_length_at: int) -> tuple[int, int, str]:
    """Where topic and properties start, and an empty text; or two zeros and what is wrong.

    `decode_header` has left at least three bytes behind the body, so the topic's length can be read.
    """
    size = len(frame)
    if magic == MAGIC_V1:
        topic_at, topic_length = topic_length_at + 1, frame[topic_length_at]
        if topic_length > TOPIC_SIZE_BYTES_MAX_V1:
            return 0, 0, f"a V1 record has a topic of {topic_length} bytes"
    else:
        topic_at, topic_length = topic_length_at + 2, I16.unpack_from(frame, topic_length_at)[0]
    properties_at = topic_at + topic_length + 2
    if topic_length < 0 or properties_at > size:
        return 0, 0, f"a topic of {topic_length} bytes does not fit into a record of {size} bytes"
    properties_length = I16.unpack_from(frame, properties_at - 2)[0]
    if properties_length < 0 or properties_at + properties_length != size:
        return 0, 0, f"properties of {properties_length} bytes do not end at the end of a record of {size} bytes"
    return topic_at, properties_at, ""


def locate_properties(data: bytes, at: int = 0) -> tuple[int, bytes]:
    """The size of the body, and the property string, of a whole record that was checked before; `at` is where it begins."""
    head = HEADS[data[at + SYS_FLAG_LOW_BYTE_AT] >> 4 & 3]
    body_at = at + head.size
    (body_size_bytes,) = I32.unpack_from(data, body_at - 4)
    topic_at = body_at + body_size_bytes
    if SIZE_AND_MAGIC.unpack_from(data, at)[1] == MAGIC_V2:
        properties_at = topic_at + 2 + I16.unpack_from(data, topic_at)[0]
    else:
        properties_at = topic_at + 1 + data[topic_at]
    (size_bytes,) = I16.unpack_from(data, properties_at)
    return body_size_bytes, data[properties_at + 2 : properties_at + 2 + size_bytes]


def corrupted(commit_log_offset: int, why: str) -> RecordCorruptedError:
    """The error for a wrong record."""
    return RecordCorruptedError(
        f"The record at commit-log offset {commit_log_offset} is damaged: {why}.", commitLogOffset=commit_log_offset
    )


def incomplete(commit_log_offset: int, available: int, size: int) -> IncompleteRecordError:
    """The error for a record of `size` bytes of which `available` are there."""
    return IncompleteRecordError(
        f"The record at commit-log offset {commit_log_offset} is cut off: {available} of {size} bytes are there.",
        commitLogOffset=commit_log_offset,
        availableBytes=available,
        sizeBytes=size,
    )


_HOST_V6_MASK = BORN_HOST_V6 | STORE_HOST_V6
_TOPIC_SIZE_BYTES_MAX = 32767
_CRC_SLOT = encode_crc_property(0)


class PreparedMessage(NamedTuple):
    """A checked message with its queue, before the log gives it its place.

    Attributes:
        topic: the topic's name.
        queue_id: the queue it goes to.
        body: as it is to be stored.
        properties_bytes: the whole property string without `__CRC32#`.
        born_time_millis: since 1970 UTC.
        born_host: the sender's address.
        store_host: the shard's address.
        flag: the user's, a signed i32.
        sys_flag: without the two host bits, which are set from the hosts.
        reconsume_times: number of failed deliveries.
        prepared_transaction_offset: commit-log offset, 0 without transaction.
        properties_crc: whether `__CRC32#` closes the properties.
    """

    topic: str
    queue_id: int
    body: bytes
    properties_bytes: bytes
    born_time_millis: int
    born_host: Host
    store_host: Host
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    properties_crc: bool = True


def prepare_record(message: PreparedMessage) -> bytearray:
    """The record with zeros for queue offset, commit-log offset, store time and record CRC.

    Raises:
        InvalidMessageError: topic or properties do not fit their length fields; `field` names it.
    """
    (
        topic, queue_id, body, properties, born_time_millis, born_host, store_host,
        flag, sys_flag, reconsume_times, prepared_transaction_offset, properties_crc,
    ) = message  # fmt: skip
    born_host_bytes, store_host_bytes, host_flags = _encode_hosts(born_host, store_host)
    topic_field, magic = _encode_topic(topic)
    sys_flag = sys_flag & ~_HOST_V6_MASK | host_flags
    # Text of a client that resembles a damaged CRC would be taken for one: behind its own CRC it is only text.
    tail = properties[-CRC_PROPERTY_SIZE_BYTES:]
    if properties_crc or (len(tail) == CRC_PROPERTY_SIZE_BYTES and resembles_crc_property(tail)):
        # Without its separator the last property would run into the CRC's name.
        gap = b"\x02" if properties and properties[-1] != 2 else b""
        properties = b"%b%b%b" % (properties, gap, _CRC_SLOT)
    properties_size = len(properties)
    if properties_size > PROPERTIES_SIZE_BYTES_MAX:
        raise _properties_too_long(properties_size)
    body_size = len(body)
    struct_head = HEADS[(sys_flag >> 4) & 3]
    head = struct_head.pack(
        struct_head.size + body_size + len(topic_field) + 2 + properties_size,
        magic,
        masked_crc(body),
        queue_id,
        flag,
        0,
        0,
        sys_flag,
        born_time_millis,
        born_host_bytes,
        0,
        store_host_bytes,
        reconsume_times,
        prepared_transaction_offset,
        body_size,
    )
    return bytearray().join((head, body, topic_field, I16.pack(properties_size), properties))


def encode_head(born_host: Host, store_host: Host) -> bytes:
    """The bytes of a V1 record up to the body, with zeros for everything that differs between messages."""
    born, store, host_flags = _encode_hosts(born_host, store_host)
    head: bytes = HEADS[(host_flags >> 4) & 3].pack(0, MAGIC_V1, 0, 0, 0, 0, 0, host_flags, 0, born, 0, store, 0, 0, 0)
    return head


@lru_cache(maxsize=4096)
def _encode_hosts(born_host: Host, store_host: Host) -> tuple[bytes, bytes, int]:
    """Both hosts as stored, and their bits in sysFlag."""
    born, store = encode_host(born_host), encode_host(store_host)
    return born, store, BORN_HOST_V6 * (len(born) > 8) | STORE_HOST_V6 * (len(store) > 8)


@lru_cache(maxsize=4096)
def _encode_topic(topic_name: str) -> tuple[bytes, int]:
    """The topic with its length before it, and the magic that goes with the size of that length."""
    topic = encode_java_utf8(topic_name)
    if not 0 < len(topic) <= _TOPIC_SIZE_BYTES_MAX:
        raise InvalidMessageError(
            f"The topic takes {len(topic)} bytes, 1 to {_TOPIC_SIZE_BYTES_MAX} can be stored.",
            field="topic",
            sizeBytes=len(topic),
            sizeBytesMax=_TOPIC_SIZE_BYTES_MAX,
        )
    if len(topic) <= TOPIC_SIZE_BYTES_MAX_V1:
        return bytes((len(topic),)) + topic, MAGIC_V1
    return I16.pack(len(topic)) + topic, MAGIC_V2


def patch_record(frame: bytearray, queue_offset: int, commit_log_offset: int, store_time_millis: int) -> None:
    """Writes a prepared record's place and store time, and its CRC if it has room for one. May be repeated."""
    OFFSETS.pack_into(frame, QUEUE_OFFSET_AT, queue_offset, commit_log_offset)
    I64.pack_into(frame, STORE_TIMES_AT[(frame[SYS_FLAG_LOW_BYTE_AT] >> 4) & 3], store_time_millis)
    if frame.endswith(b"\x02") and frame.startswith(CRC_MARKER, len(frame) - CRC_PROPERTY_SIZE_BYTES):
        with memoryview(frame) as view, view[:-CRC_PROPERTY_SIZE_BYTES] as guarded:
            crc = masked_crc(guarded)
        frame[-CRC_PROPERTY_SIZE_BYTES:] = encode_crc_property(crc)


def add_property(frame: bytearray, entry: bytes, tail_size_bytes: int | None = None) -> None:
    """Puts a property into a prepared record that has some, behind the others.

    Args:
        frame: see `prepare_record`.
        entry: name, U+0001, value, U+0002.
        tail_size_bytes: bytes of the properties that stay the last; None: those of `__CRC32#`, if the record has it.

    Raises:
        InvalidMessageError: the properties do not fit their length field; the record is as it was.
    """
    if tail_size_bytes is None:
        has_crc = frame.endswith(b"\x02") and frame.startswith(CRC_MARKER, len(frame) - CRC_PROPERTY_SIZE_BYTES)
        tail_size_bytes = CRC_PROPERTY_SIZE_BYTES if has_crc else 0
    size, magic = SIZE_AND_MAGIC.unpack_from(frame)
    topic_length_at = HEADS[(frame[SYS_FLAG_LOW_BYTE_AT] >> 4) & 3].size
    topic_length_at += I32.unpack_from(frame, topic_length_at - 4)[0]
    with memoryview(frame) as view:
        _, properties_at, why = locate_topic(view, magic, topic_length_at)
    assert not why, why
    at = size - tail_size_bytes
    if at > properties_at and frame[at - 1] != 2:
        entry = b"\x02" + entry
    properties_size = size - properties_at + len(entry)
    if properties_size > PROPERTIES_SIZE_BYTES_MAX:
        raise _properties_too_long(properties_size)
    frame[at:at] = entry
    SIZE_AND_MAGIC.pack_into(frame, 0, size + len(entry), magic)
    I16.pack_into(frame, properties_at - 2, properties_size)


def _properties_too_long(size_bytes: int) -> InvalidMessageError:
    return InvalidMessageError(
        f"Properties take {size_bytes} bytes, at most {PROPERTIES_SIZE_BYTES_MAX} can be stored.",
        field="properties",
        sizeBytes=size_bytes,
        sizeBytesMax=PROPERTIES_SIZE_BYTES_MAX,
    )


__all__ = [
    "BLANK_MAGIC", "BLANK_SIZE_BYTES", "FRAME_SIZE_BYTES_MIN", "MAGIC_V1", "MAGIC_V2", "Buffer", "Host",
    "IncompleteRecordError", "PreparedMessage", "Record", "RecordHeader", "add_property", "decode_header",
    "decode_record", "encode_blank", "encode_record", "patch_record", "prepare_record",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    """One message as stored. Times are milliseconds since 1970 UTC; sizes and commit-log offsets are bytes.

    `body` may be compressed (`sys_flag`), `properties_bytes` is the raw property string with its `__CRC32#`, and
    `body_crc` is the stored one (a CRC-32 with the top bit cleared, not checked for an empty body). `has_copied_crc` says that
    its `__CRC32#` is that of the record from which a broker copied this one; only decoding with all checks finds out.
    """

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_size_bytes: int
    flag: int
    sys_flag: int
    born_time_millis: int
    born_host: Host
    store_time_millis: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    body: bytes = field(repr=False)
    properties_bytes: bytes
    magic: int = MAGIC_V1
    has_copied_crc: bool = field(default=False, compare=False)
    _parsed: list[Mapping[str, str]] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def properties(self) -> Mapping[str, str]:
        """Every stored property as RocketMQ parses it; parsed once, read-only."""
        if not self._parsed:
            self._parsed.append(MappingProxyType(parse_properties(self.properties_bytes)))
        return self._parsed[0]

    @property
    def tags(self) -> str:
        """TAGS, or empty."""
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> tuple[str, ...]:
        """KEYS, split."""
        return split_keys(self.properties.get(KEYS, ""))

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY, or empty."""
        return self.properties.get(UNIQ_KEY, "")

    @property
    def next_offset(self) -> int:
        """The first byte behind the record."""
        return self.commit_log_offset + self.store_size_bytes

    @property
    def is_guarded(self) -> bool:
        """Whether its own `__CRC32#` ends the properties, so that decoding has checked the whole record with it."""
        return not self.has_copied_crc and self.properties_bytes[-CRC_PROPERTY_SIZE_BYTES:].startswith(CRC_MARKER)

    @property
    def ends_in_zero(self) -> bool:
        """Whether the last stored byte is NUL: no client writes that, but a torn write in a zeroed file leaves it.

        In a record without `__CRC32#` it is the only sign of a torn tail. RocketMQ does not check it.
        """
        return self.properties_bytes.endswith(b"\x00")


def encode_record(record: Record) -> bytes:
    """The stored bytes, with magic, body CRC and properties as given; the size is computed.

    Raises:
        InvalidMessageError: hosts contradict `sys_flag`, or topic, properties or a number do not fit their field.
    """
    topic = encode_java_utf8(record.topic)
    born_host, store_host = encode_host(record.born_host), encode_host(record.store_host)
    head = HEADS[(record.sys_flag >> 4) & 3]
    topic_length = _encode_topic_length(record.magic, len(topic))
    for name, host, has_flag in (("born_host", born_host, 0x10), ("store_host", store_host, 0x20)):
        if (len(host) > 8) != bool(record.sys_flag & has_flag):
            raise InvalidMessageError(f"{name} contradicts sys_flag {record.sys_flag:#x}.", field=name)
    if len(record.properties_bytes) > PROPERTIES_SIZE_BYTES_MAX:
        raise InvalidMessageError(
            f"Properties take {len(record.properties_bytes)} of at most {PROPERTIES_SIZE_BYTES_MAX} bytes.",
            field="properties",
        )
    size = head.size + len(record.body) + len(topic_length) + len(topic) + 2 + len(record.properties_bytes)
    return b"".join(
        (
            head.pack(
                size,
                record.magic,
                record.body_crc,
                record.queue_id,
                record.flag,
                record.queue_offset,
                record.commit_log_offset,
                record.sys_flag,
                record.born_time_millis,
                born_host,
                record.store_time_millis,
                store_host,
                record.reconsume_times,
                record.prepared_transaction_offset,
                len(record.body),
            ),
            record.body,
            topic_length,
            topic,
            I16.pack(len(record.properties_bytes)),
            record.properties_bytes,
        )
    )


def _encode_topic_length(magic: int, size_bytes: int) -> bytes:
    assert magic in (MAGIC_V1, MAGIC_V2), magic
    size_bytes_max = TOPIC_SIZE_BYTES_MAX_V1 if magic == MAGIC_V1 else 32767
    if size_bytes > size_bytes_max:
        raise InvalidMessageError(f"The topic takes {size_bytes} of at most {size_bytes_max} bytes.", field="topic")
    return bytes((size_bytes,)) if magic == MAGIC_V1 else I16.pack(size_bytes)


def decode_record(
    buf: Buffer,
    *,
    at: int = 0,
    commit_log_offset: int | None = None,
    check_body_crc: bool = True,
    check_properties_crc: bool = True,
) -> Record:
    """The record that starts at byte `at`; bytes behind it are ignored.

    Args:
        buf: any bytes of the log.
        at: index in `buf`.
        commit_log_offset: the record's place in the log, compared with the stored one; None: not compared.
        check_body_crc: compare the body with its CRC; an empty body has none.
        check_properties_crc: compare `__CRC32#` with the record when the properties end with it.

    Raises:
        IncompleteRecordError: `buf` ends before the record.
        RecordCorruptedError: the record contradicts itself, or is a blank.
    """
    header = decode_header(buf, at, commit_log_offset)
    where = commit_log_offset if commit_log_offset is not None else header.commit_log_offset
    if header.is_blank:
        raise corrupted(
            commit_log_offset if commit_log_offset is not None else at,
            "a blank closes the file here; it is not a record",
        )
    if len(buf) - at < header.size_bytes:
        raise incomplete(where, len(buf) - at, header.size_bytes)
    with memoryview(buf)[at : at + header.size_bytes] as frame:
        body_at = HEADS[(header.sys_flag >> 4) & 3].size
        topic_at, properties_at, why = locate_topic(frame, header.magic, body_at + header.body_size_bytes)
        if why:
            raise corrupted(where, why)
        body = bytes(frame[body_at : body_at + header.body_size_bytes])
        if check_body_crc and body and masked_crc(body) != header.body_crc:
            raise corrupted(where, f"the body's CRC is {masked_crc(body)}, not {header.body_crc}")
        has_copied_crc = check_properties_crc and _has_copied_crc(frame, topic_at, properties_at, where)
        return Record(
            topic=decode_java_utf8(frame[topic_at : properties_at - 2]),
            queue_id=header.queue_id,
            queue_offset=header.queue_offset,
            commit_log_offset=header.commit_log_offset,
            store_size_bytes=header.size_bytes,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_time_millis=header.born_time_millis,
            born_host=decode_host(header.born_host_bytes),
            store_time_millis=header.store_time_millis,
            store_host=decode_host(header.store_host_bytes),
            reconsume_times=header.reconsume_times,
            prepared_transaction_offset=header.prepared_transaction_offset,
            body_crc=header.body_crc,
            body=body,
            properties_bytes=bytes(frame[properties_at:]),
            magic=header.magic,
            has_copied_crc=has_copied_crc,
        )


def _has_copied_crc(frame: memoryview, topic_at: int, properties_at: int, where: int) -> bool:
    """Whether the `__CRC32#` at the end is that of another record; False when it is right, and without one.

    Raises:
        RecordCorruptedError: it is wrong, and nothing says that the record is a copy.
    """
    if len(frame) - properties_at < CRC_PROPERTY_SIZE_BYTES:
        return False
    tail = bytes(frame[-CRC_PROPERTY_SIZE_BYTES:])
    if tail.startswith(CRC_MARKER):
        crc = masked_crc(frame[:-CRC_PROPERTY_SIZE_BYTES])
        stated = decode_crc_digits(tail[len(CRC_MARKER) : -1])
        if stated is not None and stated != crc and tail[-1] == 2:
            topic = decode_java_utf8(frame[topic_at : properties_at - 2])
            if is_stored_again(frame[properties_at:], topic):
                return True
        if stated != crc or tail[-1] != 2:
            raise corrupted(where, f"the record's CRC is {crc}, its __CRC32# says {tail!r}")
    elif resembles_crc_property(tail):
        raise corrupted(where, f"the property __CRC32# is damaged and reads {tail!r}")
    return False
