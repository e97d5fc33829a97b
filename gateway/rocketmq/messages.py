"""Converts messages of RocketMQ's gRPC contract to messages to append, and found messages back.

Fields are converted as in RocketMQ's proxy (`SendMessageActivity`, `GrpcConverter`), with two exceptions. The proxy stores
a gzip body with the flag for zlib; here it is unpacked before it is stored, and bytes that are no gzip although their producer
says so are stored as they came, with that encoding as a property. And the digest of a body is checked. Messages are delivered
unpacked, whatever packed them in the store; bytes as they came are delivered with their encoding.
"""

import hashlib
import zlib

from google.protobuf.timestamp_pb2 import Timestamp

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq.message_rules import (
    BODY_BYTES_MAX,
    RESERVED_PROPERTIES,
    check_body_size,
)
from gateway.rocketmq.names import full_name
from gateway.rocketmq.status import RefusedError
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.message.v1 import message_pb2
from services.convert import delivery_count, timestamp_to_millis
from services.message_copy import BODY_ENCODING, TRACE_CONTEXT
from store.format.body_compression import INFLATED_BYTES_MAX, BodyNotInflatedError, inflate
from store.format.message_type import message_type_of, priority_of
from store.format.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    LITE_TOPIC,
    PRIORITY,
    PRODUCER_GROUP,
    SHARDING_KEY,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRAN_MSG,
)
from store.format.sys_flag import COMPRESSED, CompressionType, compression_type

GZIP_WBITS = 31  # zlib's number for gzip's header and trailer
GZIP = "GZIP"
# gzip allows several members in a row. What follows a member is copied, so many small ones would take long.
GZIP_MEMBER_COUNT_MAX = 16
SENT_TYPES = {v2.MESSAGE_TYPE_UNSPECIFIED, v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION, v2.PRIORITY, v2.LITE}
MILLIS_DIGITS_MAX = 15


def resource_of(topic: str) -> v2.Resource:
    """The resource of a stored topic name; retry and dead-letter topics keep their whole name."""
    namespace, percent, name = topic.partition("%")
    if not percent or namespace in ("", "RETRY", "DLQ"):
        return v2.Resource(name=topic)
    return v2.Resource(resource_namespace=namespace, name=name)


def to_new_message(message: v2.Message) -> message_pb2.NewMessage:
    """The message to append, of one that `check_sent` and `check_type` have passed.

    Raises:
        RefusedError: it cannot be stored with the meaning that its producer gave it.
    """
    system = message.system_properties
    if system.message_type not in SENT_TYPES:
        kind = v2.MessageType.Name(system.message_type) if system.message_type in v2.MessageType.values() else "unknown"
        raise RefusedError(v2.UNSUPPORTED, f"messages of type {kind} are not supported: send one of another type")
    body, is_as_it_came = _body(message)
    new = message_pb2.NewMessage(
        topic=full_name(message.topic),
        body=body,
        keys=system.keys,
        tags=system.tag,
        unique_key=system.message_id,
    )
    if message.user_properties:  # protobuf takes longer for an empty map than for this look
        new.properties.update(message.user_properties)
    if is_as_it_came:
        new.properties[BODY_ENCODING] = GZIP
    if system.message_group:
        new.properties[SHARDING_KEY] = system.message_group
    if system.HasField("priority"):
        new.properties[PRIORITY] = str(system.priority)
    if system.lite_topic:
        new.properties[LITE_TOPIC] = system.lite_topic
    if system.trace_context:
        new.properties[TRACE_CONTEXT] = system.trace_context
    if system.HasField("born_timestamp"):
        new.born_time.CopyFrom(system.born_timestamp)
    if system.HasField("delivery_timestamp"):
        new.delivery_time.CopyFrom(system.delivery_timestamp)
    if system.message_type == v2.TRANSACTION:
        new.properties[TRAN_MSG] = "true"
        new.properties[PRODUCER_GROUP] = message.topic.name  # as RocketMQ's proxy: any producer of the topic is asked
        if system.HasField("orphaned_transaction_recovery_duration"):
            new.properties[CHECK_IMMUNITY_TIME_IN_SECONDS] = str(system.orphaned_transaction_recovery_duration.seconds)
    return new


def _body(message: v2.Message) -> tuple[bytes, bool]:
    """The body to store, and whether it has an encoding that could not be undone."""
    system = message.system_properties
    body: bytes = message.body
    if system.HasField("body_digest"):
        _check_digest(body, system.body_digest)
    if system.body_encoding in (v2.ENCODING_UNSPECIFIED, v2.IDENTITY):
        return body, False
    if system.body_encoding != v2.GZIP:
        raise RefusedError(
            v2.UNSUPPORTED, f"body_encoding {system.body_encoding} is not known: send the body as IDENTITY"
        )
    unpacked = _gunzipped(body, BODY_BYTES_MAX)
    if unpacked is None:
        return body, True
    check_body_size(len(unpacked))
    return unpacked, False


def _gunzipped(body: bytes, size_bytes_max: int) -> bytes | None:
    """What gzip packed, at most one byte more than the limit; None when the bytes are no whole gzip, or of too many members."""
    unpacked = b""
    left = body
    for _ in range(GZIP_MEMBER_COUNT_MAX):
        unpacker = zlib.decompressobj(wbits=GZIP_WBITS)
        try:
            unpacked += unpacker.decompress(left, size_bytes_max + 1 - len(unpacked))
        except zlib.error:
            return None
        if not unpacker.eof and len(unpacked) <= size_bytes_max:
            return None
        left = unpacker.unused_data
        if not left or len(unpacked) > size_bytes_max:
            return unpacked
    return None


