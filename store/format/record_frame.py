"""The append path of the record codec: a record in two steps.

`prepare_record` encodes all that is known before a message has its place; many threads may call it at the same time.
`patch_record` writes the three numbers that only the one writer of the log knows. Together they make the same bytes as
`record.encode_record`, but faster: they build no `Record` and read the body at most twice (for its CRC, and for the record's
CRC if that is on).
"""

from functools import lru_cache
from typing import NamedTuple

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
    resembles_crc_property,
)
from store.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6

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
        raise InvalidMessageError(
            f"Properties take {properties_size} bytes, at most {PROPERTIES_SIZE_BYTES_MAX} can be stored.",
            field="properties",
            sizeBytes=properties_size,
            sizeBytesMax=PROPERTIES_SIZE_BYTES_MAX,
        )
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
