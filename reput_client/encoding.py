"""Messages as the contract's `NewMessage`, and as the bytes of an `AppendMessageStreamRequest`.

The bytes of a request are its messages, each as field 1 with its length, then a tail with the request's own fields. Each
message is serialized once: a request is made by joining bytes, also when a message is sent again.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client.arguments import naming_wrong_arguments
from reput_client.errors import InvalidMessageError

# The gateway accepts 4 MiB of bodies and 128 KiB of other fields in a request; 32 KiB of those are left for the request.
MESSAGE_BYTES_MAX = (4 << 20) + (96 << 10)
# RocketMQ's properties.
PRIORITY, LITE_TOPIC = "_SYS_MSG_PRIORITY_", "__LITE_TOPIC"
_LITE_TOPIC_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MESSAGES_TAG = bytes([pb.AppendMessageStreamRequest.DESCRIPTOR.fields_by_name["messages"].number << 3 | 2])


class FlushMode(Enum):
    """The event after which an append is answered."""

    SERVER_DEFAULT = message_pb2.FLUSH_MODE_UNSPECIFIED
    ASYNC = message_pb2.FLUSH_MODE_ASYNC
    SYNC = message_pb2.FLUSH_MODE_SYNC
    REPLICATED = message_pb2.FLUSH_MODE_REPLICATED


@naming_wrong_arguments
def to_message(
    topic: str,
    body: bytes | bytearray | memoryview,
    keys: Iterable[str],
    tags: str,
    properties: Mapping[str, str] | None,
    queue_id: int | None,
    unique_key: str | None,
    born_time: datetime | None,
    flag: int,
    delivery_time: datetime | None = None,
    delay_level: int = 0,
    priority: int | None = None,
    lite_topic: str | None = None,
) -> message_pb2.NewMessage:
    """One message as the contract's `NewMessage`; the arguments are the fields of `reput_client.NewMessage`.

    Raises:
        TypeError, ValueError: an argument has a wrong type or value; a time without a time zone is one.
    """
    if not isinstance(body, bytes):
        if not isinstance(body, bytearray | memoryview):
            raise TypeError(f"body is a {type(body).__name__}: encode it to bytes")
        body = bytes(body)
    if isinstance(keys, str):
        raise TypeError("keys is a text: give a sequence of keys, such as [key]")
    fields: dict[str, Any] = {"topic": topic, "body": body}
    if unique_key is not None:
        fields["unique_key"] = unique_key
    if keys:
        fields["keys"] = keys
    if tags:
        fields["tags"] = tags
    properties = with_place(properties, priority, lite_topic)
    if properties:
        fields["properties"] = properties
    if queue_id is not None:
        fields["queue_id"] = queue_id
    if flag:
        fields["flag"] = flag
    if born_time is not None:
        fields["born_time"] = to_timestamp(born_time, "born_time")
    if delivery_time is not None:
        fields["delivery_time"] = to_timestamp(delivery_time, "delivery_time")
    if delay_level:
        fields["delay_level"] = delay_level
    return message_pb2.NewMessage(**fields)


def with_place(
    properties: Mapping[str, str] | None, priority: int | None, lite_topic: str | None = None
) -> Mapping[str, str] | None:
    """The properties of a message with this priority or lite topic, None for none. TypeError, ValueError for what is none."""
    if priority is None and lite_topic is None:
        return properties
    placed = dict(properties or {})
    if priority is not None:
        if not isinstance(priority, int) or isinstance(priority, bool):
            raise TypeError(f"priority is {priority!r}: give int")
        if not 0 <= priority < 1 << 31:
            raise ValueError(f"priority is {priority}: 0 to {(1 << 31) - 1} are possible")
        placed[PRIORITY] = str(priority)
    if lite_topic is not None:
        if not isinstance(lite_topic, str):
            raise TypeError(f"lite_topic is {lite_topic!r}: give str")
        if _LITE_TOPIC_NAME.fullmatch(lite_topic) is None:
            raise ValueError(f"lite_topic is {lite_topic[:64]!r}: 1 to 64 letters, digits, _ and - are possible")
        placed[LITE_TOPIC] = lite_topic
    return placed


def as_field(message: message_pb2.NewMessage) -> bytes:
    """One message as a field of a request.

    Raises:
        InvalidMessageError: too large for any request.
    """
    data = message.SerializeToString()
    size_bytes = len(data)
    if size_bytes > MESSAGE_BYTES_MAX:
        raise InvalidMessageError(
            f"the message has {size_bytes} bytes, at most {MESSAGE_BYTES_MAX} can be sent",
            metadata={"field": "body", "sizeBytes": str(size_bytes), "sizeBytesMax": str(MESSAGE_BYTES_MAX)},
        )
    return _MESSAGES_TAG + encode_varint(size_bytes) + data


def unique_key_of(wire: bytes) -> str:
    """The unique key of a message that `as_field` has made."""
    return pb.AppendMessageStreamRequest.FromString(wire).messages[0].unique_key


def topic_of(wire: bytes) -> str:
    """Its topic."""
    return pb.AppendMessageStreamRequest.FromString(wire).messages[0].topic


def encode_request_tail(flush_mode: FlushMode) -> bytes:
    """The fields of a request behind its messages."""
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


def to_timestamp(time: datetime, name: str = "time") -> Timestamp:
    """The Timestamp of a datetime with a time zone; the argument of that name gave it.

    Raises:
        TypeError: it is no datetime.
        ValueError: it has no time zone.
    """
    if not isinstance(time, datetime):
        raise TypeError(f"{name} is {time!r}: give a datetime with a time zone, for example datetime.now(UTC)")
    if time.tzinfo is None:
        raise ValueError(f"{name} is {time!r}, without a time zone: give one, for example datetime.now(UTC)")
    delta = time - _EPOCH
    return Timestamp(seconds=delta.days * 86_400 + delta.seconds, nanos=delta.microseconds * 1000)


def from_timestamp(timestamp: Timestamp) -> datetime:
    """The time as a datetime in UTC, to the microsecond."""
    return datetime.fromtimestamp(timestamp.seconds, UTC).replace(microsecond=timestamp.nanos // 1000)


def time_or_none(message: Any, field: str) -> datetime | None:
    """The time in a field of a protobuf message; None when it is absent."""
    return from_timestamp(getattr(message, field)) if message.HasField(field) else None
