"""CommitLog: the life of one store root's log, and its parts.

Life: `recover` (locks, walk, cut a torn tail), then serving, then `close`. Callers use the parts directly:

    log.opened.appends    append requests                           StoreRecoveringError until recovered
    log.opened.reads      single records                            the same
    log.following         the records in order, for followers       during a long recovery, too
    log.followers         how far each follower is                  always
    log.confirm           up to where records may be shown          always
    log.status            state and numbers                         always
    log.topics            the topics                                filled once recovered

One background thread makes the next file ahead, removes old files, writes snapshots and RocketMQ's checkpoint; one flushes.
The first flush or write that fails, or a log file that has lost its name, fences the log: it refuses every append from then on
and never flushes again; reading continues.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from commitlog_svc.append.append_path import NO_TIMINGS, AppendPath, Timings
from commitlog_svc.append.appender import Appender
from commitlog_svc.append.group_commit import GroupCommit
from commitlog_svc.append.refusals import AppendRefusals
from commitlog_svc.append.topics import TopicTable
from commitlog_svc.confirm_offset import ConfirmOffset
from commitlog_svc.frame_starts import FrameStarts
from commitlog_svc.housekeeping import Chore, Housekeeper
from commitlog_svc.log_settings import LogSettings
from commitlog_svc.log_status import LogStatus
from commitlog_svc.lookup import LogReads
from commitlog_svc.opened_log import OpenedLog
from commitlog_svc.recovery.recovery import RecoveredLog, RecoveryProgress, recover_log
from commitlog_svc.recovery.safe_point_writer import SafePointWriter
from commitlog_svc.recovery.store_root import StoreRoot
from commitlog_svc.reput.checkpoint import CheckpointFile
from commitlog_svc.reput.followers import FollowerRegistry
from commitlog_svc.reput.log_following import LogFollowing
from commitlog_svc.retention.disk_space import DiskSpace
from commitlog_svc.retention.retention import Retention
from store.errors import DiskFullError, StoreError, StoreRecoveringError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.mapped_file_queue import MappedFileQueue
from store.format import paths

CHECKPOINT_SECONDS = 1.0
# A restart after a kill walks at most what was appended in this time, and not much more than SNAPSHOT_BYTES: that takes a
# fraction of a second also without a kernel. A snapshot is two small flushes and takes up to 10 ms for thousands of queues.
SNAPSHOT_SECONDS = 1.0
SNAPSHOT_LOOK_SECONDS = 0.25
RETENTION_SECONDS = 0.05
# An async append to a file that was removed is acknowledged no longer than this, a sync one never.
FILES_SECONDS = 1.0
MARKER_SECONDS = 1.0  # a log without an abort marker checks this often whether there is room for one


def clock_millis_now() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


_log = structlog.get_logger("reput.commitlog")


class CommitLog:
    """The log of one store root; see the top of this file.

    Args:
        root: the store root.
        settings: see LogSettings.
        fs: the disk port.
        clock_millis: milliseconds since 1970.
        on_fenced: called once, from any thread, when the log is fenced.
        timings: gets how long appends and flushes took.

    Attributes:
        root: the store root and its locks.
        recovery_progress: how far `recover` is.
    """

    def __init__(
        self,
        root: Path,
        settings: LogSettings,
        fs: FileSystem | None = None,
        clock_millis: Callable[[], int] = clock_millis_now,
        on_fenced: Callable[[StoreError], None] = lambda error: None,
        timings: Timings = NO_TIMINGS,
    ) -> None:
        self._fs = fs if fs is not None else RealFileSystem()
        self._settings = settings
        self._clock_millis = clock_millis
        self._timings = timings
        self._own_directory = Path(paths.own_state_dir(str(root), "commitlog"))
        self._files = MappedFileQueue(
            self._fs,
            Path(paths.commit_log_dir(str(root))),
            settings.file_size_bytes,
            writable=not settings.read_only,
            allocate=True,
            staging=self._own_directory,
        )
        self._starts = FrameStarts()
        self._closing = threading.Event()
        self._close_lock = threading.Lock()
        self._closed = False
        self._opened: OpenedLog | None = None
        self._housekeeper: Housekeeper | None = None
        self.root = StoreRoot(self._fs, root, read_only=settings.read_only)
        self.topics = TopicTable(self._fs, root, settings.default_topic_queue_count, clock_millis)
        self.followers = FollowerRegistry(
            self._fs, self._own_directory, settings.follower_names, read_only=settings.read_only
        )
        self.recovery_progress = RecoveryProgress()
        self._checkpoint = CheckpointFile(self._fs, root, self.followers)
        self._safe_points = SafePointWriter(self._fs, self._own_directory, self._files, self._checkpoint, self._closing)
        self._commits = GroupCommit(
            self._safe_points.flush,
            settings.flush_interval_millis,
            on_fenced,
            settings.unflushed_bytes_max,
            on_flushed=timings.flushed,
        )
        self._refusals = AppendRefusals(self.root, self._commits, self._closing)
        self.confirm = ConfirmOffset(self._commits)
        self.following = LogFollowing(self._files, self._starts, self.confirm)
        self.status = LogStatus(
            lambda: self._opened, self.root, self._files, self._commits, self.confirm, self.following, self._refusals
        )

    @property
    def opened(self) -> OpenedLog:
        """The parts of the recovered log.

        Raises:
            StoreRecoveringError: the log is not recovered yet.
        """
        if self._opened is None:
            raise StoreRecoveringError("the commit log is being recovered: try again soon")
        return self._opened

    def hold(self) -> None:
        """Takes the locks of the root, as `recover` does unless they are held; errors as StoreRoot.acquire."""
        self.root.acquire()

    def recover(self) -> RecoveredLog:
        """Opens the log and makes it ready; blocks until then.

        Raises:
            UnsupportedStoreError, StoreLockedError, StoreCorruptedError, FlushFailedError: no lock is held then.
        """
        self.root.acquire()
        try:
            if not self.root.read_only:
                self._open_own_directory()
            self.followers.load()
            self._files.load()
            found = recover_log(
                self._fs,
                self.root.directory,
                self._files,
                was_aborted=self.root.was_aborted,
                read_only=self.root.read_only,
                progress=self.recovery_progress,
                open_feed=None if self.confirm.is_limited else self.following.open_feed,
            )
            self.topics.load(found.queue_offsets)
            self._checkpoint.load()
            directory = self._files.directory if self._fs.is_dir(self._files.directory) else self.root.directory
            disk = self._refusals.disk = DiskSpace(self._fs, directory, self._settings.disk_limits)
            retention = None
            if not self.root.read_only:
                retention = self._load_retention(found, disk)
                self._refusals.mark_open(lambda: self._safe_points.open_mark(found.end_offset))
        except BaseException:
            self.following.fail()
            self._files.close()
            self.root.release(clean=False)  # the marker stays as it was found
            raise
        self._open(found, retention)
        return found

    def close(self) -> None:
        """Flushes, writes snapshot and checkpoint, removes the abort marker and releases the locks.

        After a fence nothing more is flushed or written, and the marker stays.
        """
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        self._closing.set()
        if self._housekeeper is not None:
            self._housekeeper.close()
        if self._opened is None:
            return
        self._commits.close()
        clean = False
        try:
            if not self.root.read_only and self._commits.failure is None:
                self._opened.appender.close()
                self._safe_points.write()
                clean = True
        except DiskFullError as error:
            _log.warning("log.not_closed_cleanly", error=error.message)  # the next start walks from the last snapshot
        finally:
            self._safe_points.close()
            self._files.close()
            self.root.release(clean=clean)

    def _open_own_directory(self) -> None:
        self._fs.mkdirs(self._own_directory)
        for name in self._fs.listdir(self._own_directory):
            if paths.parse_log_file_name(name) is not None or name.endswith(".tmp"):
                self._fs.unlink(self._own_directory / name)  # left by a crash while it was being made

    def _open(self, found: RecoveredLog, retention: Retention | None) -> None:
        appends = AppendPath(
            found,
            self._settings,
            self._files,
            self._starts,
            self.topics,
            self._commits,
            self._refusals,
            self._safe_points.written_times,
            self._clock_millis,
            self._timings,
        )
        appender = appends.appender
        self._safe_points.begin(found, appender, self._commits, self.confirm)
        self._commits.start(found.end_offset)
        reads = LogReads(self._fs, self._files, self._starts, lambda: self.confirm.readable_offset(appender.end_offset))
        self._opened = OpenedLog(found, appends, reads, appender, retention)
        self.following.open()
        if retention is not None:
            self._housekeeper = Housekeeper(self._chores(found, appender, retention), self._commits.fail)
            self._housekeeper.start()

    def _load_retention(self, found: RecoveredLog, disk: DiskSpace) -> Retention:
        retention = Retention(
            self._fs,
            self._own_directory,
            self._files,
            self._settings.retention_limits,
            disk,
            self.followers.needed_offsets,
            # The file with the last record before the snapshot stays: a recovery checks the snapshot by that record.
            lambda: max(self._safe_points.snapshot_offset, found.walked_from_offset) - 1,
            self._clock_millis,
            on_removed=self._starts.forget,
        )
        retention.load(found.end_offset)
        return retention

    def _chores(self, found: RecoveredLog, appender: Appender, retention: Retention) -> list[Chore]:
        def make_next_file_ahead() -> None:
            if appender.wants_next_file():
                appender.make_next_file_ahead()

        def open_mark() -> None:
            self._safe_points.open_mark(found.end_offset)

        return [
            Chore("next-file", 0.0, make_next_file_ahead),
            Chore("retention", RETENTION_SECONDS, retention.turn),
            Chore("log-files", FILES_SECONDS, self._safe_points.check_files),
            Chore("abort-marker", MARKER_SECONDS, lambda: self._refusals.mark_open_late(open_mark)),
            Chore("checkpoint", CHECKPOINT_SECONDS, self._safe_points.write_checkpoint),
            Chore("snapshot", SNAPSHOT_SECONDS, self._safe_points.write),
            Chore("early-snapshot", SNAPSHOT_LOOK_SECONDS, self._safe_points.write_early),
        ]
