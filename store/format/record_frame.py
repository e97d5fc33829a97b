"""The append path of the record codec: a frame in two steps.

`prepare_record` encodes all that is known before a message has its place; many callers may do it at the same time.
`patch_record` puts in the three numbers that only the one writer of the log can give. Together they make the same bytes
as `record.encode_record`; they exist because they never build a `Record` and read the body twice at most (for its CRC,
and for the frame's when that is on).
"""

from dataclasses import dataclass

from store.errors import InvalidMessageError
from store.format.host import Host, encode_host
from store.format.java_text import encode_java_utf8
from store.format.properties import PROPERTIES_SIZE_BYTES_MAX
from store.format.record_layout import (
    CRC_MARKER,
    CRC_PROPERTY_SIZE_BYTES,
    HEADS,
    I16,
    I64,
    MAGIC_V1,
    MAGIC_V2,
    OFFSETS,
    QUEUE_OFFSET_AT,
    STORE_TIMES_AT,
    SYS_FLAG_LOW_BYTE_AT,
    TOPIC_SIZE_BYTES_MAX_V1,
    encode_crc_property,
    masked_crc,
)
from store.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6

_HOST_V6_MASK = BORN_HOST_V6 | STORE_HOST_V6
_TOPIC_SIZE_BYTES_MAX = 32767
_CRC_SLOT = encode_crc_property(0)


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """A checked message with its queue, before the log gives it its place.

    Attributes:
        topic: the topic's name.
        queue_id: the queue it goes to.
        body: as it is to be stored.
        properties_bytes: the whole property string without `__CRC32#`.
        born_time_millis: since 1970 UTC.
        born_host: who sent it.
        store_host: the shard's name on the wire.
        flag: the user's, a signed i32.
        sys_flag: the two host bits are set from the hosts, whatever they say here.
        reconsume_times: deliveries that failed.
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
    """The frame with zeros for queue offset, commit-log offset, store time and frame CRC.

    Raises:
        InvalidMessageError: topic or properties do not fit their length fields; `field` says which.
    """
    born_host, store_host = encode_host(message.born_host), encode_host(message.store_host)
    born_v6, store_v6 = len(born_host) > 8, len(store_host) > 8
    sys_flag = message.sys_flag & ~_HOST_V6_MASK | (BORN_HOST_V6 * born_v6) | (STORE_HOST_V6 * store_v6)
    topic = encode_java_utf8(message.topic)
    properties = message.properties_bytes
    if message.properties_crc:
        # A last property that is not closed would run into the CRC's name.
        gap = b"\x02" if properties and properties[-1] != 2 else b""
        properties = b"%b%b%b" % (properties, gap, _CRC_SLOT)
    if len(properties) > PROPERTIES_SIZE_BYTES_MAX:
        raise InvalidMessageError(
            f"Properties take {len(properties)} bytes, at most {PROPERTIES_SIZE_BYTES_MAX} can be stored.",
            field="properties",
            sizeBytes=len(properties),
            sizeBytesMax=PROPERTIES_SIZE_BYTES_MAX,
        )
    if not 0 < len(topic) <= _TOPIC_SIZE_BYTES_MAX:
        raise InvalidMessageError(
            f"The topic takes {len(topic)} bytes, 1 to {_TOPIC_SIZE_BYTES_MAX} can be stored.",
            field="topic",
            sizeBytes=len(topic),
            sizeBytesMax=_TOPIC_SIZE_BYTES_MAX,
        )
    is_v1 = len(topic) <= TOPIC_SIZE_BYTES_MAX_V1
    topic_length = bytes((len(topic),)) if is_v1 else I16.pack(len(topic))
    body = message.body
    struct_head = HEADS[(sys_flag >> 4) & 3]
    head = struct_head.pack(
        struct_head.size + len(body) + len(topic_length) + len(topic) + 2 + len(properties),
        MAGIC_V1 if is_v1 else MAGIC_V2,
        masked_crc(body),
        message.queue_id,
        message.flag,
        0,
        0,
        sys_flag,
        message.born_time_millis,
        born_host,
        0,
        store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
        len(body),
    )
    frame = bytearray(head)
    frame += body
    frame += b"%b%b%b%b" % (topic_length, topic, I16.pack(len(properties)), properties)
    return frame


def patch_record(frame: bytearray, queue_offset: int, commit_log_offset: int, store_time_millis: int) -> None:
    """Put a prepared frame in its place, and close it with its CRC when it has a slot for one. May be done again."""
    OFFSETS.pack_into(frame, QUEUE_OFFSET_AT, queue_offset, commit_log_offset)
    I64.pack_into(frame, STORE_TIMES_AT[(frame[SYS_FLAG_LOW_BYTE_AT] >> 4) & 3], store_time_millis)
    if frame.endswith(b"\x02") and frame.startswith(CRC_MARKER, len(frame) - CRC_PROPERTY_SIZE_BYTES):
        with memoryview(frame) as view, view[:-CRC_PROPERTY_SIZE_BYTES] as guarded:
            crc = masked_crc(guarded)
        frame[-CRC_PROPERTY_SIZE_BYTES:] = encode_crc_property(crc)
