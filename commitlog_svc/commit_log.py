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
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from commitlog_svc.append.append_path import NO_TIMINGS, AppendPath, Timings
from commitlog_svc.append.appender import Appender
from commitlog_svc.append.group_commit import GroupCommit
from commitlog_svc.append.refusals import AppendGate, AppendRefusals
from commitlog_svc.append.topics.queue_offsets import QueueKey
from commitlog_svc.append.topics.topics import TopicCommands, TopicTable
from commitlog_svc.config_files import ConfigFiles, ConfigShare, TimerLogFiles
from commitlog_svc.confirm_offset import ConfirmOffset
from commitlog_svc.housekeeping import Chore, Housekeeper
from commitlog_svc.log_settings import LogSettings
from commitlog_svc.log_status import LogStatus, OpenedLog
from commitlog_svc.lookup import FrameStarts, LogReads
from commitlog_svc.recovery.recovery import RecoveredLog, RecoveryProgress, recover_log
from commitlog_svc.recovery.safe_point import DurableMark, read_durable_mark
from commitlog_svc.recovery.safe_point_writer import CheckpointFile, SafePointWriter
from commitlog_svc.recovery.store_root import StoreRoot
from commitlog_svc.replication.cut import finish_cut, plan_cut
from commitlog_svc.replication.epochs import EpochFile, open_store_id
from commitlog_svc.replication.log_copy import LogCopy
from commitlog_svc.replication.replicated_log import ReplicatedLog
from commitlog_svc.reput.followers import FollowerRegistry
from commitlog_svc.reput.log_following import LogFollowing
from commitlog_svc.reput.reput import CopyPauses, Gathering
from commitlog_svc.retention.disk_space import DiskSpace
from commitlog_svc.retention.retention import Retention
from store.errors import DiskFullError, StoreError, StoreRecoveringError
from store.features.table import BATCH_QUEUES, FoundFeature, closed_topics, held_topics, with_batch_topics
from store.files.file_system import FileSystem, RealFileSystem
from store.files.mapped_files import MappedFileQueue
from store.files.owners_files import OwnersFiles
from store.format import paths
from store.format.checkpoint import CONFIRMED_MARK_NAME
from store.walk.checks import SizeCheck
from store.walk.cursor import RecordCursor

if TYPE_CHECKING:
    from commitlog_svc.beside.owners_log import OwnersLog

