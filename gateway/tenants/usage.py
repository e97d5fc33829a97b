"""Usage: what namespaces have in the shards: their topics, groups and stored bytes, rates and lag.

Everything is asked of the shards, which keep it: the topics and groups are configured there, the stored bytes are a function of
the log (consumequeue_svc/stored_bytes.py), and the consumer services count what came.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gateway.groups.asking import ask_groups
from gateway.ports.deadline import Deadline
from gateway.ports.groups import GET_FIGURES, GET_GROUP, LIST_GROUPS, lag_count
from gateway.ports.shard import LIST_STORED, Shard, topics_of
from gateway.ports.shards import Shards
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from store.errors import GroupNotFoundError, StoreError
from store.format.topic import DLQ_PREFIX, RETRY_PREFIX, namespace_of

Answer = TypeVar("Answer")

# Keys of one GetFigures.
FIGURE_COUNT_MAX = 16_384
# What ends a namespace in a name.
PERCENT = "%"


@dataclass(slots=True)
class Usage:
    """What a namespace has.

    Attributes:
        topics: the names of its topics, without retry and dead-letter topics of its groups.
        groups: the names of its groups.
        stored_bytes: of all its topics, in the logs of all shards.
        queue_topics: the names of all topics with queues, also of retry and dead-letter topics.
    """

    topics: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    stored_bytes: int = 0
    queue_topics: set[str] = field(default_factory=set)


def usage_of(shards: Shards, deadline: Deadline) -> dict[str, Usage]:
    """What each namespace has; StoreError when a shard does not answer."""
    found: dict[str, Usage] = {}

    def of(name: str) -> Usage:
        return found.setdefault(namespace_of(name), Usage())

    within = deadline.for_one_of(len(shards))
    for topics, groups, queues in _answers(shards, lambda shard: _parts(shard, within)):
        for topic in topics:
            of(topic).topics.add(topic)
        for group in groups:
            of(group).groups.add(group)
        for queue in queues:
            usage = of(queue.topic)
            usage.stored_bytes += queue.stored_bytes
            usage.queue_topics.add(queue.topic)
    for usage in found.values():
        usage.topics -= topics_of_groups(usage.topics, usage.groups)
    return found


def topics_of_groups(topics: Collection[str], groups: Collection[str]) -> set[str]:
    """Those of some topics that are retry and dead-letter topics of these groups; such a name without a group is any topic."""
    return {topic for topic in topics if is_topic_of_group(topic, groups, topics)}


def is_topic_of_group(topic: str, groups: Collection[str], topics: Collection[str]) -> bool:
    """Whether it is the retry or dead-letter topic of one of these groups, and, where it names one, of one of these topics."""
    if topic.startswith(DLQ_PREFIX):
        return topic.removeprefix(DLQ_PREFIX) in groups
    if not topic.startswith(RETRY_PREFIX):
        return False
    of_group = topic.removeprefix(RETRY_PREFIX)
    if of_group in groups:
        return True
    # The retry topic of a group that pops a topic has both names in it.
    ends = [at for at, character in enumerate(of_group) if character in "_+" and of_group[:at] in groups]
    popped = (of_group[end + 1 :] for end in ends)
    return any(name in topics and not name.startswith((RETRY_PREFIX, DLQ_PREFIX)) for name in popped)


def sent_rates(shards: Shards, topics: Iterable[str], deadline: Deadline) -> Mapping[str, tuple[float, float]]:
    """Messages and bytes a second that topics got in the last minute, by topic; likewise."""
    names = sorted(topics)
    within = deadline.for_one_of(len(shards))

    def ask(shard: Shard) -> list[consumer_pb.Figure]:
        figures: list[consumer_pb.Figure] = []
        if shard.has(GET_FIGURES):
            for at in range(0, len(names), FIGURE_COUNT_MAX):
                keys = [
                    consumer_pb.FigureKey(kind=consumer_pb.FIGURE_KIND_APPENDED, topic=topic)
                    for topic in names[at : at + FIGURE_COUNT_MAX]
                ]
                figures += ask_groups(shard, GET_FIGURES, consumer_pb.GetFiguresRequest(keys=keys), within).figures
        return figures

    rates: dict[str, tuple[float, float]] = {}
    for figures in _answers(shards, ask):
        for topic, figure in zip(names, figures, strict=False):  # a shard without consumer service has none
            seconds = figure.minute.duration_millis / 1_000
            if seconds:
                messages, size_bytes = rates.get(topic, (0.0, 0.0))
                minute = figure.minute
                rates[topic] = messages + minute.message_count / seconds, size_bytes + minute.size_bytes / seconds
    return rates


def lag_of(shards: Shards, groups: Sequence[str], deadline: Deadline) -> Mapping[str, int]:
    """Messages that groups have not consumed, by group, over all shards; likewise."""
    within = deadline.for_one_of(len(shards))

    def ask(shard: Shard) -> dict[str, int]:
        lags = {}
        for group in groups if shard.has(GET_GROUP) else ():
            try:
                answer = ask_groups(shard, GET_GROUP, consumer_pb.GetGroupRequest(consumer_group=group), within)
            except GroupNotFoundError:
                continue
            lags[group] = sum(max(lag_count(queue), 0) for queue in answer.queues)
        return lags

    answers = _answers(shards, ask)
    return {group: sum(lags.get(group, 0) for lags in answers) for group in groups}


def _parts(shard: Shard, deadline: Deadline) -> tuple[list[str], list[str], Sequence[queue_pb.Queue]]:
    topics = [name for name in topics_of(shard, deadline) if namespace_of(name)]
    groups: list[str] = []
    if shard.has(LIST_GROUPS):
        request = consumer_pb.ListGroupsRequest(name_contains=PERCENT)
        page = ask_groups(shard, LIST_GROUPS, request, deadline).groups
        groups = [each.consumer_group for each in page if namespace_of(each.consumer_group)]
    queues = shard.call(LIST_STORED, queue_pb.ListQueuesRequest(of_namespaces=True), deadline)
    return topics, groups, queues


def _answers(shards: Shards, ask: Callable[[Shard], Answer]) -> list[Answer]:
    answers: list[Answer] = []
    for answer in shards.fan_out.ask(shards, ask):
        if isinstance(answer, StoreError):
            raise answer
        answers.append(answer)
    return answers
