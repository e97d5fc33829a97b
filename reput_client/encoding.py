"""Messages to the bytes of an `AppendMessageStreamRequest`, each message serialized once.

A request is the messages one after the other, each as field 1 with its length, and a tail with the request's own fields.
So a batch is joined, not built, and a message that is sent again is not serialized again.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client.errors import InvalidMessageError

# What the gateway takes at once: 4 MiB of bodies, and 128 KiB for what surrounds them, of which some is the request's.
MESSAGE_BYTES_MAX = (4 << 20) + (96 << 10)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MESSAGES_TAG = bytes([pb.AppendMessageStreamRequest.DESCRIPTOR.fields_by_name["messages"].number << 3 | 2])


class FlushMode(Enum):
    """When an append is answered."""

    SERVER_DEFAULT = message_pb2.FLUSH_MODE_UNSPECIFIED
    ASYNC = message_pb2.FLUSH_MODE_ASYNC
    SYNC = message_pb2.FLUSH_MODE_SYNC


def encode_message(
    topic: str,
    body: bytes | bytearray | memoryview,
    keys: Iterable[str],
    tags: str,
    properties: Mapping[str, str] | None,
    queue_id: int | None,
    unique_key: str,
    born_time: datetime | None,
    flag: int,
) -> bytes:
    """One message as it stands in a request.

    Raises:
        InvalidMessageError: too large for any request.
        TypeError, ValueError: an argument is of a wrong kind; `born_time` without a time zone is one.
    """
    if not isinstance(body, bytes):
        if not isinstance(body, bytearray | memoryview):
            raise TypeError(f"body is bytes, not {type(body).__name__}: encode it")
        body = bytes(body)
    if isinstance(keys, str):
        raise TypeError("keys is a sequence of keys: give [key]")
    fields: dict[str, Any] = {"topic": topic, "body": body, "unique_key": unique_key}
    if keys:
        fields["keys"] = keys
    if tags:
        fields["tags"] = tags
    if properties:
        fields["properties"] = properties
    if queue_id is not None:
        fields["queue_id"] = queue_id
    if flag:
        fields["flag"] = flag
    if born_time is not None:
        fields["born_time"] = to_timestamp(born_time)
    data = message_pb2.NewMessage(**fields).SerializeToString()
    size_bytes = len(data)
    if size_bytes > MESSAGE_BYTES_MAX:
        raise InvalidMessageError(
            f"the message has {size_bytes} bytes, at most {MESSAGE_BYTES_MAX} can be sent",
            metadata={"field": "body", "sizeBytes": str(size_bytes), "sizeBytesMax": str(MESSAGE_BYTES_MAX)},
        )
    return _MESSAGES_TAG + encode_varint(size_bytes) + data


def unique_key_of(wire: bytes) -> str:
    """The unique key of a message as it stands in a request."""
    return pb.AppendMessageStreamRequest.FromString(wire).messages[0].unique_key


def encode_request_tail(flush_mode: FlushMode) -> bytes:
    """What stands behind the messages."""
    request = pb.AppendMessageStreamRequest(flush=flush_mode.value)
    request.deduplicate = True
    return request.SerializeToString()


def encode_request(messages: Sequence[bytes], tail: bytes) -> bytes:
    """The request."""
    return b"".join((*messages, tail))


def encode_varint(number: int) -> bytes:
    """Protobuf's variable-length form of a number from 0."""
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def to_timestamp(time: datetime) -> Timestamp:
    """The Timestamp of an aware datetime; ValueError without a time zone."""
    if time.tzinfo is None:
        raise ValueError(f"{time!r} has no time zone: give one, e.g. datetime.now(UTC)")
    delta = time - _EPOCH
    return Timestamp(seconds=delta.days * 86_400 + delta.seconds, nanos=delta.microseconds * 1000)


def from_timestamp(timestamp: Timestamp) -> datetime:
    """The time, aware, UTC."""
    return datetime.fromtimestamp(timestamp.seconds, UTC).replace(microsecond=timestamp.nanos // 1000)
