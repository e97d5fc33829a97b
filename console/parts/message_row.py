"""A message as one row of a list, and the parts of it that several pages show."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from console.bodies.body import preview
from services.convert import timestamp_to_millis

# Fifty rows must fit on a page of 100 KiB; the message's own page shows everything.
SHOWN_KEY_COUNT = 3
SHOWN_CHARACTERS = 64

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
SYSTEM_PREFIXES = ("RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC_", "OFFSET_MOVED_EVENT", "TBW102", "SELF_TEST_TOPIC")


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message in a list.

    Attributes:
        href: its page.
        store_time_millis: since 1970.
        matched_by: `id`, `unique key`, `key`, or empty.
        more_key_count: keys that are not among `keys`.
        preview: the begin of its body; empty when that is not text or was left out.
        body_size_bytes: of the stored body; -1 when it was left out.
    """

    href: str
    topic: str
    topic_href: str
    queue_href: str
    broker_name: str
    queue_id: int
    queue_offset: int
    store_time_millis: int
    offset_msg_id: str
    unique_key: str
    tags: str
    keys: tuple[str, ...]
    more_key_count: int
    preview: str
    body_size_bytes: int
    is_archived: bool
    is_deleted: bool
    matched_by: str = ""


def message_row(message: Any, matched_by: str = "") -> MessageRow:
    """The row of a `StoredMessage`."""
    return MessageRow(
        href=message_href(message.offset_msg_id, message.broker_name),
        topic=message.topic,
        topic_href=topic_href(message.topic),
        queue_href=queue_href(message.topic, message.queue_id, message.broker_name, message.queue_offset),
        broker_name=message.broker_name,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        store_time_millis=timestamp_to_millis(message.store_time, "store_time"),
        offset_msg_id=message.offset_msg_id,
        unique_key=message.unique_key,
        tags=message.tags,
        keys=tuple(message.keys[:SHOWN_KEY_COUNT]),
        more_key_count=max(0, len(message.keys) - SHOWN_KEY_COUNT),
        preview="" if message.body_omitted else preview(message.body, message.sys_flag),
        body_size_bytes=-1 if message.body_omitted else len(message.body),
        is_archived=message.source == 2,
        is_deleted=message.deleted_with_topic,
        matched_by=matched_by,
    )


def message_href(offset_msg_id: str, broker_name: str) -> str:
    """The page of a message."""
    return f"/messages/{quote(offset_msg_id, safe='')}?{urlencode({'broker': broker_name})}"


def topic_href(topic: str) -> str:
    """The page of a topic."""
    return f"/topics/{quote(topic, safe='')}"


def queue_href(topic: str, queue_id: int, broker_name: str, queue_offset: int | None = None) -> str:
    """The page of a queue, from a position on."""
    parameters = {"broker": broker_name, **({} if queue_offset is None else {"offset": str(queue_offset)})}
    return f"{topic_href(topic)}/{queue_id}?{urlencode(parameters)}"


def topic_kind(topic: str) -> str:
    """The kind of a topic by its name: `retry`, `dead-letter`, `system`, or empty."""
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DEAD_LETTER_PREFIX):
        return "dead-letter"
    return "system" if topic.startswith(SYSTEM_PREFIXES) else ""