CHECKPOINT_SECONDS = 1.0
# A restart after a kill walks at most what was appended in this time, and not much more than SNAPSHOT_BYTES: that takes a
# fraction of a second also without a kernel. A snapshot is two small flushes and takes up to 10 ms for thousands of queues.
# With more of them it is written more rarely (`pause_seconds`).
SNAPSHOT_SECONDS = 1.0
SNAPSHOT_LOOK_SECONDS = 0.25
RETENTION_SECONDS = 0.05
# An async append to a file that was removed is acknowledged no longer than this, a sync one never.
FILES_SECONDS = 1.0
BATCH_TOPICS_TOLD_MAX = 10  # of those that the log shows, in a log line
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
        on_changed: called once, when the owner of a log that is only followed cut or replaced it.
        timings: gets how long appends and flushes took.

    Attributes:
        root: the store root and its locks.
        recovery_progress: how far `recover` is.
        store_id: of a replica, once the log is recovered; see replication/epochs.py.
    """

    def __init__(
        self,
        root: Path,
        settings: LogSettings,
        fs: FileSystem | None = None,
        clock_millis: Callable[[], int] = clock_millis_now,
        on_fenced: Callable[[StoreError], None] = lambda error: None,
        timings: Timings = NO_TIMINGS,
        on_changed: Callable[[StoreError], None] = lambda error: None,
    ) -> None:
        self._fs = fs if fs is not None else RealFileSystem()
        self._settings = settings
        self._clock_millis = clock_millis
        self._timings = timings
        read_only = settings.read_only or settings.follow
        derived = settings.derived if settings.follow else None
        self._own_directory = Path(paths.own_state_dir(str(derived or root), "commitlog"))
        log_directory = Path(paths.commit_log_dir(str(root)))
        owners_files = None
        if derived is not None:
            owners_files = OwnersFiles(self._fs, log_directory, settings.file_size_bytes)
        self._files = owners_files or MappedFileQueue(
            self._fs,
            log_directory,
            settings.file_size_bytes,
            writable=not read_only,
            allocate=True,
            staging=self._own_directory,
        )
        self._starts = FrameStarts()
        self._closing = threading.Event()
        self._close_lock = threading.Lock()
        self._closed = False
        self._opened: OpenedLog | None = None
        self._housekeeper: Housekeeper | None = None
        self.root = StoreRoot(
            self._fs,
            root,
            read_only=read_only,
            may_be_empty=not settings.read_only,
            lock_wait_seconds=settings.lock_wait_seconds,
        )
        self.topics = TopicTable(self._fs, root, settings.default_topic_queue_count, clock_millis)
        self.followers = FollowerRegistry(self._fs, self._own_directory, settings.follower_names, read_only=read_only)
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
        source = settings.mirror if derived is None else f"the broker that writes {root}"
        self._refusals = AppendRefusals(self.root, self._commits, self._closing, source)
        self._followed = self._follow(owners_files, on_changed) if owners_files is not None else None
        self.confirm = ConfirmOffset(self._followed or self._commits)
        self.epochs = EpochFile(self._fs, self._own_directory)
        self.store_id = ""
        self._confirmed: DurableMark | None = None
        self.following = LogFollowing(self._files, self._starts, self.confirm)
        self.status = LogStatus(
            lambda: self._opened,
            self.root,
            self._files,
            self._commits,
            self.confirm,
            self.following,
            self._refusals,
            self._followed,
            self.topics,
            clock_millis,
        )

    @property
    def flushes(self) -> GroupCommit:
        """How far the log is on the disk, and how to wait for it."""
        return self._commits

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
        self.topics.closed = closed_topics(self.root.features)
        if self._followed is not None:
            self._followed.hold()

    def recover(self) -> RecoveredLog:
        """Opens the log and makes it ready; blocks until then.

        Raises:
            UnsupportedStoreError, StoreLockedError, StoreCorruptedError, FlushFailedError: no lock is held then.
        """
        self.hold()
        try:
            if not self.root.read_only:
                self._open_own_directory()
            self.followers.load()
            found = self._find_end()
            self._close_batch_topics(found.batch_topics.keys())
            if self._followed is None:
                self.topics.load(found.queue_offsets)
            else:
                self._followed.read_topics()
            self._checkpoint.load()
            directory = self._files.directory if self._fs.is_dir(self._files.directory) else self.root.directory
            disk = self._refusals.disk = DiskSpace(self._fs, directory, self._settings.disk_limits)
            retention = None
            if not self.root.read_only:
                retention = self._load_retention(found, disk)
                self._refusals.mark_open(lambda: self._safe_points.open_mark(found.end_offset))
        except BaseException:
            self.following.fail()
            if self._followed is not None:
                self._followed.close()
            self._files.close()
            self.root.release(clean=False)  # the marker stays as it was found
            raise
        self._open(found, retention)
        return found

    def join_replicas(self, gate: AppendGate) -> None:
        """Makes this log one of several replicas; to be called before it is recovered.

        Args:
            gate: decides about each append from now on. Until `confirm` is limited further, what was shown in the last life
                is shown.
        """
        self._refusals.gate = gate
        self.following.gathering = Gathering(is_copy=lambda: not gate.leads, pauses=CopyPauses())
        self.confirm.limit(0)

    def replicated(self) -> ReplicatedLog:
        """The parts of the recovered log that the replication uses; StoreRecoveringError until then. To be called once."""
        opened = self.opened
        return ReplicatedLog(
            self._fs,
            self._own_directory,
            self._files,
            self._commits,
            self.confirm,
            self.epochs,
            self.store_id,
            ConfigShare(self.topics, opened.config_files, opened.appends.forget_topics),
            lambda: opened.appender.end_offset,
            lambda: self.begin_copy(self.topics.see),
            lambda: self.following.show_now(is_read=False),
        )

    def begin_copy(self, on_queues: Callable[[Collection[QueueKey]], None] = lambda queues: None) -> LogCopy:
        """The log grows by the bytes of another writer from now on; nothing may be appended until that copy is closed.

        Args:
            on_queues: told the queues that have grown.

        Raises:
            StoreRecoveringError: the log is not recovered yet.
        """

        def settled(
            end_offset: int, store_time_millis: int, queue_offsets: Mapping[QueueKey, int], batch_topics: Set[str]
        ) -> None:
            self._close_batch_topics(batch_topics)
            on_queues(queue_offsets)
            self._safe_points.written_times.append((end_offset, store_time_millis))
            self._commits.note_written(end_offset)

        return LogCopy(self._files, self.opened.appender, settled)

    def use_file_size(self, size_bytes: int) -> None:
        """Makes the files of an empty log of this size; a log that has files keeps theirs."""
        if not self._files.files:
            self._files.file_size_bytes = size_bytes

    def read_bytes(self, offset: int, size_bytes: int) -> bytes:
        """Raw bytes of the log's files; fewer where the files end."""
        return self._files.read(offset, size_bytes)

    def record_end_before(self, offset: int) -> int:
        """The end of the last record that lies before an offset (bytes); the begin of the file where that has none."""
        file = self._files.find(offset - 1)
        end = file.first_offset if file is not None else offset
        for begin, size_bytes in RecordCursor(self._files, end, SizeCheck(), end_offset=offset):
            end = begin + size_bytes
        return end

    def plan_cut(self, offset: int) -> None:
        """Notes that the next start cuts the log at an offset (bytes); what lies behind is kept aside."""
        plan_cut(self._fs, self._own_directory, offset)

    def _close_batch_topics(self, topics: Set[str]) -> None:
        """Topics of which the log has an inner batch take no messages, whatever config/ and folders say of them."""
        known = {topic for each in self.root.features if each.feature is BATCH_QUEUES for topic in each.evidence}
        new = sorted(topics - known)
        if not new:
            return
        self.root.features = with_batch_topics(self.root.features, topics)
        self.topics.closed = closed_topics(self.root.features)
        feature = BATCH_QUEUES
        _log.warning(
            "store.feature",
            feature=feature.name,
            verdict=str(feature.support),
            where=new[:BATCH_TOPICS_TOLD_MAX],
            text=FoundFeature(feature, tuple(new)).text,
        )

    def _find_end(self) -> RecoveredLog:
        if self._followed is not None:
            return self._followed.open(self.recovery_progress)
        if self.root.read_only:
            self._files.load()
        else:
            finish_cut(self._fs, self._own_directory, self._files)
        self.epochs.load()
        return recover_log(
            self._fs,
            self.root.directory,
            self._files,
            was_aborted=self.root.was_aborted,
            read_only=self.root.read_only,
            progress=self.recovery_progress,
            open_feed=None if self.confirm.is_limited else self.following.open_feed,
            light_queue_count_max=self._settings.light_queue_count_max,
        )

    def _follow(self, files: OwnersFiles, on_changed: Callable[[StoreError], None]) -> "OwnersLog":
        from commitlog_svc.beside.owners_log import OwnersLog

        def shown(end_offset: int, store_time_millis: int) -> None:
            self._starts.forget(files.first_offset)
            if self._opened is not None:
                appender = self._opened.appender
                appender.last_store_time_millis = appender.greatest_store_time_millis = store_time_millis
                self._opened.appender.end_offset = end_offset

        return OwnersLog(
            self._fs,
            files,
            self._own_directory,
            self.followers,
            on_changed,
            shown,
            self.topics.load,
            self._clock_millis,
        )

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
        if self._followed is not None:
            self._followed.close()
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
            if self._confirmed is not None:
                self._confirmed.close()
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
        if self.confirm.is_limited:
            self._limit_as_before(found)
            self.store_id = open_store_id(self._fs, self._own_directory, self.epochs)
        self._opened = OpenedLog(
            found,
            appends,
            reads,
            appender,
            retention,
            TopicCommands(
                self.topics,
                self._refuse_state,
                appends.forget_topics,
                lambda: (self._files.first_offset, appender.end_offset),
            ),
            self._config_files(),
        )
        self.following.open()
        if self._followed is not None:
            self._followed.start()
        if retention is not None:
            self._housekeeper = Housekeeper(self._chores(found, appender, retention), self._commits.fail)
            self._housekeeper.start()

    def _limit_as_before(self, found: RecoveredLog) -> None:
        """Shows what the last life has shown, so that followers find their places."""
        shown = read_durable_mark(self._fs, self._own_directory, CONFIRMED_MARK_NAME)
        if not self.epochs.epochs and shown is None and not self._checkpoint.confirm_offset:
            shown = found.end_offset  # until now the log had no replicas
        offset = min(found.end_offset, max(shown or 0, self._checkpoint.confirm_offset))
        self._confirmed = DurableMark(self._fs, self._own_directory, CONFIRMED_MARK_NAME)
        self._confirmed.begin(offset)
        self.confirm.on_limited = self._confirmed.write
        self.confirm.limit(offset)

    def _config_files(self) -> ConfigFiles:
        root = self.root.directory
        size_bytes = self._settings.timer_log_file_size_bytes
        timer_log = TimerLogFiles(self._fs, Path(root), self._own_directory, size_bytes, self._refuse_state)
        files = ConfigFiles(self._fs, Path(paths.config_dir(str(root))), self._refuse_state, timer_log)
        files.look()
        return files

    def _refuse_state(self) -> None:
        """Raises when nothing may be written; state, like the records of services, may use the reserve of the disk."""
        self._refusals.refuse(True)

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
            on_removed=self._forget_before,
            held_by=self.retention_holders,
        )
        retention.load(found.end_offset)
        return retention

    def _forget_before(self, log_first_offset: int) -> None:
        self._starts.forget(log_first_offset)
        if self._opened is not None:
            self._opened.appender.forget_light_queues(log_first_offset)

    def retention_holders(self) -> Sequence[str]:
        """Configured topics whose records must not expire by age: only a broker can bring them to where it keeps them."""
        return [topic for topic in held_topics(self.root.features) if self.topics.find(topic) is not None]

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
            Chore("snapshot", SNAPSHOT_SECONDS, self._safe_points.write_in_turn),
            Chore("early-snapshot", SNAPSHOT_LOOK_SECONDS, self._safe_points.write_early),
        ]
