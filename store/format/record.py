"""Record: one stored message, and its frame in the log (drawn in `record_layout.py`).

Rules of this file:

- Every length is checked against the frame before it is used; no input makes it read outside.
- A record that is decoded is right in all that can be proven: lengths add up, the body has its CRC, the frame its
  `__CRC32#` if it carries one, and it stands where it says. RocketMQ itself checks the body only.
- `encode_record(decode_record(frame)) == frame` for every frame whose topic is UTF-8: properties stay raw bytes.
- An incomplete frame is told from a wrong one: at the end of a log the first is a torn write, the second damage.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from re import compile as compile_pattern
from types import MappingProxyType
from typing import NamedTuple

from store.dispatch import DispatchRequest
from store.errors import InvalidMessageError, RecordCorruptedError
from store.format.host import Host, decode_host, encode_host
from store.format.java_hash import SCHEDULE_TOPIC, tags_code
from store.format.java_text import decode_java_utf8, encode_java_utf8
from store.format.properties import KEYS, TAGS, UNIQ_KEY, parse_properties, split_keys
from store.format.record_frame import PreparedMessage, patch_record, prepare_record
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
    SIZE_AND_MAGIC,
    SYS_FLAG_LOW_BYTE_AT,
    TOPIC_SIZE_BYTES_MAX_V1,
    decode_crc_digits,
    masked_crc,
)

__all__ = [
    "BLANK_MAGIC", "BLANK_SIZE_BYTES", "FRAME_SIZE_BYTES_MIN", "MAGIC_V1", "MAGIC_V2", "Host", "IncompleteRecordError",
    "PreparedMessage", "Record", "RecordHeader", "decode_dispatch", "decode_header", "decode_record", "encode_blank",
    "encode_record", "patch_record", "prepare_record",
]  # fmt: skip

Buffer = bytes | bytearray | memoryview


class IncompleteRecordError(RecordCorruptedError):
    """The bytes end before the frame does; so far nothing contradicts itself."""


@dataclass(frozen=True, slots=True)
class Record:
    """One message as stored. Times are milliseconds since 1970 UTC; sizes and commit-log offsets are bytes.

    `body` may be compressed (`sys_flag`), `properties_bytes` is the raw property string with its `__CRC32#`, and
    `body_crc` is what the frame says (a CRC-32 with the top bit cleared, not checked for an empty body).
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
    def ends_in_zero(self) -> bool:
        """Whether the last stored byte is NUL: no client writes that, a torn write in a zeroed file leaves it.

        The only hint at a torn tail in a frame without `__CRC32#`, where RocketMQ itself sees none.
        """
        return self.properties_bytes.endswith(b"\x00")


class RecordHeader(NamedTuple):
    """The part of a frame before its body; of a blank only `size_bytes` and `magic` mean anything.

    Attributes:
        size_bytes: of the whole frame, or of a blank: all that is left of its file.
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


def encode_record(record: Record) -> bytes:
    """The stored bytes, with magic, body CRC and properties as given; the size is counted, not taken.

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
    if len(record.properties_bytes) > 32767:
        raise InvalidMessageError("Properties take over 32767 bytes.", field="properties")
    size = head.size + len(record.body) + len(topic_length) + len(topic) + 2 + len(record.properties_bytes)
    return b"".join((
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
    ))


def _encode_topic_length(magic: int, size_bytes: int) -> bytes:
    assert magic in (MAGIC_V1, MAGIC_V2), magic
    size_bytes_max = TOPIC_SIZE_BYTES_MAX_V1 if magic == MAGIC_V1 else 32767
    if size_bytes > size_bytes_max:
        raise InvalidMessageError(f"The topic takes {size_bytes} of at most {size_bytes_max} bytes.", field="topic")
    return bytes((size_bytes,)) if magic == MAGIC_V1 else I16.pack(size_bytes)


