"""What a message must be for a gateway to take it: the commit log's own check, before the first one is sent."""

from collections.abc import Mapping
from typing import Any, cast

from commitlog_svc.message_check import REQUEST_BODY_BYTES_MAX, MessageChecker
from commitlog_svc.queue_turns import QueueTurns
from commitlog_svc.topics import TopicTable
from store.format.host import Host
from store.format.message_id import UniqueKeyGenerator

QUEUE_COUNT_UNKNOWN = 1 << 31  # of a topic that is not there yet, or not to be seen: the gateway will say


class ImportCheck:
    """Checks messages one by one.

    Args:
        queue_counts: queues of each topic that is known.
        deduplicate: each must have a unique key.
    """

    def __init__(self, queue_counts: Mapping[str, int], *, deduplicate: bool) -> None:
        self._host = Host("127.0.0.1", 0)
        self._deduplicate = deduplicate
        self._checker = MessageChecker(
            cast(TopicTable, _ListedTopics(queue_counts)),
            QueueTurns(),
            UniqueKeyGenerator("127.0.0.1", 0, class_loader_hash=0),
            lambda: 0,
            store_host=self._host,
            message_size_bytes_max=REQUEST_BODY_BYTES_MAX,
            properties_crc=False,
            auto_create_topic=True,
        )

    def __call__(self, message: Any) -> None:
        """InvalidMessageError when a gateway would refuse it."""
        self._checker.check([message], self._host, deduplicate=self._deduplicate)


class _ListedTopics:
    """What the checker asks of a `TopicTable`."""

    def __init__(self, queue_counts: Mapping[str, int]) -> None:
        self._queue_counts = queue_counts

    def writable_queue_count(self, topic: str) -> int:
        """How many queues a producer may write to."""
        return self._queue_counts.get(topic, QUEUE_COUNT_UNKNOWN)


def listed_queue_counts(stub: Any, timeout: float) -> dict[str, int]:
    """Queues of each topic that a gateway lists; none where a shard did not answer, or whose key may not list them."""
    import grpc

    from cli.inspect import list_topics

    try:
        topics, partial = list_topics(stub, timeout)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.PERMISSION_DENIED:  # who may write need not be one who may read
            return {}
        raise
    if partial:
        return {}
    return {topic.topic: max(queue.queue_id for queue in topic.queues) + 1 for topic in topics if topic.queues}
