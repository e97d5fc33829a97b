"""The topics of the store, in `config/topics.json` as RocketMQ keeps them.

The first message of a topic creates it. The file is replaced before that message is written, so that a broker that opens
the store routes every topic that has messages. What a real broker wrote there is kept, also fields that are unknown here.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes, write_bytes_atomic
from store.format import paths
from store.format.topic import PERM_WRITE, TOPIC_QUEUE_COUNT_MAX, TopicConfig, decode_topic_table, encode_topic_table

NO_COUNTS: Mapping[str, int] = {}


class TopicTable:
    """Topic configurations by name; thread-safe.

    Args:
        fs: the file system.
        root: the store root.
        default_queue_count: queues of a new topic.
        clock_millis: milliseconds since 1970, for the file's version.
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
        """Reads the file.

        Args:
            queues_seen: topic and id of each queue that has messages, configured or not.

        Raises:
            StoreCorruptedError: the file is not a topic table.
        """
        data = read_bytes(self._fs, self._path)
        if data is not None:
            try:
                self._topics = decode_topic_table(data)
            except StoreCorruptedError as error:
                raise StoreCorruptedError(f"{self._path}: {error.message}", file=self._path, offset=0) from error
        for topic, queue_id in queues_seen:
            if queue_id < TOPIC_QUEUE_COUNT_MAX:  # else a damaged or foreign record says it
                self._queue_counts_seen[topic] = max(self._queue_counts_seen.get(topic, 0), queue_id + 1)

    def find(self, topic: str) -> TopicConfig | None:
        """The topic's configuration, or None when it has none."""
        return self._topics.get(topic)

    @property
    def new_topic_queue_count(self) -> int:
        """Queues of a topic that its first message creates."""
        return self._default_queue_count

    def writable_queue_count(self, topic: str) -> int:
        """How many queues a producer may write to: as configured, or as a new topic gets; 0 without write permission."""
        config = self._topics.get(topic)
        if config is None:
            return max(self._default_queue_count, self._queue_counts_seen.get(topic, 0))
        return min(config.write_queue_count, TOPIC_QUEUE_COUNT_MAX) if config.perm & PERM_WRITE else 0

    def create_missing(self, topics: Collection[str], queue_counts_min: Mapping[str, int] = NO_COUNTS) -> list[str]:
        """Creates the topics that are not configured; they are on the disk when this returns. Returns the names of new topics.

        Args:
            topics: names.
            queue_counts_min: by topic: the least number of queues that a new topic gets.
        """
        if all(map(self._topics.__contains__, topics)):
            return []
        with self._lock:
            missing = [topic for topic in sorted(topics) if topic not in self._topics]
            if not missing:
                return []
            table = dict(self._topics)
            for topic in missing:
                count = max(self.writable_queue_count(topic), queue_counts_min.get(topic, 0))
                count = min(count, TOPIC_QUEUE_COUNT_MAX)
                table[topic] = TopicConfig(topic, read_queue_count=count, write_queue_count=count)
            previous = read_bytes(self._fs, self._path)
            encoded = encode_topic_table(table, previous, time_millis=self._clock_millis())
            write_bytes_atomic(self._fs, self._path, encoded)
            self._topics = table
            return missing

    def all(self) -> list[TopicConfig]:
        """Every configured topic, by name."""
        return sorted(self._topics.values(), key=lambda config: config.topic)
