"""The commit log's check of new messages, made before the first one is sent."""

from collections.abc import Mapping

from commitlog_svc.append.message_check import REQUEST_BODY_BYTES_MAX, MessageChecker
from commitlog_svc.append.topics.queue_offsets import QueueTurns
from commitlog_svc.append.waiting import WaitingLimits
from reput.message.v1 import message_pb2
from reput_client import PermissionDeniedError, QueryClient
from store.format.host import Host
from store.format.message_id import UniqueKeyGenerator

QUEUE_COUNT_UNKNOWN = 1 << 31  # of a topic that does not exist or cannot be listed: the gateway will check


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
            _ListedTopics(queue_counts),
            QueueTurns(),
            UniqueKeyGenerator("127.0.0.1", 0, class_loader_hash=0),
            lambda: 0,
            store_host=self._host,
            message_size_bytes_max=REQUEST_BODY_BYTES_MAX,
            properties_crc=False,
            auto_create_topic=True,
            waiting_limits=WaitingLimits(0, 0),  # an imported message does not wait
            store_time_millis=lambda: 0,
        )

    def __call__(self, message: message_pb2.NewMessage) -> None:
        """InvalidMessageError when a gateway would refuse the message."""
        self._checker.check([message], self._host, deduplicate=self._deduplicate)


class _ListedTopics:
    """What the checker asks of topics, of a list of them."""

    def __init__(self, queue_counts: Mapping[str, int]) -> None:
        self._queue_counts = queue_counts

    def find(self, topic: str) -> int | None:
        """Its queues; None when it is not listed."""
        return self._queue_counts.get(topic)

    def writable_queue_count(self, topic: str) -> int:
        """How many queues a producer may write to."""
        return self._queue_counts.get(topic, QUEUE_COUNT_UNKNOWN)

    def readable_queue_count(self, topic: str) -> int:
        """The same: the list has one count."""
        return self.writable_queue_count(topic)

    def problem_of(self, _topic: str) -> str:
        """Why a topic takes no message: the list does not say it, the gateway does."""
        return ""

    def message_type(self, _topic: str) -> str:
        """The list does not say it, either."""
        return ""


def listed_queue_counts(client: QueryClient) -> dict[str, int]:
    """Queues of each topic that a gateway lists; empty when a shard did not answer or the caller may not list topics."""
    from cli.topics import list_topics

    try:
        topics, partial = list_topics(client)
    except PermissionDeniedError:  # a client that may write need not be allowed to read
        return {}
    if partial:
        return {}
    counts: dict[str, int] = {}
    for topic in topics:  # one with very many queues may come in parts
        highest = max((queue.queue_id for queue in topic.queues), default=-1)
        counts[topic.topic] = max(counts.get(topic.topic, 0), highest + 1, topic.queue_count)
    return {topic: count for topic, count in counts.items() if count}
