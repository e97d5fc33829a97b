"""Shards that record what they are asked: they answer a query as usual, and the record explains it.

They are a link of the chain of each shard, so they record what really happened, archives and ends of pages included.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gateway.ports.chain import Answering, Concern, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    GET_RECORD,
    GET_RECORDS,
    GET_UNITS,
    KEYS_PROGRESS,
    LIST_QUEUES,
    LIST_TOPICS,
    QUEUES_PROGRESS,
    SEARCH_KEY,
    SEARCH_OFFSET,
    Built,
    Shard,
    head_size_bytes,
    is_blank,
    store_millis,
    window_of,
)
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.completeness import was_dropped
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import StoreError

# Characters of what a candidate is instead of a match.
DETAIL_CHARACTERS_MAX = 200
# Whether a record has the key that was searched for.
HasKey = Callable[[StoredMessage, str], bool]
Rejected: TypeAlias = gateway_pb.ShardExplanation.Rejected
Step: TypeAlias = gateway_pb.ShardExplanation.Step


@dataclass(slots=True)
class Lookup:
    """The searches for one key of one topic, and what became of their candidates.

    Attributes:
        topic: the topic.
        key: the key.
        window: store times.
        passed_over: why the index was not asked; unspecified when it was.
        explanations: what the index said of each round; None where it did not say.
        candidates: where records with the key's hash start (bytes of the log).
        matches: those that are matches.
        rejected: those that are none.
        is_limited: only candidates that were read are counted, and none that the caller may not see.
    """

    topic: str
    key: str
    window: TimeWindow
    passed_over: gateway_pb.PassedOver = gateway_pb.PASSED_OVER_UNSPECIFIED
    explanations: list[index_pb.KeyExplanation | None] = field(default_factory=list)
    candidates: list[int] = field(default_factory=list)
    matches: set[int] = field(default_factory=set)
    rejected: dict[int, Rejected] = field(default_factory=dict)
    is_limited: bool = False

    @property
    def candidate_count(self) -> int:
        """Candidates."""
        return len(self.matches) + len(self.rejected) if self.is_limited else len(self.candidates)

    @property
    def unread_count(self) -> int:
        """Candidates that were not read."""
        return 0 if self.is_limited else len(self.candidates) - len(self.matches) - len(self.rejected)

    @property
    def visits(self) -> list[gateway_pb.ShardExplanation.FileVisit]:
        """The visits of index files, round by round."""
        return [visit for explanation in self.explanations if explanation for visit in explanation.visits]

    def note(self, offset: int, outcome: StoredMessage | StoreError, has_key: HasKey) -> None:
        """Records the outcome of reading a candidate."""
        if isinstance(outcome, StoreError):
            is_dropped = was_dropped(outcome, offset)
            reason = gateway_pb.REJECTION_DROPPED if is_dropped else gateway_pb.REJECTION_UNREADABLE
            self._reject(offset, reason, outcome.message)
        elif outcome.topic != self.topic:
            self._reject(offset, gateway_pb.REJECTION_OTHER_TOPIC, f"topic {outcome.topic}")
        elif not has_key(outcome, self.key):
            keys = " ".join((*outcome.keys, outcome.unique_key)).strip()
            self._reject(offset, gateway_pb.REJECTION_OTHER_KEY, f"keys {keys}")
        elif not self.window.holds(store_millis(outcome)):
            self._reject(offset, gateway_pb.REJECTION_OUT_OF_WINDOW, f"stored at {store_millis(outcome)} ms")
        else:
            self.matches.add(offset)

    def _reject(self, offset: int, reason: gateway_pb.Rejection, detail: str) -> None:
        detail = detail[:DETAIL_CHARACTERS_MAX]
        self.rejected[offset] = Rejected(commit_log_offset=offset, reason=reason, detail=detail)


class ShardRecord:
    """What one shard was asked; written by one thread at a time.

    Args:
        broker_name: the shard's.
        has_key: whether a record has the key that was searched for.
        clock: seconds, rising.

    Attributes:
        steps: calls by name.
        lookups: searches of the index, in order.
        error: the last one that a call ended with; None when all were answered.
        is_limited: the caller may not see all records.
    """

    def __init__(self, broker_name: str, has_key: HasKey, clock: Callable[[], float]) -> None:
        self.broker_name = broker_name
        self.steps: dict[str, Step] = {}
        self.lookups: list[Lookup] = []
        self.error: StoreError | None = None
        self.is_limited = False
        self._has_key = has_key
        self._clock = clock
        self._by_question: dict[tuple[str, str], Lookup] = {}
        self._by_candidate: dict[int, list[Lookup]] = {}

    @property
    def elapsed_micros(self) -> int:
        """Time of all calls."""
        return sum(step.elapsed_micros for step in self.steps.values())

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Records a call made in the block."""
        step = self.steps.setdefault(name, Step(name=name))
        step.call_count += 1
        began = self._clock()
        try:
            yield step
        except StoreError as error:
            self.error = error
            raise
        finally:
            step.elapsed_micros += round((self._clock() - began) * 1e6)

    def searched(self, request: index_pb.SearchKeyRequest, found: Built[index_pb.SearchKeyResponse]) -> None:
        """Records an answer of the index."""
        topic, key, answer = request.topic, request.key, found.answer
        lookup = self._by_question.get((topic, key))
        if lookup is None:
            lookup = self._by_question[topic, key] = Lookup(topic, key, window_of(request), found.passed_over)
            self.lookups.append(lookup)
        lookup.is_limited |= found.progress.is_limited
        self.is_limited |= found.progress.is_limited
        lookup.explanations.append(answer.explanation if answer.HasField("explanation") else None)
        lookup.candidates.extend(answer.commit_log_offsets)
        for offset in answer.commit_log_offsets:
            self._by_candidate.setdefault(offset, []).append(lookup)

    def read(self, offset: int, outcome: StoredMessage | StoreError) -> None:
        """Records an outcome of the log; of a record that the caller may not see, nothing."""
        if is_blank(outcome):
            return
        for lookup in self._by_candidate.get(offset, ()):
            if offset not in lookup.matches and offset not in lookup.rejected:
                lookup.note(offset, outcome, self._has_key)
                return


