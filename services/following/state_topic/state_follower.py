"""StateFollower and StatePart: the lives of a service whose state is records of the log.

Theory of operation: a life begins with an epoch, larger than that of each life before. The commit log is told, and refuses what
an earlier life may still append. The state is then read from the state topic, up to the end of the log (`state_log.py`). From
there on the follower hears of new messages by Reput, and the state is what this process itself writes (`state_writer.py`).
Nothing of this is on the disk of the service: a life can begin anywhere.

    begin_life ─▶ load ─▶ apply ... apply ─▶ stop      the log as a writer sees it, bytes grow to the right
                              │
    ──[full state]──c─c─c──────────────c─c─▶           c: changes. A start reads from the newest whole full state on
      ▲ state_offset: retention keeps everything from here on

The full state is written again after a number of changes, before it is FULL_LOG_BYTES behind the end of the log, and at a clean
stop that leaves many. Retention waits for the oldest record that the service needs: the follower reports its place as what it
has applied. It does so when Reput has shown all that the log had when that place was found: until then a power cut, or a new
leader, may take what says that older records are not needed.

A store that is only read, and a replica that does not lead, have lives that only read. Such a life reports the begin of the
state that it has read, and ends when the log must have a newer one; a life of a leader begins when the log leads.
"""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import FLUSH_MODE_UNSPECIFIED, AppendResult
from services.calling.commitlog import CommitLogClient
from services.calling.consumequeue import list_queues
from services.following.follower_process import LifeOverError, LogRange
from services.following.follower_progress import FollowerProgress
from services.following.state_topic.state_log import StateLog
from services.following.state_topic.state_writer import Append, State, StateTopic, StateWriter
from services.reading.queue_reader import CALL_SECONDS
from services.reading.recent_units import RecentUnits
from services.rpcs import Calls
from services.settings.service_settings import StoreSettings
from store.errors import ServiceUnavailableError, StoreError

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns

REPORT_SECONDS = 1.0
# The full state is written again before so much of the log is behind it: retention waits for it.
FULL_LOG_BYTES = 256 << 20
# A life that only reads begins anew when so much came since it began: the log must have a newer full state.
READ_AGAIN_LOG_BYTES = 2 * FULL_LOG_BYTES

Writer = TypeVar("Writer", bound=StateWriter)
AppendRecords = Callable[[Sequence[InternalRecord]], Sequence[AppendResult]]


