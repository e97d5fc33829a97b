"""A shard whose answers say what its store holds elsewhere, and which messages were deleted with their topic.

What is elsewhere is in a feature of RocketMQ that is not read (docs/features.md). Candidates of a topic of which more may be
there, and units and positions before the begin of its queue, have a `problem`, which makes an answer PARTIAL and names the
feature.

A topic was deleted at a byte of the log (ADR 0105). Its records before that byte are marked, wherever they were read. While
nothing says what was deleted, no record is given: the call fails with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Generic

from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    STORE_FACTS,
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
    Shard,
    held_elsewhere,
)
from gateway.ports.time_window import TimeWindow
from store.errors import StoreError


def with_facts(shard: Shard[Message]) -> Shard[Message]:
    """The shard, with what its store says; unchanged when it says nothing."""
    if not shard.has(STORE_FACTS):
        return shard
    return replace(
        shard, records=FactsRecords(shard), queues=FactsQueues(shard.queues, shard), keys=FactsKeys(shard.keys, shard)
    )


class FactsRecords(Generic[Message]):
    """A RecordReader."""

    def __init__(self, shard: Shard[Message]) -> None:
        self._records = shard.records
        self._shard = shard

    def get(self, commit_log_offset: int, deadline: Deadline) -> FoundRecord[Message]:
        """See the port."""
        record = self._records.get(commit_log_offset, deadline)
        return _marked(record, self._shard.call(STORE_FACTS, None, deadline).deleted_before)

    def get_many(
        self, commit_log_offsets: Sequence[int], body_bytes_max: int, deadline: Deadline
    ) -> Sequence[FoundRecord[Message] | StoreError]:
        """See the port."""
        outcomes = self._records.get_many(commit_log_offsets, body_bytes_max, deadline)
        if all(isinstance(each, StoreError) for each in outcomes):
            return outcomes
        deleted = self._shard.call(STORE_FACTS, None, deadline).deleted_before
        return (
            [each if isinstance(each, StoreError) else _marked(each, deleted) for each in outcomes]
            if deleted
            else outcomes
        )


def _marked(record: FoundRecord[Message], deleted_before: Mapping[str, int]) -> FoundRecord[Message]:
    is_deleted = record.commit_log_offset < deleted_before.get(record.topic, 0)
    return replace(record, is_deleted=True) if is_deleted else record


class FactsKeys:
    """A KeyLocator."""

    def __init__(self, keys: KeyLocator, shard: Shard[object]) -> None:
        self._keys = keys
        self._shard = shard
        self.progress = keys.progress

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
        found = self._keys.search(
            topic, key, window, below_offset=below_offset, count_max=count_max, deadline=deadline, explain=explain
        )
        problem = found.problem or held_elsewhere(self._shard, topic, deadline)
        return found if problem is found.problem else replace(found, problem=problem)


class FactsQueues:
    """A QueueLocator."""

    def __init__(self, queues: QueueLocator, shard: Shard[object]) -> None:
        self._queues = queues
        self._shard = shard

    def list_queues(self, topic: str | None, deadline: Deadline) -> Sequence[QueueRange]:
        """See the port."""
        return self._queues.list_queues(topic, deadline)

    def units(
        self, topic: str, queue_id: int, queue_offset: int, unit_count_max: int, deadline: Deadline
    ) -> QueueStretch:
        """See the port."""
        stretch = self._queues.units(topic, queue_id, queue_offset, unit_count_max, deadline)
        if stretch.problem is not None or queue_offset >= stretch.min_offset:
            return stretch
        return replace(stretch, problem=held_elsewhere(self._shard, topic, deadline))

    def search_offset(
        self, topic: str, queue_id: int, time_millis: int, boundary: Boundary, deadline: Deadline
    ) -> FoundOffset:
        """See the port."""
        found = self._queues.search_offset(topic, queue_id, time_millis, boundary, deadline)
        if found.problem is not None or not found.min_offset or not found.is_at_front(time_millis, boundary):
            return found
        return replace(found, problem=held_elsewhere(self._shard, topic, deadline))

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """See the port."""
        return self._queues.progress(past_offset, wait_seconds, deadline)
