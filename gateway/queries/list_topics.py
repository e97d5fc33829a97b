"""List topics: every configured topic and every topic with a queue, on all shards, by name; or one, or some by part of it."""

import contextlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    ARCHIVE_PROBLEM,
    BuildProgress,
    Shard,
    list_queues,
    queue_count_of,
    queues_progress,
    topics_of,
)
from gateway.ports.shards import Shards
from gateway.queries.completeness import ShardOutcome, judge, raise_first_error
from gateway.queries.page import PAGE_BYTES_MAX, PageTokens, check_topic, page_size
from reput.commitlog.v1.commitlog_service_pb2 import ListTopicsResponse
from reput.consumequeue.v1.consumequeue_service_pb2 import Queue
from reput.message.v1 import message_pb2
from store.errors import PermissionDeniedError, StoreError, UnsupportedStoreError

Topic = ListTopicsResponse.Topic

METHOD = "ListTopics"
_AFTER = "after"
# Where the page before ended inside a topic: its name, a shard's name and a queue.
_IN_TOPIC, _IN_SHARD, _IN_QUEUE = "topic", "shard", "queue"
# Queues of a topic in a shard that are listed though they have no file: the first ones. A configured count may be any
# number of 32 bits, so it is given as a number. RocketMQ's default is 8 queues.
EMPTY_QUEUE_COUNT_MAX = 1_024
# A queue's numbers and field tags in an answer, in bytes, next to its shard's name.
_QUEUE_SIZE_BYTES = 48
# Likewise of the settings of a topic, next to the names of topic and shard.
_SETTINGS_SIZE_BYTES = 48


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic and its queues, each with its shard's name.

    `queue_count` is how many there are; those without a file are not all listed. `settings` has each shard's name and how it
    has the topic configured.
    """

    topic: str
    queues: tuple[tuple[str, Queue], ...]
    queue_count: int = 0
    settings: tuple[tuple[str, Topic], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Upper bound of what it adds to an answer."""
        name_bytes = len(self.topic.encode())
        settings_bytes = sum(len(name.encode()) + name_bytes + _SETTINGS_SIZE_BYTES for name, _ in self.settings)
        queues_bytes = sum(len(name.encode()) + _QUEUE_SIZE_BYTES for name, _ in self.queues)
        return name_bytes + 16 + settings_bytes + queues_bytes


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """Topics by name; the token is empty at the end."""

    topics: tuple[TopicRow, ...]
    next_page_token: str
    completeness: message_pb2.Completeness
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
    shards: Shards,
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
    place = tokens.open(page_token, METHOD, sealed)
    choice = replace(choice, after=str(place.get(_AFTER, "")))

    shard_deadline = deadline.for_one_of(len(shards))

    def ask(shard: Shard) -> tuple[list[ShardTopic], BuildProgress, StoreError | None]:
        """The first topics, how far the queues are built, and why the answer lacks something."""
        problem = shard.call(ARCHIVE_PROBLEM, "", shard_deadline) if shard.has(ARCHIVE_PROBLEM) else None
        progress = queues_progress(shard, shard_deadline)  # before the ranges: they may lack what is built meanwhile
        topics = _topics_of(shard, choice, count_max + 1, shard_deadline)
        hidden = next((topic.problem for topic in topics if topic.problem), "")
        return topics, progress, UnsupportedStoreError(hidden) if hidden else problem

    answers = shards.fan_out.ask(shards, ask)
    outcomes = []
    by_topic: dict[str, list[tuple[str, ShardTopic]]] = {}
    for shard, answer in zip(shards, answers, strict=True):
        if isinstance(answer, StoreError):
            outcomes.append(ShardOutcome(shard.broker_name, answer, complete=False))
            continue
        topics, progress, problem = answer
        # What the queues lack after a start is messages of days, or whole queues; what they lack otherwise is milliseconds.
        is_complete = problem is None and not progress.catching_up
        outcomes.append(ShardOutcome(shard.broker_name, problem, progress, complete=is_complete))
        for found in topics:
            by_topic.setdefault(found.topic, []).append((shard.broker_name, found))
    if all(isinstance(answer, StoreError) for answer in answers):
        raise_first_error(outcomes)
    rows: list[TopicRow] = []
    size_bytes = 0
    for topic in sorted(by_topic)[:count_max]:
        row = _row(topic, by_topic[topic])
        if not rows and topic == place.get(_IN_TOPIC):
            order = [shard.broker_name for shard in shards]
            row = _behind(row, order, str(place.get(_IN_SHARD)), int(place.get(_IN_QUEUE, 0)))
        rows.append(row)
        size_bytes += row.size_bytes
        if size_bytes > PAGE_BYTES_MAX:
            break  # the empty queues of further topics are not even made
    page, cut = _first_rows(rows)
    more = cut is not None or len(page) < len(by_topic)
    token = ""
    if cut is not None:
        # The next page goes on in the same topic.
        token = tokens.seal(METHOD, sealed, _place_in(choice.after, page[0].topic, *cut))
    elif more:
        token = tokens.seal(METHOD, sealed, {_AFTER: page[-1].topic})
    return TopicAnswer(tuple(page), token, judge(outcomes, more=more), tuple(outcomes))


