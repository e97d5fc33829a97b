"""Shards limited to the topics that the caller may see.

The rules (rules.py) check the topics that a request names. These ports check the topics that an answer shows. They lie
below all queries, so a new query cannot show a forbidden topic by mistake. The guard sets the caller of the thread
(`work_for`); a query gets its shards from `CallerShards.now()`:

    port                             a topic that the caller may not see
    lists of topics and queues       is left out
    its queues, its keys             PERMISSION_DENIED: the caller has named it
    one record, by its offset        as an offset at which no record starts
    many records                     the record is replaced by a blank one without topic, keys and body; a query treats
                                     it as a record with another key

Without a caller `now` raises an error: a handler that forgets `work_for` fails.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Generic

from gateway.auth.access import Access, Roles
from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    Boundary,
    BuildProgress,
    Candidates,
    FoundOffset,
    FoundRecord,
    KeyLocator,
    Message,
    QueueLocator,
    QueueRange,
    QueueStretch,
    RecordReader,
    Shard,
    TopicCatalog,
)
from gateway.ports.shards import Shards, ShardsSource
from gateway.ports.time_window import TimeWindow
from store.errors import PermissionDeniedError, RecordNotFoundError, StoreError


@dataclasses.dataclass(frozen=True, slots=True)
class Sight:
    """The topics that a caller may see: those for which it has one of the roles.

    Attributes:
        access: the caller's rights.
        roles: the roles that allow the called method.
        note_hidden: called when a record was read that the caller may not see.
    """

    access: Access
    roles: Roles
    note_hidden: Callable[[], None] = lambda: None

    def holds(self, topic: str) -> bool:
        """Whether the caller may see the topic."""
        return self.access.allows(self.roles, topic)

    def check(self, topic: str) -> None:
        """PermissionDeniedError when the caller may not see the topic."""
        if not self.holds(topic):
            raise self.refusal(f"topic {topic!r}", topic=topic)

    def refusal(self, what: str, **metadata: object) -> PermissionDeniedError:
        """The error for something that the caller may not see."""
        roles = " or ".join(sorted(role.value for role in self.roles))
        return PermissionDeniedError(
            f"{self.access.name} may not {roles} {what}: the access file grants the rights (docs/security.md)",
            client=self.access.name,
            role=roles,
            **metadata,
        )


_sight: ContextVar[Sight | None] = ContextVar("reput_caller_sight", default=None)


@contextlib.contextmanager
def work_for(sight: Sight) -> Iterator[None]:
    """Sets the caller of this thread inside the block."""
    token = _sight.set(sight)
    try:
        yield
    finally:
        _sight.reset(token)


class CallerShards(Generic[Message]):
    """A ShardsSource whose shards show what the thread's caller may see.

    Args:
        source: all shards.
        blank: the message of a record that the caller may not see.
    """

    def __init__(self, source: ShardsSource[Message], blank: Message) -> None:
        self._source = source
        self._blank = blank

    def now(self) -> Shards[Message]:
        """See ShardsSource."""
        sight = _sight.get()
        if sight is None:
            raise StoreError("the gateway asked for shards without a caller; this is a bug of the gateway")
        shards = self._source.now()
        if sight.access.has_all_topics(sight.roles):
            return shards
        return Shards([self._seen(shard, sight) for shard in shards], shards.fan_out)

    def _seen(self, shard: Shard[Message], sight: Sight) -> Shard[Message]:
        return dataclasses.replace(
            shard,
            records=SeenRecords(shard.records, sight, self._blank),
            queues=SeenQueues(shard.queues, sight),
            keys=SeenKeys(shard.keys, sight),
            topics=SeenTopics(shard.topics, sight),
        )


class SeenRecords(Generic[Message]):
    """A RecordReader."""

    def __init__(self, records: RecordReader[Message], sight: Sight, blank: Message) -> None:
        self._records = records
        self._sight = sight
        self._blank = blank

    def get(self, commit_log_offset: int, deadline: Deadline) -> FoundRecord[Message]:
        """See the port."""
        record = self._records.get(commit_log_offset, deadline)
        if not self._sight.holds(record.topic):
            self._sight.note_hidden()
            raise self._absent(commit_log_offset, deadline)
        return record

    def _absent(self, commit_log_offset: int, deadline: Deadline) -> StoreError:
        """The error of an offset at which no record starts: that of the next byte, asked for. It takes a read more."""
        inside = commit_log_offset + 1
        try:
            self._records.get(inside, deadline)
        except RecordNotFoundError as error:
            hidden = RecordNotFoundError(error.message.replace(str(inside), str(commit_log_offset)))
            hidden.metadata = {
                name: str(commit_log_offset) if value == str(inside) else value
                for name, value in error.metadata.items()
            }
            return hidden
        except StoreError as error:
            return error
        return RecordNotFoundError(f"no record starts at commit-log offset {commit_log_offset}")

    def get_many(
        self, commit_log_offsets: Sequence[int], body_bytes_max: int, deadline: Deadline
    ) -> Sequence[FoundRecord[Message] | StoreError]:
        """See the port."""
        outcomes = self._records.get_many(commit_log_offsets, body_bytes_max, deadline)
        return [
            outcome if isinstance(outcome, StoreError) or self._sight.holds(outcome.topic) else self._blanked(outcome)
            for outcome in outcomes
        ]

    def _blanked(self, record: FoundRecord[Message]) -> FoundRecord[Message]:
        return dataclasses.replace(
            record,
            topic="",
            queue_id=-1,
            queue_offset=-1,
            store_host="",
            keys=(),
            unique_key="",
            body_size_bytes=0,
            message=self._blank,
        )


class SeenQueues:
    """A QueueLocator."""

    def __init__(self, queues: QueueLocator, sight: Sight) -> None:
        self._queues = queues
        self._sight = sight

    def list_queues(self, topic: str | None, deadline: Deadline) -> Sequence[QueueRange]:
        """See the port."""
        if topic:
            self._sight.check(topic)
        return [queue for queue in self._queues.list_queues(topic, deadline) if self._sight.holds(queue.topic)]

    def units(
        self, topic: str, queue_id: int, queue_offset: int, unit_count_max: int, deadline: Deadline
    ) -> QueueStretch:
        """See the port."""
        self._sight.check(topic)
        return self._queues.units(topic, queue_id, queue_offset, unit_count_max, deadline)

    def search_offset(
        self, topic: str, queue_id: int, time_millis: int, boundary: Boundary, deadline: Deadline
    ) -> FoundOffset:
        """See the port."""
        self._sight.check(topic)
        return self._queues.search_offset(topic, queue_id, time_millis, boundary, deadline)

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """See the port."""
        return self._queues.progress(past_offset, wait_seconds, deadline)


class SeenKeys:
    """A KeyLocator."""

    def __init__(self, keys: KeyLocator, sight: Sight) -> None:
        self._keys = keys
        self._sight = sight

    def search(
        self,
        topic: str,
        key: str,
        window: TimeWindow,
        *,
        below_offset: int | None,
        count_max: int,
        deadline: Deadline,
        explain: bool = False,
    ) -> Candidates:
        """See the port."""
        self._sight.check(topic)
        return self._keys.search(
            topic, key, window, below_offset=below_offset, count_max=count_max, deadline=deadline, explain=explain
        )

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """See the port."""
        return self._keys.progress(past_offset, wait_seconds, deadline)


class SeenTopics:
    """A TopicCatalog."""

    def __init__(self, topics: TopicCatalog, sight: Sight) -> None:
        self._topics = topics
        self._sight = sight

    def queue_counts(self, deadline: Deadline) -> Mapping[str, int]:
        """See the port."""
        counts = self._topics.queue_counts(deadline)
        return {topic: count for topic, count in counts.items() if self._sight.holds(topic)}

    def new_topic_queue_count(self, deadline: Deadline) -> int:
        """See the port."""
        return self._topics.new_topic_queue_count(deadline)
