"""The record that delivers a message that waited: to the topic that it was sent to, as RocketMQ makes it.

    by a level    without DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC                    `ScheduleMessageService.messageTimeUp`
    by the timer  without REAL_TOPIC, REAL_QID; with TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS    `TimerMessageStore.convertMessage`

Both keep everything else, and say where the message waited: `__REPUT_MOVED_FROM__`.
"""

from collections.abc import Sequence
from functools import lru_cache

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import StoredMessage
from services.following.moved_record import copy_of, shorten, surely_fit
from store.errors import InvalidMessageError
from store.format.properties import (
    DELAY,
    KEYS,
    MOVED_FROM,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    UNIQ_KEY,
)
from store.format.sys_flag import INNER_BATCH
from store.format.topic import OP_HALF_TOPIC, WAITING_TOPICS, validate_topic

ADDED = (TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, MOVED_FROM)
KEPT = (TAGS, KEYS, UNIQ_KEY, SHARDING_KEY)
QUEUE_ID_MAX = 65_535  # of AppendInternal
SYS_FLAG_BITS = 0x7FF & ~INNER_BATCH  # of AppendInternal
# What is delivered there would count as something else.
CLOSED_TOPICS = WAITING_TOPICS | {OP_HALF_TOPIC}
STATE_PREFIX = "rmq_sys_REPUT_"


def level_due(message: StoredMessage) -> InternalRecord | None:
    """The record that delivers a message of a delay level; None when it does not say where it belongs."""
    return _due(message, (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC), {})


def timer_due(message: StoredMessage, enqueue_millis: int, now_millis: int) -> InternalRecord | None:
    """The record that delivers a message of the timer topic; None when it does not say where it belongs."""
    added = {TIMER_ENQUEUE_MS: str(enqueue_millis), TIMER_DEQUEUE_MS: str(now_millis)}
    return _due(message, (REAL_TOPIC, REAL_QUEUE_ID), added)


def _due(message: StoredMessage, removed: Sequence[str], added: dict[str, str]) -> InternalRecord | None:
    properties = dict(message.properties)
    topic, queue_id = properties.get(REAL_TOPIC, ""), properties.get(REAL_QUEUE_ID, "")
    if not _is_usable(topic) or not (queue_id.isascii() and queue_id.isdigit() and int(queue_id[:9]) <= QUEUE_ID_MAX):
        return None
    for name in removed:
        properties.pop(name, None)
    properties.update(added)
    record = copy_of(message, topic, int(queue_id[:9]), properties)
    record.sys_flag &= SYS_FLAG_BITS
    if not surely_fit(properties):
        shorten(record, ADDED, KEPT)
    return record


@lru_cache(maxsize=4_096)  # the topics of a batch are few
def _is_usable(topic: str) -> bool:
    try:
        validate_topic(topic)
    except InvalidMessageError:
        return False
    return topic not in CLOSED_TOPICS and not topic.startswith(STATE_PREFIX)
