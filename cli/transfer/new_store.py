"""A RocketMQ store made of selected messages: `reput export --format store` and `reput import --store` write through it.

STAGING/commitlog/                the frames, in the order in which they came (`store/files/new_log.py`)
STAGING/consumequeue/, index/     written by the builders of the services, checkpoints in reput/
STAGING/config/topics.json        so that a broker routes every topic
DIR                               STAGING renamed: a store appears complete or not at all (`cli/transfer/staging.py`)
"""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from cli.transfer.staging import Staging
from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from index_svc.builder import IndexBuilder
from index_svc.index_file_set import IndexFileSet
from services.following.following_builder import FollowingBuilder
from store.files.file_system import FileSystem, RealFileSystem
from store.files.new_log import NewLog
from store.format.paths import commit_log_dir, own_state_dir
from store.readers.index_reader import IndexLayout
from store.walk.log_reader import LogReader

BATCH_REQUEST_COUNT = 8192  # records given to the builders at once


class NewStore:
    """A store that is being made; a context manager that removes it after an error.

    Args:
        out: the root to make; it must be empty or must not exist.
        fs: the file system.

    Raises:
        InvalidArgumentError: `out` holds something, or a file system is mounted there.
    """

    def __init__(self, out: Path, fs: FileSystem | None = None) -> None:
        self._fs = fs or RealFileSystem()
        self._settings = _Settings()
        self._staging = Staging(out, is_directory=True)
        self._root = self._staging.path
        try:
            self._log = NewLog(self._fs, Path(commit_log_dir(str(self._root))), self._settings.log_file_size_bytes)
        except BaseException:
            self._staging.close()
            raise

    @property
    def record_count(self) -> int:
        """Messages added so far."""
        return self._log.record_count

    def add(self, topic: str, frame: bytes | bytearray) -> None:
        """Append a message with its own times and hosts; errors as `NewLog.add`."""
        self._log.add(topic, frame if isinstance(frame, bytearray) else bytearray(frame))

    def finish(self, on_build: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Build queues and index, then make the store visible; everything is on the disk then.

        Args:
            on_build: called with the number of records built, and of all records.

        Raises:
            InvalidArgumentError: `out` is not empty any more.
        """
        self._log.finish()
        self._build(on_build)
        self._write_topics()
        self._staging.publish()

    def __enter__(self) -> "NewStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._log.close()
        finally:
            self._staging.close()

    def _build(self, on_build: Callable[[int, int], None]) -> None:
        """Queues and indexes of the log, in one pass."""
        end_offset, total = self._log.end_offset, self._log.record_count
        builders = self._builders(end_offset)
        try:
            requests = LogReader(self._root, self._fs).dispatch_requests()
            done = 0
            while batch := list(itertools.islice(requests, BATCH_REQUEST_COUNT)):
                done += len(batch)
                next_offset = batch[-1].next_offset if done < total else end_offset
                for builder in builders:
                    builder.apply(batch, next_offset, 0, end_offset)
                on_build(done, total)
            assert done == total, (done, total)
            for builder in builders:
                builder.stop()
        except BaseException:
            for builder in builders:
                builder.abandon()
            raise

    def _builders(self, end_offset: int) -> list[FollowingBuilder]:
        root, settings = self._root, self._settings
        table = ConsumeQueueTable(root, self._fs, settings.queue_file_size_bytes)
        table.load()
        queues = ConsumeQueueBuilder(table, Path(own_state_dir(str(root), "consumequeue")) / "checkpoint.json")
        queues.recover(is_clean_store=True, log_first_offset=0, log_end_offset=end_offset)
        files = IndexFileSet(root, self._fs, settings.index_layout, lambda: time.time_ns() // 1_000_000)
        index = IndexBuilder(files, Path(own_state_dir(str(root), "index")) / "checkpoint.json")
        index.recover(
            is_clean_store=True, log_first_offset=0, log_end_offset=end_offset, first_indexed=lambda offset: None
        )
        for builder in (queues, index):
            builder.begin()
        return [queues, index]

    def _write_topics(self) -> None:
        from commitlog_svc.append.topics.topics import TopicTable

        queues = self._log.queue_offsets
        table = TopicTable(
            self._fs, self._root, self._settings.default_topic_queue_count, lambda: time.time_ns() // 1_000_000
        )
        table.load(queues)
        table.create_missing({topic for topic, _ in queues})


class _Settings:
    """File sizes of the new store, from the settings of the services that will own the files."""

    def __init__(self) -> None:
        from commitlog_svc.settings import CommitLogSettings
        from consumequeue_svc.settings import ConsumeQueueSettings
        from index_svc.settings import IndexSettings
        from services.settings.service_settings import load_settings

        log = load_settings("commitlog", CommitLogSettings)[0]
        queues = load_settings("consumequeue", ConsumeQueueSettings)[0]
        index = load_settings("index", IndexSettings)[0]
        self.log_file_size_bytes = log.file_size_bytes
        self.default_topic_queue_count = log.default_topic_queue_count
        self.queue_file_size_bytes = queues.file_size_bytes
        self.index_layout = IndexLayout(index.hash_slot_count, index.entry_count_max)