def decode_header(buf: Buffer, at: int = 0, commit_log_offset: int | None = None) -> RecordHeader:
    """The numbers before the body, or a blank; checks size and magic and that the body fits, nothing else.

    Only the header's own bytes need to be in `buf`.

    Raises:
        IncompleteRecordError: `buf` ends inside the header.
        RecordCorruptedError: no frame starts here, or it stands elsewhere than it says.
    """
    where = commit_log_offset if commit_log_offset is not None else at
    available = len(buf) - at
    if available < BLANK_SIZE_BYTES:
        raise _incomplete(where, available, BLANK_SIZE_BYTES)
    size, magic = SIZE_AND_MAGIC.unpack_from(buf, at)
    if magic == BLANK_MAGIC:
        if size < BLANK_SIZE_BYTES:
            raise _corrupted(where, f"a blank claims {size} bytes")
        return RecordHeader(size, magic)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise _corrupted(where, f"magic {magic} is none of a record")
    if size < FRAME_SIZE_BYTES_MIN:
        raise _corrupted(where, f"a record claims {size} bytes")
    if available <= SYS_FLAG_LOW_BYTE_AT:
        raise _incomplete(where, available, size)
    head = HEADS[(buf[at + SYS_FLAG_LOW_BYTE_AT] >> 4) & 3]
    if available < head.size:
        raise _incomplete(where, available, size)
    header = RecordHeader._make(head.unpack_from(buf, at))
    if not 0 <= header.body_size_bytes <= size - head.size - 3:
        raise _corrupted(where, f"a body of {header.body_size_bytes} bytes is not in a record of {size}")
    if commit_log_offset is not None and header.commit_log_offset != commit_log_offset:
        raise _corrupted(where, f"the record says that it stands at {header.commit_log_offset}")
    return header


def decode_record(
    buf: Buffer,
    *,
    at: int = 0,
    commit_log_offset: int | None = None,
    check_body_crc: bool = True,
    check_properties_crc: bool = True,
) -> Record:
    """The record whose frame starts at byte `at`; what follows the frame is not looked at.

    Args:
        buf: any bytes of the log.
        at: index in `buf`.
        commit_log_offset: where the frame stands in the log, to be compared with what it says; None: not compared.
        check_body_crc: an empty body has none.
        check_properties_crc: compare `__CRC32#` with the frame when the properties end with it.

    Raises:
        IncompleteRecordError: `buf` ends before the frame.
        RecordCorruptedError: the frame contradicts itself, or is a blank.
    """
    header = decode_header(buf, at, commit_log_offset)
    where = commit_log_offset if commit_log_offset is not None else header.commit_log_offset
    if header.is_blank:
        raise _corrupted(commit_log_offset or at, "a blank closes the file here, no record")
    if len(buf) - at < header.size_bytes:
        raise _incomplete(where, len(buf) - at, header.size_bytes)
    with memoryview(buf)[at : at + header.size_bytes] as frame:
        body_at = HEADS[(header.sys_flag >> 4) & 3].size
        topic_at, properties_at, why = _locate(frame, header.magic, body_at + header.body_size_bytes)
        if why:
            raise _corrupted(where, why)
        body = bytes(frame[body_at : body_at + header.body_size_bytes])
        if check_body_crc and body and masked_crc(body) != header.body_crc:
            raise _corrupted(where, f"the body's CRC is {masked_crc(body)}, not {header.body_crc}")
        if check_properties_crc:
            _check_frame_crc(frame, properties_at, where)
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
        )


def _locate(frame: memoryview, magic: int, topic_length_at: int) -> tuple[int, int, str]:
    """Where topic and properties start in a frame of the right length, or why they cannot."""
    size = len(frame)
    if magic == MAGIC_V1:
        topic_at, topic_length = topic_length_at + 1, frame[topic_length_at]
        if topic_length > TOPIC_SIZE_BYTES_MAX_V1:
            return 0, 0, f"a V1 record has a topic of {topic_length} bytes"
    elif topic_length_at + 2 > size:
        return 0, 0, "the record ends before its topic"
    else:
        topic_at, topic_length = topic_length_at + 2, I16.unpack_from(frame, topic_length_at)[0]
    properties_at = topic_at + topic_length + 2
    if topic_length < 0 or properties_at > size:
        return 0, 0, f"a topic of {topic_length} bytes is not in a record of {size}"
    properties_length = I16.unpack_from(frame, properties_at - 2)[0]
    if properties_length < 0 or properties_at + properties_length != size:
        return 0, 0, f"properties of {properties_length} bytes do not end a record of {size}"
    return topic_at, properties_at, ""


def _check_frame_crc(frame: memoryview, properties_at: int, where: int) -> None:
    if len(frame) - properties_at < CRC_PROPERTY_SIZE_BYTES:
        return
    tail = bytes(frame[-CRC_PROPERTY_SIZE_BYTES:])
    stored = decode_crc_digits(tail[len(CRC_MARKER) : -1])
    if tail.startswith(CRC_MARKER):
        crc = masked_crc(frame[:-CRC_PROPERTY_SIZE_BYTES])
        if stored != crc or tail[-1] != 2:
            raise _corrupted(where, f"the frame's CRC is {crc}, its __CRC32# says {tail!r}")
    elif stored is not None and stored == masked_crc(frame[:-CRC_PROPERTY_SIZE_BYTES]):
        # The right ten digits in the right place under another name: the name itself is damaged.
        raise _corrupted(where, f"the name of the property __CRC32# reads {tail[: len(CRC_MARKER)]!r}")


