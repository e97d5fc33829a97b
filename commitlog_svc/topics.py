"""The topics of the store, in `config/topics.json` as RocketMQ keeps them.

A topic comes into being with its first message; the file is replaced before that message is written, so that a broker that
opens the store routes every topic that has messages. What a real broker put there is kept, fields unknown to us included.
"""

import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes, write_bytes_atomic
from store.format import paths
from store.format.topic import PERM_WRITE, TopicConfig, decode_topic_table, encode_topic_table


class TopicTable:
    """Topic configurations by name; thread-safe.

    Args:
        fs: the door to the disk.
        root: the store root.
        default_queue_count: queues of a new topic.
        clock_millis: the time, for the file's version.
    """

    def __init__(self, fs: FileSystem, root: Path, default_queue_count: int, clock_millis: Callable[[], int]) -> None:
        self._fs = fs
        self._path = Path(paths.topics_file(str(root)))
        self._default_queue_count = default_queue_count
        self._clock_millis = clock_millis
        self._lock = threading.Lock()
        self._topics: dict[str, TopicConfig] = {}
        self._queue_counts_seen: dict[str, int] = {}

    def load(self, queues_seen: Iterable[tuple[str, int]]) -> None:
        """Reads the file; `queues_seen` are the queues that have messages, configured or not.

        Raises:
            StoreCorruptedError: the file is no topic table.
        """
        data = read_bytes(self._fs, self._path)
        if data is not None:
            try:
                self._topics = decode_topic_table(data)
            except StoreCorruptedError as error:
                raise StoreCorruptedError(f"{self._path}: {error.message}", file=self._path, offset=0) from error
        for topic, queue_id in queues_seen:
            self._queue_counts_seen[topic] = max(self._queue_counts_seen.get(topic, 0), queue_id + 1)

    def find(self, topic: str) -> TopicConfig | None:
        """The topic's configuration, or None when it has none."""
        return self._topics.get(topic)

    @property
    def new_topic_queue_count(self) -> int:
        """Queues of a topic that its first message makes."""
        return self._default_queue_count

    def writable_queue_count(self, topic: str) -> int:
        """How many queues a producer may write to: configured, or what a new topic would get; 0 without the right."""
        config = self._topics.get(topic)
        if config is None:
            return max(self._default_queue_count, self._queue_counts_seen.get(topic, 0))
        return config.write_queue_count if config.perm & PERM_WRITE else 0

    def create_missing(self, topics: Collection[str]) -> list[str]:
        """Makes the topics that are not configured yet, on the disk before this returns; the names of those made."""
        if all(map(self._topics.__contains__, topics)):
            return []
        with self._lock:
            missing = [topic for topic in sorted(topics) if topic not in self._topics]
            if not missing:
                return []
            table = dict(self._topics)
            for topic in missing:
                count = self.writable_queue_count(topic)
                table[topic] = TopicConfig(topic, read_queue_count=count, write_queue_count=count)
            previous = read_bytes(self._fs, self._path)
            encoded = encode_topic_table(table, previous, time_millis=self._clock_millis())
            write_bytes_atomic(self._fs, self._path, encoded)
            self._topics = table
            return missing

    def all(self) -> list[TopicConfig]:
        """Every configured topic, by name."""
        return sorted(self._topics.values(), key=lambda config: config.topic)
