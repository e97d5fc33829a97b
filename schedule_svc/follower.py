"""SchedulePart and ScheduleFollower: the life of the schedule service as a follower of the log.

Theory of operation: a life begins with an epoch, larger than that of each life before; what an earlier one still appends is
refused. Then the state is read from the state topic (`state_topic.py`), up to the end of the log, and given to the kinds of
waiting messages (`life.py`): delay levels, timers, transactions. From there on the follower hears of new records by Reput, puts
their units into `recent`, and wakes the kinds whose topics they are of. The kinds do their work in threads of their own.

The full state is written again after FULL_CHANGE_COUNT changes, before it is FULL_LOG_BYTES behind the end of the log, and at
a clean stop. Retention waits for the oldest record that a kind or the state needs: the follower reports its place as what it
has applied. It does so when Reput has shown all that the log had when that place was found: until then a power cut, or a new
leader, may take what says that older records are not needed.

On a store that is only read everything is known and nothing is appended; also on a replica that does not lead. There a life
ends when the log must have a newer full state; a life of a leader begins when the log leads.
"""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog

from reput.message.v1.message_pb2 import FLUSH_MODE_UNSPECIFIED
from schedule_svc.kinds import KindRules, Kinds
from schedule_svc.life import Append, Life
from schedule_svc.settings import ScheduleSettings
from schedule_svc.state_topic import FOLLOWER, TOPIC
from schedule_svc.transactions.half_messages import CheckRules
from schedule_svc.transactions.kind import LastingTransactions
from schedule_svc.workers import Worker
from services.calling.commitlog import CommitLogClient
from services.calling.consumequeue import ConsumeQueueClient
from services.following.follower_process import LifeOverError, LogRange
from services.following.follower_progress import FollowerProgress
from services.following.state_topic.state_log import StateLog
from services.following.state_topic.state_writer import StateWriter
from services.following.store_clock import DueClock
from services.reading.queue_reader import CALL_SECONDS, QueueReader
from services.reading.recent_units import RecentUnits
from services.replica_role import ReplicaRole, not_leading, replica_role
from store.errors import ServiceUnavailableError, StoreError
from store.format.paths import own_state_dir

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns

REPORT_SECONDS = 1.0
# The pause between batches of the log. What waits here waits for a second at least, and verdicts read their half messages by
# place; only a recall, and a list, directly behind its own append waits for it.
GATHER_MILLIS = 50
# Changes that a start reads quickly; one names up to 1,000 timers.
FULL_CHANGE_COUNT = 1_000
STOP_CHANGE_COUNT = 50
# Half messages whose units, and op records, a start reads quickly.
FULL_HALF_COUNT = 100_000
STOP_HALF_COUNT = 1_000
# The full state is written again before so much of the log is behind it: retention waits for it.
FULL_LOG_BYTES = 256 << 20
# A life that only reads begins anew when the log must have a newer full state.
READ_AGAIN_LOG_BYTES = 2 * FULL_LOG_BYTES

_log = structlog.get_logger("reput.schedule")


class Answering(Protocol):
    """What answers from the lives."""

    def open(self, kinds: Kinds) -> None:
        """Serve this life from now on."""

    def shut(self) -> None:
        """Serve nothing until the next life."""


