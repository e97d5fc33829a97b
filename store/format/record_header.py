"""The header of a record, the places of its parts, and the errors for wrong records (drawn in `record_layout.py`).

Every length is checked against the size of the record before it is used; no input makes a read outside. Errors differ for
an incomplete and a wrong record: at the end of a log the first is a torn write, the second damage.
"""

from typing import NamedTuple

from store.errors import RecordCorruptedError
from store.format.record_layout import (
    BLANK_MAGIC,
    BLANK_SIZE_BYTES,
    FRAME_SIZE_BYTES_MIN,
    HEADS,
    I16,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_AND_MAGIC,
    SYS_FLAG_LOW_BYTE_AT,
    TOPIC_SIZE_BYTES_MAX_V1,
)

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