@dataclass(frozen=True, slots=True)
class ShardTopic:
    """A topic in one shard: its queues with files, by number, how many are configured, and its settings where known.

    With a `problem` its queues are not served, except for their ranges.
    """

    topic: str
    ranges: dict[int, Queue]
    configured_count: int
    settings: Topic | None
    problem: str = ""

    @property
    def queue_count(self) -> int:
        """How many there are."""
        return self.configured_count + sum(queue_id >= self.configured_count for queue_id in self.ranges)

    def queues(self) -> list[Queue]:
        """Those that are listed, by number."""
        count = min(self.configured_count, EMPTY_QUEUE_COUNT_MAX)
        queues = {n: Queue(topic=self.topic, queue_id=n) for n in range(count)} | self.ranges
        return [queues[queue_id] for queue_id in sorted(queues)]


def _topics_of(shard: Shard, choice: TopicChoice, topic_count_max: int, deadline: Deadline) -> list[ShardTopic]:
    """The first topics."""
    settings = topics_of(shard, deadline)
    counts = {name: queue_count_of(topic) for name, topic in settings.items()}
    listed: Sequence[Queue] = ()
    # A topic that the caller may not see is in no list, as if it were not there.
    with contextlib.suppress(PermissionDeniedError):
        listed = _listed(shard, choice.topic, deadline)
    there = (topic for topic in {*counts, *(queue.topic for queue in listed)} if choice.holds(topic))
    ranges: dict[str, dict[int, Queue]] = {topic: {} for topic in heapq.nsmallest(topic_count_max, there)}
    problems = {queue.topic: queue.problem for queue in listed if queue.problem}
    for queue in listed:
        if queue.topic in ranges:
            ranges[queue.topic][queue.queue_id] = queue
    return [
        ShardTopic(topic, found, counts.get(topic, 0), settings.get(topic), problems.get(topic, ""))
        for topic, found in ranges.items()
    ]


def _listed(shard: Shard, topic: str, deadline: Deadline) -> Sequence[Queue]:
    """The queues of a topic, or all. Of queues that are not served only the list of all has the ranges."""
    try:
        return list_queues(shard, topic, deadline)
    except UnsupportedStoreError:
        of_topic = [queue for queue in list_queues(shard, None, deadline) if topic and queue.topic == topic]
        if not of_topic:
            raise
        return of_topic


def _place_in(after: str, topic: str, shard_name: str, last: Queue) -> dict[str, str | int]:
    return {_AFTER: after, _IN_TOPIC: topic, _IN_SHARD: shard_name, _IN_QUEUE: last.queue_id}


def _row(topic: str, found: Sequence[tuple[str, ShardTopic]]) -> TopicRow:
    queues = ((name, queue) for name, of_shard in found for queue in of_shard.queues())
    settings = ((name, of_shard.settings) for name, of_shard in found if of_shard.settings is not None)
    return TopicRow(topic, tuple(queues), sum(of_shard.queue_count for _, of_shard in found), tuple(settings))


def _behind(row: TopicRow, order: Sequence[str], shard_name: str, queue_id: int) -> TopicRow:
    """The row without the queues up to this one; shards that came meanwhile stand last."""
    if shard_name not in order:
        return row
    last = order.index(shard_name), queue_id
    queues = (each for each in row.queues if (order.index(each[0]), each[1].queue_id) > last)
    return replace(row, queues=tuple(queues))


def _first_rows(rows: Sequence[TopicRow]) -> tuple[Sequence[TopicRow], tuple[str, Queue] | None]:
    """As many rows as fit a page, at least a part of one; the last queue of a row that was cut."""
    size_bytes = 0
    for index, row in enumerate(rows):
        size_bytes += row.size_bytes
        if size_bytes <= PAGE_BYTES_MAX:
            continue
        if index:
            return rows[:index], None
        each_size_bytes = max(len(name.encode()) for name, _ in row.queues) + _QUEUE_SIZE_BYTES
        head_size_bytes = replace(row, queues=()).size_bytes
        kept = row.queues[: (PAGE_BYTES_MAX - head_size_bytes) // each_size_bytes]
        return [replace(row, queues=kept)], kept[-1]
    return rows, None
