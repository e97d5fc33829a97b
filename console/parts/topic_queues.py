"""The queues of a topic."""

from dataclasses import dataclass
from typing import Any

from console.calls import Calls
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import StoreError, TopicNotFoundError


@dataclass(frozen=True, slots=True)
class TopicQueue:
    """A queue and its range `[min_offset, max_offset)`."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def key(self) -> tuple[str, int]:
        """Broker name and queue id."""
        return self.broker_name, self.queue_id

    @property
    def count(self) -> int:
        """The number of positions in the range."""
        return max(0, self.max_offset - self.min_offset)


@dataclass(frozen=True, slots=True)
class TopicQueues:
    """The queues that are listed, the answer that lists them, which has the completeness, and how many queues there are."""

    queues: tuple[TopicQueue, ...]
    answer: Any
    queue_count: int

    @property
    def missing_names(self) -> tuple[str, ...]:
        """Shards that did not answer and may have further queues."""
        return tuple(shard.broker_name for shard in self.answer.shards if shard.HasField("error"))


def queues_of(calls: Calls, topic: str, page_count_max: int = 1) -> TopicQueues:
    """The queues of the topic that are in the first pages of the list; TopicNotFoundError when there is no such topic."""
    request = pb.ListTopicsRequest(topic=topic)
    answer = calls.ask(calls.gateway.ListTopics, request)
    for row in answer.topics:
        rows, token = list(row.queues), answer.next_page_token
        for _ in range(page_count_max - 1):
            if not token:
                break
            request.page_token = token
            following = calls.ask(calls.gateway.ListTopics, request)
            rows += (queue for each in following.topics for queue in each.queues)
            token = following.next_page_token
        queues = (TopicQueue(q.broker_name, q.queue_id, q.min_offset, q.max_offset) for q in rows)
        return TopicQueues(tuple(queues), answer, max(row.queue_count, len(rows)))
    for shard in answer.shards:
        if shard.HasField("error"):
            raise StoreError(f"shard {shard.broker_name}, which may have it, did not answer: {shard.error.message}")
    raise TopicNotFoundError(f"The store has no topic {topic!r}.", topic=topic)