class StateFollower(ABC):
    """A Follower (services/following/follower_process.py) that keeps a life going; the service says what differs.

    Args:
        writer: of the state; None in a life that only reads.
        progress: of the follower.
        recent: gets the units of new messages.
        begin_offset: where it begins to follow (bytes).
        first_offset: the first record of the state that was read (bytes); -1 for none.
        on_flushed: told how far the log is not needed any more; None where retention need not wait.
        end_offset: asks for the end of what the log has written (bytes).
        clock: seconds, rising.
    """

    def __init__(
        self,
        writer: StateWriter | None,
        progress: FollowerProgress,
        recent: RecentUnits,
        begin_offset: int,
        first_offset: int,
        on_flushed: Callable[[int, int | None], None] | None,
        end_offset: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._progress = progress
        self._recent = recent
        self._begin_offset = begin_offset
        self._state_offset = first_offset if first_offset >= 0 else begin_offset
        self._on_flushed = on_flushed
        self._end_offset = end_offset
        self._clock = clock
        self._full: Future[int] | None = None
        self._report_at = clock()
        self._report: tuple[int, int] | None = None  # what is needed, and the end of the log then (bytes)
        progress.retreat(begin_offset, 0)

    # -- what a service says

    @abstractmethod
    def begin(self) -> None:
        """See Follower: start what works beside."""

    @abstractmethod
    def stop(self) -> None:
        """See Follower: write the full state if a start would have much to read; end the life."""

    @abstractmethod
    def abandon(self) -> None:
        """See Follower: end the life; the log has its state."""

    @abstractmethod
    def error(self) -> StoreError | None:
        """Why this life cannot go on; None while it can."""

    @abstractmethod
    def hear(self, queues: Mapping[str, Collection[int]], store_time_millis: int) -> None:
        """There are new messages in these queues, by topic; the newest was stored then (ms since 1970)."""

    @abstractmethod
    def has_state(self) -> bool:
        """Whether there is any state that the log must keep."""

    @abstractmethod
    def has_many_changes(self) -> bool:
        """Whether a start would have so much to read that the full state shall be written."""

    @abstractmethod
    def write_full(self) -> "Future[int]":
        """Have the full state written."""

    @abstractmethod
    def needed_offset(self) -> int | None:
        """The oldest record that is needed besides the state (bytes); None for none."""

    @abstractmethod
    def do_what_is_due(self) -> None:
        """Do what comes with time; called after each batch of the log, which come at least once a second."""

    # -- see Follower

    def start_offset(self) -> int:
        """See Follower."""
        return self._progress.next_offset

    def apply(
        self, records: "DispatchColumns | None", next_offset: int, log_first_offset: int, log_end_offset: int
    ) -> bool:
        """See Follower: hear of new messages, and do what comes with time."""
        error = self.error()
        if error is not None:
            raise error
        self._progress.see_log(log_first_offset, log_end_offset)
        store_time_millis = None
        if records is not None and len(records):
            store_time_millis = int(records.store_times_millis[-1])
            self.hear(self._recent.add(records), store_time_millis)
        self._progress.advance(max(next_offset, self._progress.next_offset), store_time_millis)
        self._keep_full_state()
        self._report_needed()
        self.do_what_is_due()
        return True

    def find_place(self, log_first_offset: int, log_end_offset: int) -> None:
        """See Follower: another log, or one that was cut; the next life reads it."""
        raise ServiceUnavailableError(
            f"the log has no record at {self._progress.next_offset}: it begins at {log_first_offset} and ends at "
            f"{log_end_offset}; the state is read again"
        )

    def pass_last_record(self) -> bool:
        """See Follower: only records behind those that were applied are asked for."""
        return False

    def _keep_full_state(self) -> None:
        if self._writer is None:
            # Not from where the state begins: that may be far back for as long as the leader is of an earlier release.
            came_bytes = self._progress.next_offset - self._begin_offset
            if self._on_flushed is not None and came_bytes > READ_AGAIN_LOG_BYTES:
                raise LifeOverError
            return
        if self._full is not None and self._full.done():
            self._state_offset = self._full.result()
            self._full = None
        if self._full is not None:
            return
        if not self.has_state():
            self._state_offset = max(self._state_offset, self._progress.next_offset)
        elif self.has_many_changes() or self._progress.next_offset - self._state_offset > FULL_LOG_BYTES:
            self._full = self.write_full()

    def _report_needed(self) -> None:
        if self._on_flushed is None:
            return
        now = self._clock()
        if self._report is None and now >= self._report_at:
            self._report_at = now + REPORT_SECONDS
            besides = self.needed_offset()
            needed = min(self._progress.next_offset, self._state_offset)
            with contextlib.suppress(StoreError):  # the next report is soon
                self._report = (needed if besides is None else min(needed, besides), self._end_offset())
        if self._report is not None and self._progress.next_offset >= self._report[1]:
            self._on_flushed(self._report[0], None)
            self._report = None


class StatePart(ABC, Generic[State, Writer]):
    """A FollowerPart: opens lives, and the servicer answers from them.

    Args:
        topic: where the state is.
        settings: of the service.
        shut: has the servicer answer nothing until the next life.
        commitlog: the client for records and appends.
        consumequeue: the client for queues.
    """

    def __init__(
        self,
        topic: StateTopic[State],
        settings: StoreSettings,
        shut: Callable[[], None],
        commitlog: CommitLogClient,
        consumequeue: Calls,
    ) -> None:
        self._writes_no_records = settings.writes_no_records
        self._shut = shut
        self._commitlog = commitlog
        self._consumequeue = consumequeue
        self._state_log = StateLog(topic, commitlog, consumequeue)
        self.on_flushed: Callable[[int, int | None], None] | None = None

    @abstractmethod
    def new_writer(self, append: Append, epoch: int, request_bytes_max: int) -> Writer:
        """A writer of the state."""

    @abstractmethod
    def new_life(
        self, log: LogRange, writer: Writer | None, append: AppendRecords | None, begin_offset: int
    ) -> StateFollower:
        """Read the state and answer from it.

        Args:
            log: its range and role.
            writer: of the state; None in a life that only reads.
            append: appends records atomically as this life, in the log's own flush mode; None likewise.
            begin_offset: everything before it (bytes) is read, what is behind is heard of.
        """

    def check(self) -> None:
        """See FollowerPart: every store can be served."""

    def is_unbuilt(self) -> bool:
        """See FollowerPart: the state is always read from the whole log."""
        return False

    def shut(self) -> None:
        """See FollowerPart."""
        self._shut()

    def open(self, log: LogRange, *, drop_cache: bool) -> StateFollower:
        """See FollowerPart: begin a life."""
        if self._writes_no_records or not log.role.leads:
            return self.new_life(log, None, None, log.end_offset)
        epoch = self._state_log.begin_life(log.end_offset)
        writer = self.new_writer(partial(self._state_log.append, epoch), epoch, self._state_log.request_bytes_max())
        try:
            append = partial(self._state_log.append, epoch, flush=FLUSH_MODE_UNSPECIFIED)
            return self.new_life(log, writer, append, self._state_log.end_offset())
        except BaseException:
            writer.close()
            raise

    def recent_units(self) -> RecentUnits:
        """The units of messages that come from now on, with the ends of all queues."""
        recent = RecentUnits()
        queues = list_queues(self._consumequeue, timeout_seconds=CALL_SECONDS)
        recent.set_ends((queue.topic, queue.queue_id, queue.max_offset) for queue in queues if not queue.problem)
        return recent
