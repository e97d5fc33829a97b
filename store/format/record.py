"""Record: one stored message, and its bytes in the log (drawn in `record_layout.py`).

Rules of this file:

- Every length is checked against the size of the record before it is used; no input makes a read outside.
- Decoding checks everything that can be checked: lengths add up, the body has its CRC, the record its `__CRC32#` if it has
  one, and the record is at the offset that it states. RocketMQ itself checks the body only.
- A broker without `enabledAppendPropCRC` copies a message with all properties, an old `__CRC32#` too. In a record with a
  property that only such a copy has, a wrong `__CRC32#` is no damage (ADR 0054).
- `encode_record(decode_record(frame)) == frame` for every record whose topic is UTF-8: properties stay raw bytes.
- Errors differ for an incomplete and a wrong record: at the end of a log the first is a torn write, the second damage.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from store.errors import InvalidMessageError
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
from store.format.record_frame import PreparedMessage, patch_record, prepare_record
from store.format.record_header import (
    Buffer,
    IncompleteRecordError,
    RecordHeader,
    corrupted,
    decode_header,
    encode_blank,
    incomplete,
    locate_topic,
)
from store.format.record_layout import (
    BLANK_MAGIC,
    BLANK_SIZE_BYTES,
    CRC_MARKER,
    CRC_PROPERTY_SIZE_BYTES,
    FRAME_SIZE_BYTES_MIN,
    HEADS,
    I16,
    MAGIC_V1,
    MAGIC_V2,
    TOPIC_SIZE_BYTES_MAX_V1,
    decode_crc_digits,
    masked_crc,
    resembles_crc_property,
)

__all__ = [
    "BLANK_MAGIC", "BLANK_SIZE_BYTES", "FRAME_SIZE_BYTES_MIN", "MAGIC_V1", "MAGIC_V2", "Buffer", "Host",
    "IncompleteRecordError", "PreparedMessage", "Record", "RecordHeader", "decode_header",
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
