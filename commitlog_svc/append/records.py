"""The appender's input and output for one record: PreparedRecord and AppendReceipt; and how a message waits."""

from dataclasses import dataclass
from typing import NamedTuple

from commitlog_svc.append.topics.queue_offsets import QueueKey


class WaitingMessage(NamedTuple):
    """How a message waits: `waiting.py`.

    Attributes:
        topic: its own topic; its record is in a system topic.
        queue_id: the queue of that topic.
        recall_millis: the time in its recall handle, since 1970; 0: it has none.
        is_half: it waits for the verdict of its transaction.
    """

    topic: str
    queue_id: int
    recall_millis: int = 0
    is_half: bool = False


class PreparedRecord(NamedTuple):
    """An encoded record that lacks its place in the log.

    Attributes:
        queue_key: the queue it goes to.
        unique_key: its UNIQ_KEY; empty when it has none.
        data: the encoded record, with zeros for queue offset, commit-log offset, store time and CRC.
        takes_queue_offset: False for prepared and rolled-back messages: they stand in no queue, their queue offset is 0.
        waiting: how its message waits; None for an ordinary one.
        light_queues: it gets a position in each of them, in this order: `data` names them in INNER_MULTI_DISPATCH.
    """

    queue_key: QueueKey
    unique_key: str
    data: bytearray
    takes_queue_offset: bool = True
    waiting: WaitingMessage | None = None
    light_queues: tuple[str, ...] = ()

    @property
    def topic(self) -> str:
        """The topic of the message, also when it waits."""
        return self.queue_key[0] if self.waiting is None else self.waiting.topic


@dataclass(slots=True)
class AppendReceipt:
    """The receipt of one message: its queue offset, commit-log offset and store time.

    Attributes:
        commit_log_offset: the record's first byte in the log.
        store_size_bytes: size of the record.
        queue_id: the queue; that of its own topic for a message that waits, as RocketMQ answers.
        queue_offset: position of the record in its queue, in messages.
        store_time_millis: since 1970.
        unique_key: the message's UNIQ_KEY; empty when it has none.
        deduplicated: this is the receipt of an older message; nothing was written for this one.
        waiting: how the message waits; None for an ordinary one.
    """

    commit_log_offset: int
    store_size_bytes: int
    queue_id: int
    queue_offset: int
    store_time_millis: int
    unique_key: str
    deduplicated: bool = False
    waiting: WaitingMessage | None = None

    @property
    def end_offset(self) -> int:
        """The byte behind the record."""
        return self.commit_log_offset + self.store_size_bytes