def _check_digest(body: bytes, digest: v2.Digest) -> None:
    if digest.type == v2.CRC32:
        actual, given = f"{zlib.crc32(body):X}", digest.checksum.upper().lstrip("0") or "0"
    elif digest.type == v2.MD5:
        actual, given = hashlib.md5(body, usedforsecurity=False).hexdigest(), digest.checksum.lower()
    elif digest.type == v2.SHA1:
        actual, given = hashlib.sha1(body, usedforsecurity=False).hexdigest(), digest.checksum.lower()
    else:
        return
    if actual != given:
        raise RefusedError(
            v2.MESSAGE_CORRUPTED, f"the body's {v2.DigestType.Name(digest.type)} is {actual}, not {digest.checksum}"
        )


def to_message(stored: message_pb2.StoredMessage) -> v2.Message:
    """A found message in RocketMQ's form, with its body as it is stored."""
    is_packed = bool(stored.sys_flag & COMPRESSED) or stored.properties.get(BODY_ENCODING) == GZIP
    return _message(stored, stored.body, v2.GZIP if is_packed else v2.IDENTITY)


def _message(stored: message_pb2.StoredMessage, body: bytes, encoding: "v2.Encoding") -> v2.Message:
    properties = stored.properties
    system = v2.SystemProperties(
        keys=stored.keys,
        message_id=stored.unique_key or stored.offset_msg_id,
        body_digest=v2.Digest(type=v2.MD5, checksum=hashlib.md5(body, usedforsecurity=False).hexdigest().upper()),
        body_encoding=encoding,
        message_type=message_type_of(properties),
        born_timestamp=stored.born_time,
        born_host=stored.born_host,
        store_timestamp=stored.store_time,
        store_host=stored.store_host,
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        delivery_attempt=delivery_count(stored, 1),
    )
    if stored.tags:
        system.tag = stored.tags
    if SHARDING_KEY in properties:
        system.message_group = properties[SHARDING_KEY]
    priority = priority_of(properties)
    if priority is not None:
        system.priority = priority
    if LITE_TOPIC in properties:
        system.lite_topic = properties[LITE_TOPIC]
    if TRACE_CONTEXT in properties:
        system.trace_context = properties[TRACE_CONTEXT]
    deliver_millis = properties.get(TIMER_DELIVER_MS) or properties.get(TIMER_OUT_MS, "")
    if deliver_millis.isdecimal() and len(deliver_millis) <= MILLIS_DIGITS_MAX:
        system.delivery_timestamp.CopyFrom(_timestamp(int(deliver_millis)))
    if DLQ_ORIGIN_TOPIC in properties and DLQ_ORIGIN_MESSAGE_ID in properties:
        system.dead_letter_queue.topic = properties[DLQ_ORIGIN_TOPIC]
        system.dead_letter_queue.message_id = properties[DLQ_ORIGIN_MESSAGE_ID]
    user = {name: value for name, value in properties.items() if name not in RESERVED_PROPERTIES}
    return v2.Message(topic=resource_of(stored.topic), user_properties=user, system_properties=system, body=body)


def to_delivered(delivery: consumer_pb.Delivery, topic: v2.Resource, now_millis: int) -> v2.Message:
    """A message on its way to a consumer, with its body unpacked.

    Args:
        delivery: what is delivered.
        topic: what was asked for; a message of the group's retry topic belongs to it, too.
        now_millis: the time (ms since 1970).
    """
    stored = delivery.message
    message = to_pulled(stored)
    message.topic.CopyFrom(topic)
    system = message.system_properties
    system.receipt_handle = delivery.receipt_handle
    system.delivery_attempt = delivery.delivery_attempt
    invisible_millis = max(0, timestamp_to_millis(delivery.invisible_until, "invisible_until") - now_millis)
    system.invisible_duration.seconds = invisible_millis // 1000
    system.invisible_duration.nanos = invisible_millis % 1000 * 1_000_000
    return message


def to_pulled(stored: message_pb2.StoredMessage) -> v2.Message:
    """A message that was read by its offset, with its body unpacked."""
    return _message(stored, *_readable(stored))


def _readable(stored: message_pb2.StoredMessage) -> "tuple[bytes, v2.Encoding]":
    """The body as its producer gave it, unpacked if that is possible, and its encoding."""
    body: bytes = stored.body
    if not stored.sys_flag & COMPRESSED:
        return body, v2.GZIP if stored.properties.get(BODY_ENCODING) == GZIP else v2.IDENTITY
    try:
        return inflate(body, stored.sys_flag, INFLATED_BYTES_MAX), v2.IDENTITY
    except BodyNotInflatedError as error:
        if not error.is_damaged or compression_type(stored.sys_flag) is not CompressionType.ZLIB_UNMARKED:
            return body, v2.IDENTITY  # its consumer can tell best
    # RocketMQ's proxy stores what its producers mark as GZIP as it came, with the flag of zlib.
    unpacked = _gunzipped(body, INFLATED_BYTES_MAX)
    if unpacked is None or len(unpacked) > INFLATED_BYTES_MAX:
        return body, v2.GZIP
    return unpacked, v2.IDENTITY


def _timestamp(millis: int) -> Timestamp:
    return Timestamp(seconds=millis // 1000, nanos=millis % 1000 * 1_000_000)
