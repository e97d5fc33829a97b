"""List topics: every configured topic and every topic with a queue, on all shards, by name; or one, or some by part of it."""

import contextlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.ports.deadline import Deadline
from gateway.ports.shard import QueueRange, Shard
from gateway.ports.shards import Shards
from gateway.queries.completeness import Completeness, ShardOutcome, judge, raise_first_error
from gateway.queries.limits import PAGE_BYTES_MAX, check_topic, page_size
from gateway.queries.page_token import PageTokens
from store.errors import PermissionDeniedError, StoreError

METHOD = "ListTopics"
_AFTER = "after"
# A queue's numbers and field tags in an answer, in bytes, next to its shard's name.
_QUEUE_SIZE_BYTES = 48


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic and its queues, each with its shard's name."""

    topic: str
    queues: tuple[tuple[str, QueueRange], ...]

    @property
    def size_bytes(self) -> int:
        """Upper bound of what it adds to an answer."""
        return len(self.topic.encode()) + 16 + sum(len(name.encode()) + _QUEUE_SIZE_BYTES for name, _ in self.queues)


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """Topics by name; the token is empty at the end."""

    topics: tuple[TopicRow, ...]
    next_page_token: str
    completeness: Completeness
    outcomes: tuple[ShardOutcome, ...]


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which topics.

    Attributes:
        topic: the only one, by its whole name; empty: all.
        name_contains: what their names hold, in upper or lower case; empty: anything.
        after: only those behind this name.

    Raises:
        InvalidArgumentError: `topic` can be no topic's name.
    """

    topic: str = ""
    name_contains: str = ""
    after: str = ""

    def __post_init__(self) -> None:
        if self.topic:
            check_topic(self.topic)

    def holds(self, topic: str) -> bool:
        """Whether it is one of them."""
        return (
            topic > self.after
            and self.topic in ("", topic)
            and (not self.name_contains or self.name_contains.lower() in topic.lower())
        )

    def sealed_fields(self) -> dict[str, str | int | None]:
        """What a page token is bound to."""
        fields = {"topic": self.topic, "name_contains": self.name_contains}
        return {name: text for name, text in fields.items() if text}


ALL_TOPICS = TopicChoice()


def list_topics(
    shards: Shards[object],
    tokens: PageTokens,
    page_size_asked: int,
    page_token: str,
    deadline: Deadline,
    choice: TopicChoice = ALL_TOPICS,
) -> TopicAnswer:
    """One page. A configured queue without a file is there with the range [0, 0).

    Raises:
        InvalidArgumentError, InvalidPageTokenError: by field.
        StoreError: no shard answered.
    """
    count_max = page_size(page_size_asked, "page_size")
    sealed = choice.sealed_fields()
    choice = replace(choice, after=str(tokens.open(page_token, METHOD, sealed).get(_AFTER, "")))

    shard_deadline = deadline.for_one_of(len(shards))

    def ask(shard: Shard[object]) -> tuple[list[QueueRange], StoreError | None]:
        problem = shard.archive.problem(None, shard_deadline) if shard.archive is not None else None
        return _queues_of(shard, choice, count_max + 1, shard_deadline), problem

    answers = shards.fan_out.ask(shards, ask)
    outcomes = []
    queues_by_topic: dict[str, list[tuple[str, QueueRange]]] = {}
    for shard, answer in zip(shards, answers, strict=True):
        if isinstance(answer, StoreError):
            outcomes.append(ShardOutcome(shard.broker_name, answer, complete=False))
            continue
        queues, problem = answer
        outcomes.append(ShardOutcome(shard.broker_name, problem, complete=problem is None))
        for queue in queues:
            queues_by_topic.setdefault(queue.topic, []).append((shard.broker_name, queue))
    if all(isinstance(answer, StoreError) for answer in answers):
        raise_first_error(outcomes)
    rows = [TopicRow(topic, tuple(queues)) for topic, queues in sorted(queues_by_topic.items())]
    page = _first_rows(rows, count_max)
    more = len(page) < len(rows)
    token = tokens.seal(METHOD, sealed, {_AFTER: page[-1].topic}) if more else ""
    return TopicAnswer(tuple(page), token, judge(outcomes, more=more), tuple(outcomes))


def _queues_of(shard: Shard[object], choice: TopicChoice, topic_count_max: int, deadline: Deadline) -> list[QueueRange]:
    """The queues of the first topics."""
    counts = shard.topics.queue_counts(deadline)
    listed: Sequence[QueueRange] = ()
    # A topic that the caller may not see is in no list, as if it were not there.
    with contextlib.suppress(PermissionDeniedError):
        listed = shard.queues.list_queues(choice.topic or None, deadline)
    there = (topic for topic in {*counts, *(queue.topic for queue in listed)} if choice.holds(topic))
    topics = set(heapq.nsmallest(topic_count_max, there))
    queues = {
        (topic, queue_id): QueueRange(topic, queue_id, 0, 0)
        for topic in topics
        for queue_id in range(counts.get(topic, 0))
    }
    queues |= {(queue.topic, queue.queue_id): queue for queue in listed if queue.topic in topics}
    return [queues[key] for key in sorted(queues)]


def _first_rows(rows: Sequence[TopicRow], count_max: int) -> Sequence[TopicRow]:
    size_bytes = 0
    for index, row in enumerate(rows[:count_max]):
        size_bytes += row.size_bytes
        if index and size_bytes > PAGE_BYTES_MAX:
            return rows[:index]
    return rows[:count_max]