def recorded(
    shards: Shards, has_key: HasKey, clock: Callable[[], float] = time.perf_counter
) -> tuple[Shards, tuple[ShardRecord, ...]]:
    """The shards of one call with a record for each.

    Args:
        shards: answer the calls.
        has_key: whether a record has the key that was searched for.
        clock: seconds, rising.

    Returns:
        The shards to ask, and what each of them is asked from now on.
    """
    records = tuple(ShardRecord(shard.broker_name, has_key, clock) for shard in shards)
    asked = [_recorded(shard, record) for shard, record in zip(shards, records, strict=True)]
    return Shards(asked, shards.fan_out), records


def _recorded(shard: Shard, record: ShardRecord) -> Shard:
    def link(method: ShardMethod[Any, Any], request: Any, deadline: Deadline, below: Answering) -> Any:
        name = STEPS.get(method)
        if name is None:
            return below(method, request, deadline)
        if method is SEARCH_KEY:
            request = index_pb.SearchKeyRequest.FromString(request.SerializeToString())
            request.explain = True
        with record.step(name) as step:
            answer = below(method, request, deadline)
            _count(step, method, answer)
        if method is SEARCH_KEY:
            record.searched(request, answer)
        if method is GET_RECORDS:
            for offset, outcome in zip(request.commit_log_offsets, answer, strict=False):
                record.read(offset, outcome)
        return answer

    return shard.with_link(Concern.RECORDING, link)


# What is recorded, by the name of its step.
STEPS: Mapping[ShardMethod[Any, Any], str] = {
    GET_RECORD: "log.read",
    GET_RECORDS: "log.read",
    LIST_QUEUES: "queues.list",
    GET_UNITS: "queues.read",
    SEARCH_OFFSET: "queues.search",
    QUEUES_PROGRESS: "queues.wait",
    SEARCH_KEY: "index.search",
    KEYS_PROGRESS: "index.wait",
    LIST_TOPICS: "topics.list",
}


def _count(step: Step, method: ShardMethod[Any, Any], answer: Any) -> None:
    """Count what an answer brought; of what the caller may not see or count, nothing."""
    if method is GET_RECORD:
        _count_record(step, answer)
    elif method is GET_RECORDS:
        for outcome in answer:
            if not isinstance(outcome, StoreError) and not is_blank(outcome):
                _count_record(step, outcome)
    elif method is LIST_QUEUES:
        step.item_count += len(answer)
    elif method is LIST_TOPICS:
        step.item_count += len(answer.topics)
    elif method is GET_UNITS:
        step.item_count += len(answer.answer.units)
    elif method is SEARCH_KEY and not answer.progress.is_limited:
        step.item_count += len(answer.answer.commit_log_offsets)


def _count_record(step: Step, record: StoredMessage) -> None:
    step.item_count += 1
    step.message_bytes += head_size_bytes(record) + len(record.body)
