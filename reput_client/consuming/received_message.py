"""A message as a consumer gets it."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.encoding import from_timestamp

INFLATED_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message on its way to a handler. Times are aware, UTC.

    Attributes:
        topic: the topic that was subscribed to, also for a message that comes again.
        body: the body as its producer gave it.
        message_id: the producer's id (the unique key).
        keys: business keys.
        tags: the tag; empty when there is none.
        message_group: messages of one group keep their order in a FIFO group of consumers; empty when there is none.
        properties: the application's own.
        delivery_attempt: 1 for the first delivery.
        born_time: when its producer made it.
        born_host: the producer's address.
        store_time: when the store wrote it.
        broker_name: the shard that holds it.
        queue_id: queue inside the topic.
        queue_offset: position in its queue, in messages.
        priority: of a message of a topic of the type PRIORITY; None when it has none.
        lite_topic: of a message of a topic of the type LITE; empty when it has none.
    """

    topic: str
    body: bytes = field(repr=False)
    message_id: str
    keys: tuple[str, ...]
    tags: str
    message_group: str
    properties: Mapping[str, str] = field(repr=False, hash=False)
    delivery_attempt: int
    born_time: datetime
    born_host: str
    store_time: datetime
    broker_name: str
    queue_id: int
    queue_offset: int
    priority: int | None = None
    lite_topic: str = ""


def received_message_of(message: v2.Message, broker_name: str) -> ReceivedMessage:
    """The message of RocketMQ's contract."""
    system = message.system_properties
    return ReceivedMessage(
        topic=message.topic.name,
        body=_body_of(message),
        message_id=system.message_id,
        keys=tuple(system.keys),
        tags=system.tag,
        message_group=system.message_group,
        properties=MappingProxyType(dict(message.user_properties)),
        delivery_attempt=max(1, system.delivery_attempt),
        born_time=from_timestamp(system.born_timestamp),
        born_host=system.born_host,
        store_time=from_timestamp(system.store_timestamp),
        broker_name=broker_name,
        queue_id=system.queue_id,
        queue_offset=system.queue_offset,
        priority=system.priority if system.HasField("priority") else None,
        lite_topic=system.lite_topic,
    )


def _body_of(message: v2.Message) -> bytes:
    body: bytes = message.body
    if message.system_properties.body_encoding != v2.GZIP:
        return body
    unpacker = zlib.decompressobj(wbits=31)  # gzip's header and trailer
    try:
        unpacked = unpacker.decompress(body, INFLATED_BYTES_MAX)
    except zlib.error:
        return body  # marked so by its producer, and not packed: RocketMQ keeps it like that
    return unpacked if unpacker.eof else body
