"""Search offset: the position of a queue for a store time."""

from gateway.deadline import Deadline
from gateway.limits import check_not_negative, check_topic
from gateway.ports import Boundary, FoundOffset
from gateway.shards import Shards, has_unwritten_queue
from store.errors import QueueNotFoundError, TopicNotFoundError


def search_offset(
    shards: Shards,
    topic: str,
    queue_id: int,
    time_millis: int,
    *,
    boundary: Boundary,
    broker_name: str,
    deadline: Deadline,
) -> FoundOffset:
    """LOWER: the first message stored at or after the time, else max. UPPER: the last at or before it, else min.

    Raises:
        InvalidArgumentError: by field.
        BrokerNotFoundError, TopicNotFoundError, QueueNotFoundError: there is no such queue.
    """
    check_topic(topic)
    check_not_negative(queue_id, "queue_id")
    shard = shards.named(broker_name)
    try:
        return shard.queues.search_offset(topic, queue_id, time_millis, boundary, deadline)
    except (TopicNotFoundError, QueueNotFoundError):
        has_unwritten_queue(shard, topic, queue_id, deadline)
        return FoundOffset(0, 0, 0, catching_up=False)