class ScheduleFollower:
    """A Follower (services/following/follower_process.py) that keeps a life going.

    Args:
        life: what the kinds share.
        writer: of the state; None on a store that is only read.
        kinds: of waiting messages.
        progress: of the follower.
        recent: gets the units of new messages.
        begin_offset: where it begins to follow (bytes).
        state_offset: the first record of the state (bytes); -1 for none.
        on_flushed: told how far the log is not needed any more.
        end_offset: asks for the end of what the log has written (bytes).
        clock: seconds, rising.
    """

    def __init__(
        self,
        life: Life,
        writer: StateWriter | None,
        kinds: Kinds,
        progress: FollowerProgress,
        recent: RecentUnits,
        begin_offset: int,
        state_offset: int,
        on_flushed: Callable[[int, int | None], None] | None,
        end_offset: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._life = life
        self._writer = writer
        self._kinds = kinds
        self._progress = progress
        self._recent = recent
        self._state_offset = state_offset if state_offset >= 0 else begin_offset
        self._on_flushed = on_flushed
        self._end_offset = end_offset
        self._clock = clock
        self._workers = [Worker(life, kind) for kind in kinds.all]
        kinds.timers.book.on_added = next(one for one in self._workers if one.kind is kinds.timers).note
        self._full: Future[int] | None = None
        self._report_at = clock()
        self._report: tuple[int, int] | None = None  # what is needed, and the end of the log then (bytes)
        progress.retreat(begin_offset, 0)

    def begin(self) -> None:
        """See Follower."""
        for worker in self._workers:
            worker.start()

    def start_offset(self) -> int:
        """See Follower."""
        return self._progress.next_offset

    def apply(
        self, records: "DispatchColumns | None", next_offset: int, log_first_offset: int, log_end_offset: int
    ) -> bool:
        """See Follower: hear of new messages, and do what comes with time."""
        if self._life.error is not None:  # of the state's writer, or of a kind that appends beside it
            raise self._life.error
        self._progress.see_log(log_first_offset, log_end_offset)
        store_time_millis = None
        if records is not None and len(records):
            store_time_millis = int(records.store_times_millis[-1])
            self._life.clock.see(store_time_millis)
            topics = frozenset(self._recent.add(records))
            for worker in self._workers:
                if worker.kind.topics & topics:
                    worker.note()
        self._progress.advance(max(next_offset, self._progress.next_offset), store_time_millis)
        self._keep_full_state()
        self._report_needed()
        return True

    def find_place(self, log_first_offset: int, log_end_offset: int) -> None:
        """See Follower: another log, or one that was cut; the next life reads it."""
        raise ServiceUnavailableError(
            f"the log has no record at {self._progress.next_offset}: it begins at {log_first_offset} and ends at "
            f"{log_end_offset}; what waits is read again"
        )

    def pass_last_record(self) -> bool:
        """See Follower: only records behind those that were applied are asked for."""
        return False

    def stop(self) -> None:
        """Write the full state if a start would have much to read; end the life."""
        self._end(is_clean=True)

    def abandon(self) -> None:
        """End the life; the log has its state."""
        self._end(is_clean=False)

    def _end(self, *, is_clean: bool) -> None:
        for worker in self._workers:
            worker.close()
        if self._writer is not None:
            is_clean = is_clean and self._life.error is None
            is_much = self._writer.changes_behind_full >= STOP_CHANGE_COUNT
            if is_clean and (is_much or self._kinds.transactions.behind_full_count() >= STOP_HALF_COUNT):
                self._life.write_full(self._kinds.all)
            self._writer.close()
            is_clean = is_clean and self._life.error is None
        for kind in self._kinds.all:
            kind.stop(is_clean=is_clean)

    def _keep_full_state(self) -> None:
        writer = self._writer
        if writer is not None:
            if self._full is not None and self._full.done():
                self._state_offset = self._full.result()
                self._full = None
            if self._full is None:
                is_far = self._progress.next_offset - self._state_offset > FULL_LOG_BYTES
                if not self._kinds.have_state():
                    self._state_offset = max(self._state_offset, self._progress.next_offset)
                elif (
                    writer.changes_behind_full >= FULL_CHANGE_COUNT
                    or self._kinds.transactions.behind_full_count() >= FULL_HALF_COUNT
                    or is_far
                ):
                    self._full = self._life.write_full(self._kinds.all)
        elif self._progress.next_offset - self._state_offset > READ_AGAIN_LOG_BYTES:
            raise LifeOverError

    def _report_needed(self) -> None:
        if self._on_flushed is None:
            return
        now = self._clock()
        if self._report is None and now >= self._report_at:
            self._report_at = now + REPORT_SECONDS
            needed = [kind.needed_offset() for kind in self._kinds.all]
            place = min(self._progress.next_offset, self._state_offset, *needed)
            with contextlib.suppress(StoreError):  # the next report is soon
                self._report = (place, self._end_offset())
        if self._report is not None and self._progress.next_offset >= self._report[1]:
            self._on_flushed(self._report[0], None)
            self._report = None


class SchedulePart:
    """A FollowerPart: opens lives, and the servicer answers from them.

    Args:
        settings: of the service.
        servicer: answers from the lives.
        progress: of the follower.
        commitlog: the client for records and appends.
        consumequeue: the client for queues.
        lasting: what of transactions outlives a life.
    """

    def __init__(
        self,
        settings: ScheduleSettings,
        servicer: Answering,
        progress: FollowerProgress,
        commitlog: CommitLogClient,
        consumequeue: ConsumeQueueClient,
        lasting: LastingTransactions,
    ) -> None:
        self._lasting = lasting
        self._settings = settings
        self._servicer = servicer
        self._progress = progress
        self._commitlog = commitlog
        self._consumequeue = consumequeue
        self._state_log = StateLog(TOPIC, commitlog, consumequeue)
        self.on_flushed: Callable[[int, int | None], None] | None = None

    def check(self) -> None:
        """See FollowerPart: every store can be served."""

    def is_unbuilt(self) -> bool:
        """See FollowerPart: what waits is always read from the whole log."""
        return False

    def shut(self) -> None:
        """See FollowerPart."""
        self._servicer.shut()

    def open(self, log: LogRange, *, drop_cache: bool) -> ScheduleFollower:
        """See FollowerPart: begin a life."""
        if self._settings.writes_no_records or not log.role.leads:
            return self._open(log.role, None, None, log.end_offset)
        epoch = self._state_log.begin_life(log.end_offset)
        bytes_max = self._state_log.request_bytes_max()
        writer = StateWriter(TOPIC, partial(self._state_log.append, epoch), epoch, request_bytes_max=bytes_max)
        try:
            append = partial(self._state_log.append, epoch, flush=FLUSH_MODE_UNSPECIFIED)
            return self._open(log.role, writer, append, self._state_log.end_offset())
        except BaseException:
            writer.close()
            raise

    def _open(
        self, role: ReplicaRole, writer: StateWriter | None, append: Append | None, begin_offset: int
    ) -> ScheduleFollower:
        loaded = self._state_log.load(begin_offset)
        if writer is not None:
            writer.changes_behind_full = loaded.change_count
        recent = RecentUnits()
        queues = self._consumequeue.list_queues(timeout_seconds=CALL_SECONDS)
        recent.set_ends((queue.topic, queue.queue_id, queue.max_offset) for queue in queues if not queue.problem)
        reader = QueueReader(recent, self._consumequeue, self._commitlog)
        clock = DueClock(newest_millis=self._state_log.newest_store_millis())
        life = Life(writer, reader, clock, append)
        if writer is None and not self._settings.writes_no_records:
            life.refusal = not_leading

        def leads() -> bool:
            return replica_role(self._commitlog.get_status(timeout_seconds=CALL_SECONDS)) == role

        kinds = Kinds.of(
            life,
            loaded.states,
            self._commitlog,
            self._progress,
            self._state_log.end_offset,
            leads,
            self._rules(writer, self._state_log.request_bytes_max()),
            self._lasting,
            is_beside=self._settings.has_live_broker,
        )
        for kind in kinds.all:
            kind.begin()
        self._servicer.open(kinds)
        _log.info("schedule.opened", changes=loaded.change_count, epoch=loaded.epoch)
        return ScheduleFollower(
            life,
            writer,
            kinds,
            self._progress,
            recent,
            begin_offset,
            loaded.first_offset,
            self.on_flushed,
            self._state_log.end_offset,
        )

    def _rules(self, writer: StateWriter | None, batch_bytes_max: int) -> KindRules:
        settings = self._settings
        own_dir = Path(own_state_dir(str(settings.derived_root), FOLLOWER)) / "timers"
        return KindRules(
            own_dir if writer is not None else None,
            settings.delay_levels_millis,
            settings.roll_after_seconds * 1_000,
            settings.broker_name,
            CheckRules(
                int(settings.transaction_timeout_seconds * 1_000),
                int(settings.transaction_check_interval_seconds * 1_000),
                settings.transaction_check_count_max,
            ),
            batch_bytes_max,
        )