# One property that the builders need, at the start of its entry; a later one wins, an empty one does not count.
_DISPATCH_PROPERTIES = compile_pattern("\x02(TAGS|KEYS|UNIQ_KEY|DELAY)\x01([^\x02]+)")


def decode_dispatch(buf: Buffer, at: int, commit_log_offset: int) -> DispatchRequest:
    """What the builders need of the frame at byte `at`, without looking at its body or CRCs.

    For records that are in the log already and were checked on their way in. Lengths and position are checked.

    Raises:
        IncompleteRecordError: `buf` ends before the frame.
        RecordCorruptedError: the frame contradicts itself, or is a blank.
    """
    try:
        (
            size, magic, _, queue_id, _, queue_offset, stated_offset, sys_flag, _, _, store_time_millis, _, _,
            prepared_transaction_offset, body_size,
        ) = HEADS[(buf[at + SYS_FLAG_LOW_BYTE_AT] >> 4) & 3].unpack_from(buf, at)  # fmt: skip
    except Exception:  # the header is cut off or is a blank: the careful way says which
        decode_record(buf, at=at, commit_log_offset=commit_log_offset)
        raise
    topic_at = at + HEADS[(sys_flag >> 4) & 3].size + body_size + 1
    end = at + size
    if magic != MAGIC_V1 or body_size < 0 or topic_at + 2 > end or end > len(buf) or stated_offset != commit_log_offset:
        return _decode_dispatch_carefully(buf, at, commit_log_offset)
    topic_length = buf[topic_at - 1]
    properties_at = topic_at + topic_length + 2
    if topic_length > TOPIC_SIZE_BYTES_MAX_V1 or properties_at > end:
        return _decode_dispatch_carefully(buf, at, commit_log_offset)
    if (buf[properties_at - 2] << 8 | buf[properties_at - 1]) != end - properties_at or end - properties_at > 32767:
        return _decode_dispatch_carefully(buf, at, commit_log_offset)
    topic = str(buf[topic_at : properties_at - 2], "utf-8", "java_replace")
    properties = dict(
        _DISPATCH_PROPERTIES.findall("\x02" + str(buf[properties_at:end], "utf-8", "java_replace")),
    )
    keys = properties.get("KEYS")
    return _new_tuple(DispatchRequest, (
        topic, queue_id, queue_offset, commit_log_offset, size,
        tags_code(topic, properties, store_time_millis) if "TAGS" in properties or topic == SCHEDULE_TOPIC else 0,
        store_time_millis,
        () if keys is None else split_keys(keys) if " " in keys else (keys,),
        properties.get("UNIQ_KEY", ""),
        sys_flag,
        prepared_transaction_offset,
    ))  # fmt: skip


_new_tuple = tuple.__new__  # skips the named tuple's own keyword-aware constructor


def _decode_dispatch_carefully(buf: Buffer, at: int, commit_log_offset: int) -> DispatchRequest:
    """The slow and complete way: V2 frames, and everything that is wrong."""
    record = decode_record(
        buf, at=at, commit_log_offset=commit_log_offset, check_body_crc=False, check_properties_crc=False
    )
    return DispatchRequest(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        commit_log_offset=record.commit_log_offset,
        record_size_bytes=record.store_size_bytes,
        tags_code=tags_code(record.topic, record.properties, record.store_time_millis),
        store_time_millis=record.store_time_millis,
        keys=record.keys,
        unique_key=record.unique_key,
        sys_flag=record.sys_flag,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )


def _corrupted(commit_log_offset: int, why: str) -> RecordCorruptedError:
    return RecordCorruptedError(
        f"The record at commit-log offset {commit_log_offset} is damaged: {why}.", commitLogOffset=commit_log_offset
    )


def _incomplete(commit_log_offset: int, available: int, size: int) -> IncompleteRecordError:
    return IncompleteRecordError(
        f"The record at commit-log offset {commit_log_offset} is cut off: {available} of {size} bytes are there.",
        commitLogOffset=commit_log_offset,
        availableBytes=available,
        sizeBytes=size,
    )
