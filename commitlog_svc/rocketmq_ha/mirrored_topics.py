"""MirroredTopics: the topics of a mirror, learned from the records that come."""

from collections.abc import Collection

from commitlog_svc.append.topics.queue_offsets import QueueKey
from commitlog_svc.append.topics.topic_change import TopicChange
from commitlog_svc.append.topics.topics import TopicTable


class MirroredTopics:
    """Enters topics into the table, each with as many queues as have been seen; for one thread."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics
        self._counts: dict[str, int] = {config.topic: config.read_queue_count for config in topics.all()}

    def see(self, queues: Collection[QueueKey]) -> None:
        """Notes queues that have grown; DiskFullError or FlushFailedError when the table cannot be written."""
        grown: dict[str, int] = {}
        for topic, queue_id in queues:
            if queue_id >= max(self._counts.get(topic, 0), grown.get(topic, 0)):
                grown[topic] = queue_id + 1
        if not grown:
            return
        self._topics.create_missing(grown.keys(), grown)
        for topic, count in grown.items():
            config = self._topics.find(topic)
            if config is not None and config.read_queue_count < count:
                self._topics.update(
                    topic, TopicChange(write_queue_count=max(count, config.write_queue_count), read_queue_count=count)
                )
            self._counts[topic] = max(count, config.read_queue_count if config is not None else 0)
