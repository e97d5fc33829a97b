"""Messages that move: the record of a retry and of a dead letter.

A message that was not consumed in time is appended to the retry topic of its group and topic, `%RETRY%<group>_<topic>`, with
the number of its deliveries as `reconsume_times`, as RocketMQ's PopReviveService does, and to `%RETRY%<group>` when the group
has only members that pull, and one of them reads that topic; one that has had all its attempts to `%DLQ%<group>`, as its
SendMessageProcessor does. One that was pulled and sent back waits in `SCHEDULE_TOPIC_XXXX` for its delay
level first, and goes to `%RETRY%<group>` then. All keep body, tags, keys, unique key and properties, and name their source. A
message with a priority keeps the number of its queue in `%RETRY%<group>_<topic>`, too, as it is its priority (ADR 0153):

    RETRY_TOPIC              the topic that the producer sent it to
    ORIGIN_MESSAGE_ID        offset msg id of the record that was sent
    DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID    the same, in a dead letter
    1ST_POP_TIME             when it was first handed out by a pop (ms since 1970)
    DELAY, REAL_TOPIC, REAL_QID    of a message that waits: its delay level, and where it goes then
    __REPUT_MOVED_FROM__     queue id, queue offset and topic of the record that it is a copy of
"""

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import StoredMessage
from services.convert import delivery_count
from services.following.moved_record import copy_of, shorten
from store.format.message_type import message_type_of
from store.format.properties import (
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FIRST_POP_TIME,
    KEYS,
    MOVED_FROM,
    ORIGIN_MESSAGE_ID,
    PRIORITY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    WAIT,
)
from store.format.topic import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    dead_letter_topic_of,
    pull_retry_topic_of,
    retry_topic_of,
    retry_topic_v2_of,
)

ADDED = (FIRST_POP_TIME, MOVED_FROM, DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, ORIGIN_MESSAGE_ID)
KEPT = (TAGS, KEYS, UNIQ_KEY, RETRY_TOPIC, SHARDING_KEY, DELAY, PRIORITY, REAL_TOPIC, REAL_QUEUE_ID)
# The queue of a group's retry topic: RocketMQ's retryQueueNums is 1.
RETRY_QUEUE_ID = 0


def next_retry_topic_of(consumer_group: str, topic: str) -> str:
    """The topic to which a message goes that the group gets again.

    A retry topic is its own, but nothing is appended to those of a broker with `enableRetryTopicV2`.
    """
    base = topic.removeprefix(retry_topic_v2_of(consumer_group, ""))
    return base if base.startswith(RETRY_PREFIX) else retry_topic_of(consumer_group, base)


def attempts_of(message: StoredMessage, counted: int) -> int:
    """How often a message was delivered to the group.

    Args:
        message: the record.
        counted: deliveries from where it lies now that count. In a dead-letter topic a message begins anew.
    """
    return counted if message.topic.startswith(DLQ_PREFIX) else delivery_count(message, counted)


def retry_of(
    message: StoredMessage, consumer_group: str, attempts: int, now_millis: int, *, is_pulled: bool = False
) -> InternalRecord:
    """The record that delivers a message to its group again, which had so many attempts; `is_pulled`: to members that pull."""
    topic = pull_retry_topic_of(consumer_group) if is_pulled else next_retry_topic_of(consumer_group, message.topic)
    record = _copy(message, topic, attempts, now_millis)
    if not is_pulled and message_type_of(message.properties) == "PRIORITY":
        record.queue_id = message.queue_id
    shorten(record, ADDED, KEPT)
    return record


def sent_back_of(
    message: StoredMessage, consumer_group: str, attempts: int, delay_level: int, *, is_popped: bool = False
) -> InternalRecord:
    """The record that waits for a delay level, and is delivered to the group again then; `consumerSendMsgBack`.

    `is_popped`: to members that pop, which do not read what members that pull get again.
    """
    record = _copy(message, SCHEDULE_TOPIC, attempts, None)
    record.queue_id = delay_level - 1
    for name in (TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS):
        record.properties.pop(name, None)
    record.properties[DELAY] = str(delay_level)
    record.properties[WAIT] = "false"
    record.properties[REAL_TOPIC] = (
        next_retry_topic_of(consumer_group, message.topic) if is_popped else pull_retry_topic_of(consumer_group)
    )
    record.properties[REAL_QUEUE_ID] = str(RETRY_QUEUE_ID)
    shorten(record, ADDED, KEPT)
    return record


def dead_letter_of(
    message: StoredMessage, consumer_group: str, attempts: int, now_millis: int | None
) -> InternalRecord:
    """The record of a message that its group gave up after so many attempts; without a time, it was pulled."""
    record = _copy(message, dead_letter_topic_of(consumer_group), attempts, now_millis)
    record.properties[DLQ_ORIGIN_TOPIC] = record.properties[RETRY_TOPIC]
    record.properties[DLQ_ORIGIN_MESSAGE_ID] = record.properties[ORIGIN_MESSAGE_ID]
    shorten(record, ADDED, KEPT)
    return record


def is_foreign_retry(message: StoredMessage, topic: str) -> bool:
    """Whether a message of a retry topic is none of the polled topic.

    The retry topics of group `a`, topic `b_c` and of group `a_b`, topic `c` have one name, here as in RocketMQ.
    """
    return message.topic != topic and message.properties.get(RETRY_TOPIC, topic) != topic


def _copy(message: StoredMessage, topic: str, attempts: int, now_millis: int | None) -> InternalRecord:
    record = copy_of(message, topic)
    record.reconsume_times = max(attempts, 1)
    properties = record.properties
    if not message.topic.startswith(RETRY_PREFIX) or RETRY_TOPIC not in properties:
        properties[RETRY_TOPIC] = message.topic
    if ORIGIN_MESSAGE_ID not in properties:
        properties[ORIGIN_MESSAGE_ID] = message.offset_msg_id
    if now_millis is not None and FIRST_POP_TIME not in properties:
        properties[FIRST_POP_TIME] = str(now_millis)
    return record
