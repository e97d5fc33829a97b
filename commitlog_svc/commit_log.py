"""CommitLog: append, read by offset, follow; the public face of the log.

Life: `recover` (locks, walk, cut a torn tail), then serving, then `close`. Until recovered everything raises
StoreRecoveringError. One background thread makes the next file ahead, writes snapshots and RocketMQ's checkpoint; one
flushes. A fenced log (first failed flush or write) refuses every append from then on and never flushes again; reading goes on.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import structlog

from commitlog_svc.append_gate import AppendGate
from commitlog_svc.append_opening import open_appends
from commitlog_svc.append_path import AppendPath
from commitlog_svc.appender import Appender, AppendReceipt
from commitlog_svc.disk_space import DiskSpace, DiskUsage
from commitlog_svc.frame_starts import FrameStarts
from commitlog_svc.group_commit import GroupCommit
from commitlog_svc.housekeeping import Chore, Housekeeper
from commitlog_svc.log_following import LogFollowing
from commitlog_svc.log_settings import LogSettings
from commitlog_svc.lookup import find_file, read_record
from commitlog_svc.message_check import NewMessage
from commitlog_svc.progress import ProgressTable
from commitlog_svc.recovery import RecoveredLog, RecoveryProgress, recover_log
from commitlog_svc.reput import ReputBatch
from commitlog_svc.retention import Retention
from commitlog_svc.retention_state import RetentionEvent
from commitlog_svc.safe_point_writer import SafePointWriter
from commitlog_svc.store_root import StoreRoot
from commitlog_svc.timings import NO_TIMINGS, Timings
from commitlog_svc.topics import TopicTable
from store.errors import DiskFullError, OffsetOutOfRangeError, StoreError, StoreRecoveringError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.mapped_file_queue import MappedFileQueue
from store.format import paths
from store.format.host import Host
from store.format.record import Record

CHECKPOINT_SECONDS = 1.0
# What a restart walks after a kill: no more than was appended in so long, nor much more than SNAPSHOT_BYTES, which is a
# fraction of a second also without a kernel. A snapshot is two small flushes and up to 10 ms for thousands of queues.
SNAPSHOT_SECONDS = 1.0
SNAPSHOT_LOOK_SECONDS = 0.25
RETENTION_SECONDS = 0.05
MARKER_SECONDS = 1.0  # a log without an abort marker looks so often whether there is room for it


def clock_millis_now() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


_log = structlog.get_logger("reput.commitlog")


class CommitLog:
    """The log of one store root.

    Args:
        root: the store root.
        settings: see LogSettings.
        fs: the door to the disk.
        clock_millis: milliseconds since 1970.
        on_fenced: called once, from any thread, when the log can take no more.
        timings: who is told how long appends and flushes took.
    """

    def __init__(
        self,
        root: Path,
        settings: LogSettings,
        fs: FileSystem | None = None,
        clock_millis: Callable[[], int] = clock_millis_now,
        on_fenced: Callable[[StoreError], None] | None = None,
        timings: Timings = NO_TIMINGS,
    ) -> None:
        self._fs = fs if fs is not None else RealFileSystem()
        self._settings = settings
        self._clock_millis = clock_millis
        self._timings = timings
        self._on_fenced = on_fenced or (lambda error: None)
        self._own_directory = Path(paths.own_state_dir(str(root), "commitlog"))
        self.root = StoreRoot(self._fs, root, read_only=settings.read_only)
        self.topics = TopicTable(self._fs, root, settings.default_topic_queue_count, clock_millis)
        self.progress = ProgressTable(self._fs, root)
        self.recovered = RecoveredLog()
        self.recovery_progress = RecoveryProgress()
        self._files = MappedFileQueue(
            self._fs,
            Path(paths.commit_log_dir(str(root))),
            settings.file_size_bytes,
            writable=not settings.read_only,
            allocate=True,
            staging=self._own_directory,
        )
        self._closing = threading.Event()
        self._safe_points = SafePointWriter(self._fs, self._own_directory, self._files, self.progress, self._closing)
        self._commits = GroupCommit(
            self._safe_points.flush,
            settings.flush_interval_millis,
            self._fenced,
            settings.unflushed_bytes_max,
            on_flushed=timings.flushed,
        )
        self._gate = AppendGate(self.root, self._commits, self._closing)
        self._starts = FrameStarts()
        self._following = LogFollowing(self._files, self._starts, self._commits)
        self._appender: Appender | None = None
        self._append_path: AppendPath | None = None
        self._close_lock = threading.Lock()
        self._closed = False
        self._retention: Retention | None = None
        self._housekeeper: Housekeeper | None = None

    # -- life

    def recover(self) -> RecoveredLog:
        """Opens the log and makes it ready; blocks until then.

        Raises:
            UnsupportedStoreError, StoreLockedError, StoreCorruptedError, FlushFailedError: nothing is held then.
        """
        self.root.acquire()
        try:
            if not self.root.read_only:
                self._open_own_directory()
            self._files.load()
            self.recovered = recover_log(
                self._fs,
                self.root.directory,
                self._files,
                was_aborted=self.root.was_aborted,
                read_only=self.root.read_only,
                progress=self.recovery_progress,
                open_feed=self._following.open_feed,
            )
            self.topics.load(self.recovered.queue_offsets)
            self.progress.load()
            directory = self._files.directory if self._fs.is_dir(self._files.directory) else self.root.directory
            disk = self._gate.disk = DiskSpace(self._fs, directory, self._settings.disk_limits)
            if not self.root.read_only:
                self._retention = self._load_retention(disk)
                self._gate.mark_open(self._open_mark)
        except BaseException:
            if self._following.feed is not None:
                self._following.feed.fail()
            self._files.close()
            self.root.release(clean=False)  # the marker stays as it was found
            raise
        self._start()
        if self._following.feed is not None:
            self._following.feed.end()
        return self.recovered

    def close(self) -> None:
        """Flushes, writes snapshot and checkpoint, takes the abort marker away and gives the locks back.

        After a fence nothing more is flushed or written, and the marker stays.
        """
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        self._closing.set()
        if self._housekeeper is not None:
            self._housekeeper.close()
        if self._appender is None:
            return
        self._commits.close()
        clean = False
        try:
            if not self.root.read_only and self._commits.failure is None:
                self._appender.close()
                self._safe_points.write()
                clean = True
        except DiskFullError as error:
            _log.warning("log.not_closed_cleanly", error=error.message)  # the next start walks from the last snapshot
        finally:
            self._safe_points.close()
            self._files.close()
            self.root.release(clean=clean)

    # -- state

    @property
    def new_topic_queue_count(self) -> int:
        """Queues of a topic that its first message makes; 0 when topics are made by hand."""
        return self.topics.new_topic_queue_count if self._settings.auto_create_topic else 0

    @property
    def first_offset(self) -> int:
        """The log's first byte."""
        return self._files.first_offset

    @property
    def end_offset(self) -> int:
        """The byte behind the last record written."""
        return self._ready().end_offset

    @property
    def flushed_offset(self) -> int:
        """Everything before it is on the disk."""
        if self._appender is None and self._following.feed is not None:
            return self._following.feed.flushed_offset
        return self._commits.flushed_offset

    @property
    def file_size_bytes(self) -> int:
        """Size of a log file."""
        return self._files.file_size_bytes

    @property
    def file_count(self) -> int:
        """Number of log files, with one made ahead."""
        return len(self._files.files)

    @property
    def last_store_time_millis(self) -> int:
        """Store time of the newest record; 0 on an empty log."""
        return self._ready().last_store_time_millis

    @property
    def first_store_time_millis(self) -> int | None:
        """Store time of the oldest record; None on an empty log, and while its front is being removed."""
        if self._appender is None or self.first_offset >= self.end_offset:
            return None
        try:
            return self.get(self.first_offset).store_time_millis
        except OffsetOutOfRangeError:
            return None

    @property
    def is_ready(self) -> bool:
        """Whether the log is recovered."""
        return self._appender is not None

    def require_ready(self) -> None:
        """StoreRecoveringError until the log is recovered: for what would be answered from tables that are empty yet."""
        self._ready()

    @property
    def state(self) -> str:
        """In a word: `recovering`, `serving`, `read-only`, `disk-full` or `fenced`."""
        if self._appender is None:
            return "recovering"
        if self._commits.failure is not None:
            return "fenced"
        if self.root.read_only:
            return "read-only"
        if self._appender.disk_full or self._gate.is_disk_full:
            return "disk-full"
        return "serving"

    @property
    def problem(self) -> str:
        """What is wrong and what to do; empty when all is well."""
        if self._commits.failure is not None:
            return self._commits.failure.message
        if self.state == "disk-full":
            return "no space left for the log: free some, appends go on by themselves"
        return ""

    @property
    def disk_usage(self) -> DiskUsage | None:
        """The disk under the log, as it was half a second ago at most; None until recovered."""
        return self._gate.disk.usage if self._gate.disk is not None else None

    @property
    def retention_events(self) -> tuple[RetentionEvent, ...]:
        """What retention removed, oldest first."""
        return self._retention.events if self._retention is not None else ()

    # -- appending

    def append_messages(
        self, messages: Sequence[NewMessage], *, sync: bool | None, born_host: Host, deduplicate: bool = False
    ) -> list[AppendReceipt]:
        """Checks the whole request, writes all its messages in one piece, and waits for the disk if asked to.

        Args:
            messages: 1 to 1,024.
            sync: wait for the disk; None: as the settings say.
            born_host: who sent them.
            deduplicate: a message whose topic and unique key a recent one has is not written; its receipt is that one's.

        Raises:
            InvalidArgumentError, InvalidMessageError, TopicNotFoundError: nothing was written.
            StoreReadOnlyError, StoreRecoveringError, DiskFullError: nothing was written.
            FlushFailedError: the outcome is unknown, the log is fenced.
        """
        return self._path().append_messages(messages, sync=sync, born_host=born_host, deduplicate=deduplicate)

    def check_messages(self, messages: Sequence[NewMessage], *, born_host: Host, deduplicate: bool = False) -> None:
        """What `append_messages` does before it writes; the same arguments and errors."""
        self._path().check_messages(messages, born_host=born_host, deduplicate=deduplicate)

    def append_request(
        self, data: bytes, *, born_host: Host, id_prefix: str, broker_name: str
    ) -> bytes | list[AppendReceipt] | None:
        """`append_messages` from the bytes of an ordinary request to the bytes of its answer, or to receipts.

        None: not now or not this request. Then nothing has changed and `append_messages` decides.

        Args:
            data: an AppendMessagesRequest or AppendMessageStreamRequest.
            born_host: who sent it.
            id_prefix: the hexadecimal digits of the store's host.
            broker_name: the shard's name.

        Raises:
            StoreReadOnlyError, StoreRecoveringError, DiskFullError: nothing was written.
            FlushFailedError: the outcome is unknown, the log is fenced.
        """
        return self._path().append_request(data, born_host=born_host, id_prefix=id_prefix, broker_name=broker_name)

    # -- reading

    def get(self, commit_log_offset: int) -> Record:
        """The record that starts at an offset.

        Raises:
            OffsetOutOfRangeError: outside the log.
            RecordNotFoundError: inside the log, but no record starts there.
            RecordCorruptedError: a record starts there and is damaged.
        """
        return read_record(self._files, self._starts, commit_log_offset, self._ready().end_offset)

    def open_file(self, commit_log_offset: int) -> int:
        """A descriptor of the file that holds an offset, for reading; whoever asks closes it.

        Raises:
            OffsetOutOfRangeError: outside the log.
        """
        file = find_file(self._files, commit_log_offset, self._ready().end_offset)
        return self._fs.open(file.path, os.O_RDONLY)

    @property
    def is_followable(self) -> bool:
        """Whether `follow` shows a log that is still being recovered."""
        return self._appender is None and self._following.feed is not None

    def follow(
        self, start_offset: int, batch_bytes_max: int, *, columns: bool = False, while_recovering: bool = False
    ) -> Iterator[ReputBatch]:
        """Batches of what builders need, from `start_offset` (-1: the first record) on, for ever.

        As requests, or as columns. `while_recovering`: also what a long recovery has checked so far, with END_UNKNOWN as
        the log's end until that is known.

        Raises:
            InvalidArgumentError: a negative batch size.
            OffsetOutOfRangeError: the start is outside the flushed log.
            RecordNotFoundError: no record starts there.
        """
        feed = self._following.feed
        of_recovery = while_recovering and self._appender is None and feed is not None
        if not of_recovery or (feed is not None and start_offset > feed.flushed_offset):
            self._ready()
        return self._following.follow(
            start_offset, batch_bytes_max, self.flushed_offset, columns=columns, of_recovery=of_recovery
        )

    # -- inside

    def _path(self) -> AppendPath:
        self._ready()
        assert self._append_path is not None
        return self._append_path

    def _ready(self) -> Appender:
        if self._appender is None:
            raise StoreRecoveringError("the commit log is being recovered: try again soon")
        return self._appender

    def _open_own_directory(self) -> None:
        self._fs.mkdirs(self._own_directory)
        for name in self._fs.listdir(self._own_directory):
            if paths.parse_log_file_name(name) is not None or name.endswith(".tmp"):
                self._fs.unlink(self._own_directory / name)  # left by a crash while it was being made

    def _open_mark(self) -> None:
        self._safe_points.open_mark(self.recovered.end_offset)

    def _start(self) -> None:
        found = self.recovered
        appender, self._append_path = open_appends(
            found,
            self._settings,
            self._files,
            self._starts,
            self.topics,
            self._commits,
            self._gate,
            self._safe_points,
            self._clock_millis,
            self._timings,
        )
        self._safe_points.begin(found, appender, self._commits)
        self._commits.start(found.end_offset)
        self._appender = appender
        if not self.root.read_only:
            self._housekeeper = Housekeeper(self._chores(appender), self._commits.fail)
            self._housekeeper.start()

    def _load_retention(self, disk: DiskSpace) -> Retention:
        found = self.recovered
        retention = Retention(
            self._fs,
            self._own_directory,
            self._files,
            self._settings.retention_limits,
            disk,
            self.progress.needed_offsets,
            # The file with the last record before the snapshot stays: a recovery believes the snapshot by that record.
            lambda: max(self._safe_points.snapshot_offset, found.walked_from_offset) - 1,
            self._clock_millis,
            on_removed=self._starts.forget,
        )
        retention.load(found.end_offset)
        return retention

    def _fenced(self, error: StoreError) -> None:
        self._on_fenced(error)

    def _chores(self, appender: Appender) -> list[Chore]:
        assert self._retention is not None

        def make_next_file_ahead() -> None:
            if appender.wants_next_file():
                appender.make_next_file_ahead()

        return [
            Chore("next-file", 0.0, make_next_file_ahead),
            Chore("retention", RETENTION_SECONDS, self._retention.turn),
            Chore("abort-marker", MARKER_SECONDS, lambda: self._gate.mark_open_late(self._open_mark)),
            Chore("checkpoint", CHECKPOINT_SECONDS, self._safe_points.write_checkpoint),
            Chore("snapshot", SNAPSHOT_SECONDS, self._safe_points.write),
            Chore("early-snapshot", SNAPSHOT_LOOK_SECONDS, self._safe_points.write_early),
        ]
