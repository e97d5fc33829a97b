"""The shards of a gateway: choosing one by name, and whether a topic is known to any.

`FanOut` asks several shards at once: the first on the caller's thread, the others on a shared pool.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Protocol, TypeVar

from gateway.ports.deadline import Deadline
from gateway.ports.shard import Shard, list_queues, queue_count_of, queues_progress, topics_of
from reput.consumequeue.v1.consumequeue_service_pb2 import Queue
from store.errors import (
    BrokerNotFoundError,
    QueueNotFoundError,
    ServiceUnavailableError,
    StoreError,
    TopicNotFoundError,
)

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class FanOut:
    """Calls a function for many items, in parallel when there is more than one.

    Args:
        thread_count_max: threads that all calls share.
    """

    def __init__(self, thread_count_max: int) -> None:
        self._pool = ThreadPoolExecutor(thread_count_max, thread_name_prefix="fan-out")

    def ask(self, items: Iterable[Item], call: Callable[[Item], Answer]) -> list[Answer | StoreError]:
        """For each item, in order, the answer or the StoreError that it raised."""
        first, *others = items
        # In the caller's context, so that spans belong to the caller's trace.
        futures = [self._pool.submit(copy_context().run, _ask_one, call, item) for item in others]
        answers = [_ask_one(call, first)]
        answers += [future.result() for future in futures]
        return answers

    def start(self, call: Callable[[], Answer]) -> "Future[Answer]":
        """Calls it on the pool. The call must not submit to this pool (deadlock)."""
        return self._pool.submit(copy_context().run, call)

    def close(self) -> None:
        """Start no more calls; running ones end."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _ask_one(call: Callable[[Item], Answer], item: Item) -> Answer | StoreError:
    try:
        return call(item)
    except StoreError as error:
        return error


class Shards:
    """1..N shards, in a fixed order, under distinct names.

    Args:
        shards: the shards; at least one.
        fan_out: asks several at once.
        is_limited: their answers leave out topics or groups that the caller may not see.
    """

    def __init__(self, shards: Sequence[Shard], fan_out: FanOut, *, is_limited: bool = False) -> None:
        assert shards, "a gateway without shards"
        assert len({shard.broker_name for shard in shards}) == len(shards), "two shards of one name"
        self._shards = tuple(shards)
        self.fan_out = fan_out
        self.is_limited = is_limited

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)

    def now(self) -> "Shards":
        """Itself: a fixed set of shards is its own snapshot (see shards/directory.py)."""
        return self

    def named(self, broker_name: str) -> Shard:
        """The shard of that name, or the only one when the name is empty; BrokerNotFoundError."""
        if not broker_name and len(self._shards) == 1:
            return self._shards[0]
        for shard in self._shards:
            if shard.broker_name == broker_name:
                return shard
        names = ", ".join(shard.broker_name for shard in self._shards)
        what = (
            f"No shard is called {broker_name!r}"
            if broker_name
            else "There are several shards: broker_name must choose"
        )
        raise BrokerNotFoundError(f"{what}; there are: {names}.", brokerName=broker_name, brokerNames=names)


class ShardsSource(Protocol):
    """Gives the current shards."""

    def now(self) -> Shards:
        """A snapshot, for one call."""


def knows_topic(shard: Shard, topic: str, deadline: Deadline) -> bool:
    """Whether the topic is configured in the shard or has a queue there."""
    return topic in topics_of(shard, deadline) or bool(list_queues(shard, topic, deadline))


def require_topic(shards: Shards, topic: str, deadline: Deadline) -> None:
    """TopicNotFoundError when no shard knows the topic; the error of a shard that failed when no other knows it."""
    answers = shards.fan_out.ask(shards, lambda shard: knows_topic(shard, topic, deadline))
    if True in answers:
        return
    for answer in answers:
        if isinstance(answer, StoreError):
            raise answer
    raise topic_not_found(topic)


def topic_not_found(topic: str) -> TopicNotFoundError:
    """The error for an unknown topic."""
    return TopicNotFoundError(f"The store has no topic {topic!r}.", topic=topic)


def list_built_queues(shard: Shard, topic: str, deadline: Deadline) -> Sequence[Queue]:
    """The ranges of a topic's queues, which have all messages; errors as `require_built_queues`."""
    require_built_queues(shard, topic, deadline)  # before the ranges: they may lack what is built meanwhile
    return list_queues(shard, topic, deadline)


def require_built_queues(shard: Shard, topic: str, deadline: Deadline) -> None:
    """Returns if the queues have all messages of the log.

    Raises:
        ServiceUnavailableError: they are being built; a range may end too early, or a queue be missing.
    """
    progress = queues_progress(shard, deadline)
    if progress.catching_up:
        raise ServiceUnavailableError(
            f"The queues of shard {shard.broker_name} are being built, up to byte {progress.next_offset} of the log: how "
            f"many messages {topic!r} has is not known yet. Ask again; reput status shows how far they are.",
            service="consumequeue",
            brokerName=shard.broker_name,
        )


def has_unwritten_queue(shard: Shard, topic: str, queue_id: int, deadline: Deadline) -> bool:
    """Whether a queue without files is configured: it exists and is empty.

    TopicNotFoundError or QueueNotFoundError when it is not.
    """
    known = topics_of(shard, deadline).get(topic)
    if known is not None and queue_id < queue_count_of(known):
        return True
    if known is None and not list_queues(shard, topic, deadline):
        raise topic_not_found(topic)
    raise QueueNotFoundError(f"Topic {topic!r} has no queue {queue_id}.", topic=topic, queueId=queue_id)


def require_queue(shard: Shard, topic: str, queue_id: int, deadline: Deadline) -> None:
    """As `require_queues`."""
    require_queues(shard, topic, {queue_id}, deadline)


def require_queues(shard: Shard, topic: str, queue_ids: Set[int], deadline: Deadline) -> None:
    """TopicNotFoundError or QueueNotFoundError for queues that a shard neither has nor is configured to have.

    A shard that cannot tell now raises nothing.
    """
    try:
        missing = queue_ids - {queue.queue_id for queue in list_queues(shard, topic, deadline)}
        if missing:  # queues are configured from 0 on
            has_unwritten_queue(shard, topic, max(missing), deadline)
    except (TopicNotFoundError, QueueNotFoundError):
        raise
    except StoreError:
        return
