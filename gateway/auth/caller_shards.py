"""The shards as a caller may see them: what is of other topics does not come through the ports.

Theory of operation: the rules (rules.py) look at what a request names. What an answer may hold is decided here, below all
queries, so that one that is written tomorrow leaks nothing either. The guard says for whom the thread works (`work_for`);
a query takes its shards from `CallerShards.now()`, which wraps their ports:

    a topic that may not be seen         is in no list
    its queues, its keys                 PERMISSION_DENIED
    one record of it, by its address     PERMISSION_DENIED
    many records                         a record of it is a blank without topic, keys and body: a query takes it for
                                         another key's hash hit

Who asks without a caller gets nothing: a forgotten `work_for` fails, and is no way round.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from gateway.auth.access import Access, Roles
from gateway.deadline import Deadline
from gateway.ports import FoundRecord, KeyLocator, QueueLocator, QueueRange, RecordReader, Shard, TopicCatalog
from gateway.shards import Shards, ShardsSource
from reput.message.v1 import message_pb2
from store.errors import PermissionDeniedError, StoreError


@dataclasses.dataclass(frozen=True, slots=True)
class Sight:
    """What a caller may see: the topics for which it has one of the roles.

    Attributes:
        access: the caller's rights.
        roles: those that count for what it calls.
    """

    access: Access
    roles: Roles

    def holds(self, topic: str) -> bool:
        """Whether the topic may be seen."""
        return self.access.allows(self.roles, topic)

    def check(self, topic: str) -> None:
        """PermissionDeniedError when it may not."""
        if not self.holds(topic):
            raise self.refusal(f"topic {topic!r}", topic=topic)

    def refusal(self, what: str, **metadata: object) -> PermissionDeniedError:
        """The error that says so."""
        roles = " or ".join(sorted(role.value for role in self.roles))
        return PermissionDeniedError(
            f"{self.access.name} may not {roles} {what}: the access file says who may (docs/security.md)",
            client=self.access.name,
            role=roles,
            **metadata,
        )


_sight: ContextVar[Sight | None] = ContextVar("reput_caller_sight", default=None)


@contextlib.contextmanager
def work_for(sight: Sight) -> Iterator[None]:
    """This thread works for that caller inside the block."""
    token = _sight.set(sight)
    try:
        yield
    finally:
        _sight.reset(token)


class CallerShards:
    """A ShardsSource for the caller of the moment.

    Args:
        source: all shards.
    """

    def __init__(self, source: ShardsSource) -> None:
        self._source = source

    def now(self) -> Shards:
        """See ShardsSource."""
        sight = _sight.get()
        if sight is None:
            raise StoreError("shards were asked for without a caller; this is a bug of the gateway")
        shards = self._source.now()
        if sight.access.has_all_topics(sight.roles):
            return shards
        return Shards([_seen(shard, sight) for shard in shards], shards.fan_out)


def _seen(shard: Shard, sight: Sight) -> Shard:
    return dataclasses.replace(
        shard,
        records=SeenRecords(shard.records, sight),
        queues=SeenQueues(shard.queues, sight),
        keys=SeenKeys(shard.keys, sight),
        topics=SeenTopics(shard.topics, sight),
    )


class SeenRecords:
    """A RecordReader."""

    def __init__(self, records: RecordReader, sight: Sight) -> None:
        self._records = records
        self._sight = sight

    def get(self, commit_log_offset: int, deadline: Deadline) -> FoundRecord:
        """See the port."""
        record = self._records.get(commit_log_offset, deadline)
        if not self._sight.holds(record.topic):  # whose it is is not said
            raise self._sight.refusal("the topic of the message there", commitLogOffset=commit_log_offset)
        return record

    def get_many(
        self, commit_log_offsets: Sequence[int], body_bytes_max: int, deadline: Deadline
    ) -> Sequence[FoundRecord | StoreError]:
        """See the port."""
        outcomes = self._records.get_many(commit_log_offsets, body_bytes_max, deadline)
        return [
            outcome if isinstance(outcome, StoreError) or self._sight.holds(outcome.topic) else _blank(outcome)
            for outcome in outcomes
        ]


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

    def units(self, topic: str, *args: Any, **kwargs: Any) -> Any:
        """See the port."""
        self._sight.check(topic)
        return self._queues.units(topic, *args, **kwargs)

    def search_offset(self, topic: str, *args: Any, **kwargs: Any) -> Any:
        """See the port."""
        self._sight.check(topic)
        return self._queues.search_offset(topic, *args, **kwargs)

    def progress(self, *args: Any, **kwargs: Any) -> Any:
        """See the port."""
        return self._queues.progress(*args, **kwargs)


class SeenKeys:
    """A KeyLocator."""

    def __init__(self, keys: KeyLocator, sight: Sight) -> None:
        self._keys = keys
        self._sight = sight

    def search(self, topic: str, *args: Any, **kwargs: Any) -> Any:
        """See the port."""
        self._sight.check(topic)
        return self._keys.search(topic, *args, **kwargs)

    def progress(self, *args: Any, **kwargs: Any) -> Any:
        """See the port."""
        return self._keys.progress(*args, **kwargs)


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


def _blank(record: FoundRecord) -> FoundRecord:
    return dataclasses.replace(
        record,
        topic="",
        queue_id=-1,
        queue_offset=-1,
        store_host="",
        keys=(),
        unique_key="",
        body_size_bytes=0,
        payload=message_pb2.StoredMessage(),
    )
