"""What tracks need to know of a message, and where copies of it come from.

A message that was not consumed is appended again: as a retry to `%RETRY%<group>_<topic>` (POP; `%RETRY%<group>+<topic>` with
RocketMQ's retry topics of version 2, `%RETRY%<group>` for push consumers of a real broker), and as a dead letter to
`%DLQ%<group>`.
A delayed message and a half message lie in a system topic first, under their own topic's name in `REAL_TOPIC`. A copy keeps the
unique key; these properties name its origin:

    REAL_TOPIC                                 the topic that it goes to
    RETRY_TOPIC, DLQ_ORIGIN_TOPIC              the topic that the producer sent it to
    ORIGIN_MESSAGE_ID, DLQ_ORIGIN_MESSAGE_ID   offset msg id of the record that was sent; not in RocketMQ's POP retries
    TIMER_OUT_MS                               of a timer message: the second in which it is due (ms since 1970)
"""

from gateway.ports.shard import store_millis
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import StoreError
from store.format.delivery.timer_due import timer_due_millis
from store.format.message_id import decode_offset_msg_id
from store.format.properties import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    MOVED_FROM,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    TIMER_DEL_UNIQKEY,
)
from store.format.topic import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX, TIMER_TOPIC, WAITING_TOPICS


def target_topic_of(record: StoredMessage) -> str:
    """The topic that it goes to, or lies in."""
    return record.properties.get(REAL_TOPIC, record.topic) if record.topic in WAITING_TOPICS else record.topic


def is_copy(record: StoredMessage) -> bool:
    """Whether it is a retry or a dead letter."""
    return target_topic_of(record).startswith((RETRY_PREFIX, DLQ_PREFIX))


def origin_topic_of(record: StoredMessage) -> str:
    """The topic that its producer sent it to; empty when a copy does not say."""
    if not is_copy(record):
        return target_topic_of(record)
    return record.properties.get(RETRY_TOPIC) or record.properties.get(DLQ_ORIGIN_TOPIC) or ""


def origin_offset_of(record: StoredMessage) -> int | None:
    """Where in the log the record is that a producer sent; None when a copy does not say (bytes)."""
    properties = record.properties
    origin_id = properties.get(ORIGIN_MESSAGE_ID) or properties.get(DLQ_ORIGIN_MESSAGE_ID) or ""
    try:
        return decode_offset_msg_id(origin_id)[1] if origin_id else None
    except StoreError:  # any text may stand there
        return None


def is_recall(record: StoredMessage) -> bool:
    """Whether it is no message: it says that one is recalled."""
    return record.topic == TIMER_TOPIC and TIMER_DEL_UNIQKEY in record.properties


def moved_from_topic_of(record: StoredMessage) -> str:
    """The topic of the record that it was made of; empty when it does not say."""
    parts = record.properties.get(MOVED_FROM, "").split(" ", 2)
    return parts[2] if len(parts) == 3 else ""


def state_of(record: StoredMessage) -> pb.MessageState:
    """Where the message is, by its topic; of a record that waited once, waits.py says whether the wait is over."""
    if record.topic == HALF_TOPIC:
        return pb.MESSAGE_STATE_PENDING_TRANSACTION
    return pb.MESSAGE_STATE_SCHEDULED if record.topic in WAITING_TOPICS else pb.MESSAGE_STATE_STORED


def timer_millis_of(record: StoredMessage) -> int | None:
    """When a message of the timer topic is due; None for others and when it does not say."""
    return timer_due_millis(record.properties, store_millis(record)) if record.topic == TIMER_TOPIC else None
