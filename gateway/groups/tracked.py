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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

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


class MessageState(Enum):
    """Where a message is; the names are those of `reput.gateway.v1.MessageState`."""

    STORED = "in its topic"
    SCHEDULED = "it waits for its time"
    PENDING_TRANSACTION = "it waits for the verdict of its transaction"
    RECALLED = "it was recalled before its time"
    ROLLED_BACK = "its transaction was rolled back"
    GIVEN_UP = "no producer gave a verdict on its transaction"


@dataclass(frozen=True, slots=True)
class TrackedMessage:
    """The fields of a message that tracks read; times in milliseconds since 1970."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_time_millis: int
    offset_msg_id: str
    unique_key: str
    reconsume_times: int
    properties: Mapping[str, str]

    @property
    def target_topic(self) -> str:
        """The topic that it goes to, or lies in."""
        return self.properties.get(REAL_TOPIC, self.topic) if self.topic in WAITING_TOPICS else self.topic

    @property
    def is_copy(self) -> bool:
        """Whether it is a retry or a dead letter."""
        return self.target_topic.startswith((RETRY_PREFIX, DLQ_PREFIX))

    @property
    def origin_topic(self) -> str:
        """The topic that its producer sent it to; empty when a copy does not say."""
        if not self.is_copy:
            return self.target_topic
        return self.properties.get(RETRY_TOPIC) or self.properties.get(DLQ_ORIGIN_TOPIC) or ""

    @property
    def origin_offset(self) -> int | None:
        """Where in the log the record is that a producer sent; None when a copy does not say (bytes)."""
        origin_id = self.properties.get(ORIGIN_MESSAGE_ID) or self.properties.get(DLQ_ORIGIN_MESSAGE_ID) or ""
        try:
            return decode_offset_msg_id(origin_id)[1] if origin_id else None
        except StoreError:  # any text may stand there
            return None

    @property
    def is_recall(self) -> bool:
        """Whether it is no message: it says that one is recalled."""
        return self.topic == TIMER_TOPIC and TIMER_DEL_UNIQKEY in self.properties

    @property
    def moved_from_topic(self) -> str:
        """The topic of the record that it was made of; empty when it does not say."""
        parts = self.properties.get(MOVED_FROM, "").split(" ", 2)
        return parts[2] if len(parts) == 3 else ""

    @property
    def state(self) -> MessageState:
        """By its topic; of a record that waited once, whether the wait is over stands elsewhere (waits.py)."""
        if self.topic == HALF_TOPIC:
            return MessageState.PENDING_TRANSACTION
        return MessageState.SCHEDULED if self.topic in WAITING_TOPICS else MessageState.STORED

    @property
    def timer_millis(self) -> int | None:
        """When a message of the timer topic is due; None for others and when it does not say."""
        return timer_due_millis(self.properties, self.store_time_millis) if self.topic == TIMER_TOPIC else None


FactsOf: TypeAlias = Callable[[StoredMessage], TrackedMessage]
