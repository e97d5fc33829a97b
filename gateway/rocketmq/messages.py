"""Converts messages of RocketMQ's gRPC contract to messages to append, and found messages back.

Fields are converted as in RocketMQ's proxy (`SendMessageActivity`, `GrpcConverter`), with two exceptions. The proxy stores
a gzip body with the flag for zlib; here it is unpacked before it is stored. And the digest of a body is checked.
"""

import hashlib
import zlib

from google.protobuf.timestamp_pb2 import Timestamp

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq.status import RefusedError
from reput.message.v1 import message_pb2
from store.format.request_mark import REQUEST_MARK
from store.format.sys_flag import COMPRESSED

BODY_BYTES_MAX = 4 << 20
SHARDING_KEY = "__SHARDINGKEY"
TRACE_CONTEXT = "TRACE_CONTEXT"
STORED_TYPES = {v2.MESSAGE_TYPE_UNSPECIFIED, v2.NORMAL, v2.FIFO}
# Names of `MessageConst` that a client may set through system_properties only.
OWN_PROPERTIES = frozenset({"KEYS", "TAGS", "UNIQ_KEY", SHARDING_KEY, TRACE_CONTEXT})
# What `GrpcConverter` keeps out of user_properties in an answer, as far as stores hold it.
SYSTEM_PROPERTIES = OWN_PROPERTIES | {
    *("__CRC32#", "MSG_REGION", "TRACE_ON", "WAIT", "PGROUP", "CLUSTER", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID"),
    *("DELAY", "TRAN_MSG", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID"),
    *("ORIGIN_MESSAGE_ID", "CORRECTION_FLAG", "MQ2_FLAG", "EXTEND_UNIQ_INFO", "CONSUME_START_TIME", "INSTANCE_ID"),
    *("TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"),
    *("TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"),
    *("CHECK_IMMUNITY_TIME_IN_SECONDS", "__transactionId__", "__STARTDELIVERTIME", "__BORNHOST", "BORN_TIMESTAMP"),
    *("DUP_INFO", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH"),
    REQUEST_MARK,
    *("INNER_MULTI_QUEUE_OFFSET", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "TRANSFER_FLAG"),
}


def full_name(resource: v2.Resource) -> str:
    """The name under which RocketMQ stores a topic of a namespace (`NamespaceUtil`)."""
    name: str = resource.name
    return f"{resource.resource_namespace}%{name}" if resource.resource_namespace else name


def resource_of(topic: str) -> v2.Resource:
    """The resource of a stored topic name; retry and dead-letter topics keep their whole name."""
    namespace, percent, name = topic.partition("%")
    if not percent or namespace in ("", "RETRY", "DLQ"):
        return v2.Resource(name=topic)
    return v2.Resource(resource_namespace=namespace, name=name)


def to_new_message(message: v2.Message) -> message_pb2.NewMessage:
    """The message to append.

    Raises:
        RefusedError: it cannot be stored with the meaning that its producer gave it.
    """
    system = message.system_properties
    if system.message_type not in STORED_TYPES or system.HasField("delivery_timestamp"):
        kind = v2.MessageType.Name(system.message_type) if system.message_type in v2.MessageType.values() else "unknown"
        raise RefusedError(
            v2.UNSUPPORTED,
            f"messages of type {kind} need delayed or conditional delivery, which this store does not support: "
            "send NORMAL or FIFO messages, or send this one to a broker",
        )
    if system.lite_topic or system.priority:
        raise RefusedError(v2.UNSUPPORTED, "lite topics and priorities are not supported: leave them out")
    if not system.message_id:
        raise RefusedError(v2.ILLEGAL_MESSAGE_ID, "system_properties.message_id is empty: the client must set it")
    taken = OWN_PROPERTIES.intersection(message.user_properties)
    if taken:
        raise RefusedError(
            v2.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property {min(taken)} belongs to the system: leave it out"
        )
    new = message_pb2.NewMessage(
        topic=full_name(message.topic),
        body=_body(message),
        keys=system.keys,
        tags=system.tag,
        unique_key=system.message_id,
        properties=message.user_properties,
    )
    if system.message_group:
        new.properties[SHARDING_KEY] = system.message_group
    if system.trace_context:
        new.properties[TRACE_CONTEXT] = system.trace_context
    if system.HasField("born_timestamp"):
        new.born_time.CopyFrom(system.born_timestamp)
    return new


def _body(message: v2.Message) -> bytes:
    system = message.system_properties
    body: bytes = message.body
    if system.HasField("body_digest"):
        _check_digest(body, system.body_digest)
    if system.body_encoding in (v2.ENCODING_UNSPECIFIED, v2.IDENTITY):
        return body
    if system.body_encoding != v2.GZIP:
        raise RefusedError(
            v2.UNSUPPORTED, f"body_encoding {system.body_encoding} is not known: send the body as IDENTITY"
        )
    unpacker = zlib.decompressobj(wbits=31)  # gzip's header and trailer
    try:
        unpacked = unpacker.decompress(body, BODY_BYTES_MAX + 1)
    except zlib.error as error:
        raise RefusedError(v2.MESSAGE_CORRUPTED, f"the body is not gzip: {error}") from error
    if len(unpacked) > BODY_BYTES_MAX:
        raise RefusedError(v2.MESSAGE_BODY_TOO_LARGE, f"the body has more than {BODY_BYTES_MAX} bytes unpacked")
    if not unpacker.eof:
        raise RefusedError(v2.MESSAGE_CORRUPTED, "the body's gzip stream has no end")
    return unpacked


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


def to_message(stored: message_pb2.StoredMessage, body: bytes) -> v2.Message:
    """A found message in RocketMQ's form.

    Args:
        stored: the message; its body is not used.
        body: its body.
    """
    properties = stored.properties
    system = v2.SystemProperties(
        keys=stored.keys,
        message_id=stored.unique_key or stored.offset_msg_id,
        body_digest=v2.Digest(type=v2.MD5, checksum=hashlib.md5(body, usedforsecurity=False).hexdigest().upper()),
        body_encoding=v2.GZIP if stored.sys_flag & COMPRESSED else v2.IDENTITY,
        message_type=_type_of(stored),
        born_timestamp=stored.born_time,
        born_host=stored.born_host,
        store_timestamp=stored.store_time,
        store_host=stored.store_host,
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        delivery_attempt=stored.reconsume_times + 1,
    )
    if stored.tags:
        system.tag = stored.tags
    if SHARDING_KEY in properties:
        system.message_group = properties[SHARDING_KEY]
    if TRACE_CONTEXT in properties:
        system.trace_context = properties[TRACE_CONTEXT]
    deliver_millis = properties.get("TIMER_DELIVER_MS", "")
    if deliver_millis.isdecimal() and len(deliver_millis) <= 15:
        system.delivery_timestamp.CopyFrom(_timestamp(int(deliver_millis)))
    if "DLQ_ORIGIN_TOPIC" in properties and "DLQ_ORIGIN_MESSAGE_ID" in properties:
        system.dead_letter_queue.topic = properties["DLQ_ORIGIN_TOPIC"]
        system.dead_letter_queue.message_id = properties["DLQ_ORIGIN_MESSAGE_ID"]
    user = {name: value for name, value in properties.items() if name not in SYSTEM_PROPERTIES}
    return v2.Message(topic=resource_of(stored.topic), user_properties=user, system_properties=system, body=body)


def _type_of(stored: message_pb2.StoredMessage) -> "v2.MessageType":
    properties = stored.properties
    if properties.get("TRAN_MSG") == "true":
        return v2.TRANSACTION
    if not {"DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC"}.isdisjoint(properties):
        return v2.DELAY
    return v2.FIFO if SHARDING_KEY in properties else v2.NORMAL


def _timestamp(millis: int) -> Timestamp:
    return Timestamp(seconds=millis // 1000, nanos=millis % 1000 * 1_000_000)
