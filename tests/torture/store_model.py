"""What a store is, in a hundred lines: a list of messages, of which crashes may take the end and retention the front.

Nothing here knows of files, offsets into them, hashes or checkpoints. The machine in `test_model.py` does everything to a
real store and to this list, and compares every answer.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One message as it was acknowledged; `end` is the first byte of the log behind it."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    keys: tuple[str, ...]
    unique_key: str
    store_time_millis: int
    offset: int
    end: int


@dataclass
class StoreModel:
    """The messages of a log, in order.

    Attributes:
        messages: what was acknowledged and is not known to be lost.
        durable_count: so many from the front no crash may take.
        queue_applied: the queues know the log before this byte.
        index_applied: the index knows the log before this byte.
    """

    messages: list[ModelMessage] = field(default_factory=list)
    durable_count: int = 0
    queue_applied: int = 0
    index_applied: int = 0

    @property
    def end(self) -> int:
        """Behind the last message; a blank may follow."""
        return self.messages[-1].end if self.messages else 0

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """What the next message of a queue gets."""
        return max((m.queue_offset + 1 for m in self.queue(topic, queue_id)), default=0)

    def append(self, messages: list[ModelMessage], *, is_durable: bool) -> None:
        """Acknowledged, in this order."""
        self.messages += messages
        if is_durable:
            self.flush()

    def flush(self) -> None:
        """All of it is on the disk."""
        self.durable_count = len(self.messages)

    def crash(self, kept_count: int) -> None:
        """Only so many are left, all of the durable ones among them."""
        assert self.durable_count <= kept_count <= len(self.messages), (self.durable_count, kept_count, self.messages)
        del self.messages[kept_count:]
        self.durable_count = kept_count
        self.queue_applied = min(self.queue_applied, self.end)
        self.index_applied = min(self.index_applied, self.end)

    def expire(self, first_offset: int) -> None:
        """What begins before that byte is gone."""
        gone = sum(m.offset < first_offset for m in self.messages)
        del self.messages[:gone]
        self.durable_count -= gone

    # -- the right answers

    def queue(self, topic: str, queue_id: int) -> list[ModelMessage]:
        """A queue's messages, in order."""
        return [m for m in self.messages if (m.topic, m.queue_id) == (topic, queue_id)]

    def by_queue(self, topic: str, queue_id: int, begin: int, count: int) -> list[ModelMessage]:
        """Up to `count` of a queue from a position on, as far as the queues are built."""
        queue = [m for m in self.queue(topic, queue_id) if m.offset < self.queue_applied]
        if not queue or not queue[0].queue_offset <= begin <= queue[-1].queue_offset:
            return []
        return [m for m in queue if m.queue_offset >= begin][:count]

    def by_key(self, topic: str, key: str, begin_millis: int, end_millis: int) -> list[ModelMessage]:
        """Newest first, as far as the index is built."""
        found = [m for m in self.messages if m.topic == topic and key in m.keys and m.offset < self.index_applied]
        return [m for m in reversed(found) if begin_millis <= m.store_time_millis <= end_millis]

    def by_unique_key(self, topic: str, unique_key: str) -> list[ModelMessage]:
        """Newest first."""
        found = [m for m in self.messages if m.topic == topic and m.unique_key == unique_key]
        return [m for m in reversed(found) if m.offset < self.index_applied]

    def at(self, offset: int) -> ModelMessage | None:
        """The message that begins at a byte of the log."""
        return next((m for m in self.messages if m.offset == offset), None)
