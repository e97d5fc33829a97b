"""The queues of a topic, out of the list of all topics."""

from dataclasses import dataclass

from gateway.console.calls import Calls
from store.errors import StoreError, TopicNotFoundError

# Pages of a thousand topics that are looked through for one.
LIST_PAGE_COUNT_MAX = 20


@dataclass(frozen=True, slots=True)
class TopicQueue:
    """A queue and its range `[min_offset, max_offset)`."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def count(self) -> int:
        """Messages that can be had."""
        return max(0, self.max_offset - self.min_offset)


@dataclass(frozen=True, slots=True)
class TopicQueues:
    """The queues, and the answer that they are from, for its completeness."""

    queues: tuple[TopicQueue, ...]
    answer: object


def queues_of(calls: Calls, topic: str) -> TopicQueues:
    """All queues of the topic; TopicNotFoundError when there is no such topic."""
    problem: StoreError | None = None
    for answer in calls.topics(LIST_PAGE_COUNT_MAX):
        for row in answer.topics:
            if row.topic == topic:
                queues = (TopicQueue(q.broker_name, q.queue_id, q.min_offset, q.max_offset) for q in row.queues)
                return TopicQueues(tuple(queues), answer)
        if answer.topics and answer.topics[-1].topic > topic:
            break
        for shard in answer.shards:
            if shard.HasField("error"):
                problem = StoreError(
                    f"shard {shard.broker_name}, which may have it, did not answer: {shard.error.message}"
                )
    raise problem or TopicNotFoundError(f"The store has no topic {topic!r}.", topic=topic)
