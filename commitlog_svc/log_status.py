"""OpenedLog: the parts of a recovered log, which callers use directly.

MirrorState: how a store that mirrors another one is doing; for GetStatus and the metrics.

LogStatus: the state of a log in numbers and texts; for GetStatus and the metrics.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from commitlog_svc.append.append_path import AppendPath
from commitlog_svc.append.appender import Appender
from commitlog_svc.append.group_commit import GroupCommit
from commitlog_svc.append.refusals import AppendRefusals
from commitlog_svc.append.topics.topics import TopicCommands
from commitlog_svc.config_files import ConfigFiles
from commitlog_svc.confirm_offset import ConfirmOffset
from commitlog_svc.lookup import LogReads
from commitlog_svc.recovery.recovery import RecoveredLog
from commitlog_svc.recovery.store_root import StoreRoot
from commitlog_svc.reput.log_following import LogFollowing
from commitlog_svc.retention.disk_space import DiskUsage
from commitlog_svc.retention.retention import Retention
from commitlog_svc.retention.retention_state import RetentionEvent
from store.errors import OffsetOutOfRangeError, StoreRecoveringError
from store.files.mapped_files import MappedFileQueue
from store.format.delivery.timer_files import MILLIS_MAX
from store.store_time import AHEAD_MILLIS_MAX

if TYPE_CHECKING:
    from commitlog_svc.append.topics.topics import TopicTable
    from commitlog_svc.beside.owners_log import OwnersLog


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """The parts of a recovered log.

    Attributes:
        found: what the recovery found.
        appends: takes append requests.
        reads: reads single records.
        appender: the one writer; has the end of the log.
        retention: removes old files; None on a read-only log.
        topic_commands: creates, changes and deletes topics.
        config_files: RocketMQ's files that services send.
    """

    found: RecoveredLog
    appends: AppendPath
    reads: LogReads
    appender: Appender
    retention: Retention | None
    topic_commands: TopicCommands
    config_files: ConfigFiles


@dataclass(slots=True)
class MirrorState:
    """How a mirror is doing; one thread writes it, others read.

    Attributes:
        source: what is mirrored, as the setting says it.
        state: `connecting`, `copying` or `stopped`.
        problem: why it is connecting or stopped, and what to do; empty when nothing is wrong.
        is_at_end: the log had everything of the source when that was last heard of.
        broker_problem: why the broker could not be asked for topics and groups; empty when nothing is wrong.
        source_end_offset: the end of the source's log when it was last asked (bytes); None: it is not asked.
    """

    source: str
    state: str = "connecting"
    problem: str = ""
    is_at_end: bool = False
    broker_problem: str = ""
    source_end_offset: int | None = None

    def lag_bytes(self, end_offset: int) -> int | None:
        """How far a log that ends at an offset is behind its source (bytes); None: that is not known."""
        if self.source_end_offset is not None:
            return max(0, self.source_end_offset - end_offset)
        return 0 if self.is_at_end else None

    def lag_millis(self, last_store_time_millis: int, now_millis: int) -> int:
        """The age of the newest record (milliseconds); 0 while the log has everything, and when nothing is copied yet."""
        return 0 if self.is_at_end or not last_store_time_millis else max(0, now_millis - last_store_time_millis)


class LogStatus:
    """The status of one log; thread-safe. Offsets are bytes of the log, times milliseconds since 1970.

    Args:
        find_opened: returns the opened log, None until it is recovered.
        root: the store root.
        files: the log.
        commits: the flushed offset, and the failure of a flush.
        confirm: what may be shown.
        following: whether the log can be followed already.
        refusals: has the disk under the log.
        followed: the log of a broker that is followed; None for one that is served.
        topics: the topic table.
        clock_millis: since 1970.

    Attributes:
        mirror: how the copy of another log is doing; None without one.
    """

    def __init__(
        self,
        find_opened: Callable[[], OpenedLog | None],
        root: StoreRoot,
        files: MappedFileQueue,
        commits: GroupCommit,
        confirm: ConfirmOffset,
        following: LogFollowing,
        refusals: AppendRefusals,
        followed: "OwnersLog | None" = None,
        topics: "TopicTable | None" = None,
        clock_millis: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._find_opened = find_opened
        self._root = root
        self._files = files
        self._commits = commits
        self._confirm = confirm
        self._following = following
        self._refusals = refusals
        self.mirror: MirrorState | None = None
        self.followed = followed
        self._topics = topics
        self._clock_millis = clock_millis

    @property
    def is_ready(self) -> bool:
        """Whether the log is recovered."""
        return self._find_opened() is not None

    @property
    def is_followable(self) -> bool:
        """Whether Reput shows a log that is still being recovered."""
        return not self.is_ready and self._following.feed is not None

    @property
    def state(self) -> str:
        """One of `recovering`, `serving`, `read-only`, `following`, `mirroring`, `disk-full` or `fenced`."""
        opened = self._find_opened()
        if opened is None:
            return "recovering"
        if self._commits.failure is not None:
            return "fenced"
        if self._root.read_only:
            return "read-only" if self.followed is None else "following"
        if self._refusals.mirrored:
            return "mirroring"
        if opened.appender.disk_full or self._refusals.is_disk_full:
            return "disk-full"
        return "serving"

    @property
    def problem(self) -> str:
        """The problem and what to do; empty when there is none."""
        if self._commits.failure is not None:
            return self._commits.failure.message
        if self.followed is not None:
            return self.followed.problem or self._config_problem
        if self.state == "disk-full":
            return "no space left for the log: free some, appends go on by themselves"
        mirror_problem = "" if self.mirror is None else self.mirror.problem or self.mirror.broker_problem
        return mirror_problem or self._config_problem

    @property
    def unreadable_topic_count(self) -> int:
        """Rows of the topic table that cannot be read."""
        return 0 if self._topics is None else len(self._topics.unreadable)

    @property
    def unreadable_config_file_count(self) -> int:
        """Files of `config/` that could not be used as they are, since the start."""
        opened = self._find_opened()
        others = 0 if opened is None else len(opened.config_files.problems)
        return others + (self._topics is not None and bool(self._topics.file_problem))

    @property
    def ahead_millis(self) -> int:
        """How far the greatest store time that is known of the log is ahead of the clock; 0: not at all."""
        opened = self._find_opened()
        return 0 if opened is None else max(0, opened.appender.greatest_store_time_millis - self._clock_millis())

    @property
    def _config_problem(self) -> str:
        opened = self._find_opened()
        problems = [] if opened is None else [text for _, text in sorted(opened.config_files.problems.items())]
        topics = "" if self._topics is None else self._topics.problem
        return "; ".join(text for text in (topics, *problems, self._time_problem, self._root.aside_words) if text)

    @property
    def _time_problem(self) -> str:
        if self.ahead_millis <= AHEAD_MILLIS_MAX:
            return ""
        newest = datetime.fromtimestamp(
            min(self._opened().appender.greatest_store_time_millis, MILLIS_MAX - 1) / 1000, UTC
        )
        return (
            f"the log has records of the future, the latest of {newest:%Y-%m-%d %H:%M:%S} UTC: a clock was wrong; queries by "
            "time and expiry take such records for new ones, later records get the time of the clock"
        )

    @property
    def first_offset(self) -> int:
        """The log's first byte."""
        return self._files.first_offset

    @property
    def end_offset(self) -> int:
        """The byte behind the last record written; StoreRecoveringError until recovered."""
        return self._opened().appender.end_offset

    @property
    def flushed_offset(self) -> int:
        """Everything before it is on the disk."""
        return self._confirm.flushed_offset

    @property
    def confirm_offset(self) -> int:
        """Everything before it may be shown to followers."""
        return self._confirm.confirm_offset

    @property
    def file_size_bytes(self) -> int:
        """Size of a log file."""
        return self._files.file_size_bytes

    @property
    def file_count(self) -> int:
        """Number of log files, including one made ahead."""
        return len(self._files.files)

    @property
    def last_store_time_millis(self) -> int:
        """Store time of the newest record; 0 on an empty log; StoreRecoveringError until recovered."""
        return self._opened().appender.last_store_time_millis

    @property
    def first_store_time_millis(self) -> int | None:
        """Store time of the oldest record; None on an empty log, and while its front is being removed."""
        opened = self._find_opened()
        if opened is None or self.first_offset >= opened.reads.readable_offset:
            return None
        try:
            return opened.reads.get(self.first_offset).store_time_millis
        except OffsetOutOfRangeError:
            return None

    @property
    def disk_usage(self) -> DiskUsage | None:
        """The disk under the log at most half a second ago; None until recovered."""
        return self._refusals.disk.usage if self._refusals.disk is not None else None

    @property
    def retention_events(self) -> tuple[RetentionEvent, ...]:
        """The removals of retention, oldest first."""
        if self.followed is not None:
            return self.followed.retention_events
        opened = self._find_opened()
        return opened.retention.events if opened is not None and opened.retention is not None else ()

    def _opened(self) -> OpenedLog:
        opened = self._find_opened()
        if opened is None:
            raise StoreRecoveringError("the commit log is being recovered: try again soon")
        return opened
