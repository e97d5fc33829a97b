"""SchedulePart and ScheduleFollower: the lives of the schedule service (services/following/state_topic/state_follower.py).

The state of a life is that of the kinds of waiting messages (`kinds.py`): delay levels, timers, transactions. A life hears of
new records and wakes the kinds whose topics they are of. The kinds do their work in threads of their own.

On a store that is only read everything is known and nothing is appended; also on a replica that does not lead.
"""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

import structlog

from reput.commitlog.v1.commitlog_service_pb2 import GetStatusRequest
from reput.schedule.v1 import state_pb2 as pb
from schedule_svc.kinds import KindRules, Kinds
from schedule_svc.life import Life, Worker
from schedule_svc.settings import ScheduleSettings
from schedule_svc.state.codec import apply_change, apply_piece
from schedule_svc.state.schedule_state import ScheduleState
from schedule_svc.transactions.half_messages import CheckRules
from schedule_svc.transactions.kind import LastingTransactions
from services.calling.commitlog import CommitLogClient
from services.following.follower_process import LogRange
from services.following.follower_progress import FollowerProgress
from services.following.state_topic.state_follower import AppendRecords, StateFollower, StatePart
from services.following.state_topic.state_writer import FULL, FULL_BEGIN, FULL_END, Append, StateTopic, StateWriter
from services.following.store_clock import DueClock
from services.reading.queue_reader import CALL_SECONDS, QueueReader
from services.reading.recent_units import RecentUnits
from services.replica_role import not_leading, replica_role
from services.rpcs import Calls
from services.rpcs.commitlog import GET_STATUS
from store.errors import StoreError
from store.format.paths import own_state_dir

FOLLOWER = "schedule"
STATE_TOPIC = "rmq_sys_REPUT_SCHEDULE_STATE"


def _apply(state: ScheduleState, kind: str, record: pb.StateRecord) -> int:
    if kind == FULL_BEGIN:
        state.begin_full()
    elif kind == FULL_END:
        state.end_full()
    elif kind == FULL:
        if state.draft is not None:
            apply_piece(state.draft, record.full)
    else:
        state.draft = None  # a full state that was not finished: nothing is written between the records of one
        for change in record.changes:
            apply_change(state, change)
    return len(record.changes)


TOPIC = StateTopic(
    STATE_TOPIC,
    FOLLOWER,
    ScheduleState,
    pb.StateRecord.FromString,
    lambda epoch, changes: pb.StateRecord(epoch=epoch, changes=changes).SerializeToString(),
    lambda epoch, piece: pb.StateRecord(epoch=epoch, full=piece).SerializeToString(),
    _apply,
)


# The pause between batches of the log. What waits here waits for a second at least, and verdicts read their half messages by
# place; only a recall, and a list, directly behind its own append waits for it.
GATHER_MILLIS = 50
# Changes that a start reads quickly; one names up to 1,000 timers.
FULL_CHANGE_COUNT = 1_000
STOP_CHANGE_COUNT = 50
# Half messages whose units, and op records, a start reads quickly.
FULL_HALF_COUNT = 100_000
STOP_HALF_COUNT = 1_000

_log = structlog.get_logger("reput.schedule")


class Answering(Protocol):
    """A servicer, which answers calls from a life."""

    def open(self, kinds: Kinds) -> None:
        """Serve this life from now on."""

    def shut(self) -> None:
        """Serve nothing until the next life."""


class ScheduleFollower(StateFollower):
    """A life of the service, going on.

    Args:
        life: what the kinds share.
        writer: of the state; None in a life that only reads.
        kinds: of waiting messages.
        progress: of the follower.
        recent: gets the units of new messages.
        begin_offset: where it begins to follow (bytes).
        first_offset: the first record of the state (bytes); -1 for none.
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
        first_offset: int,
        on_flushed: Callable[[int, int | None], None] | None,
        end_offset: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(writer, progress, recent, begin_offset, first_offset, on_flushed, end_offset, clock)
        self._life = life
        self._kinds = kinds
        self._workers = [Worker(life, kind) for kind in kinds.all]
        kinds.timers.book.on_added = next(one for one in self._workers if one.kind is kinds.timers).note

    def begin(self) -> None:
        """See StateFollower."""
        for worker in self._workers:
            worker.start()

    def stop(self) -> None:
        """See StateFollower."""
        self._end(is_clean=True)

    def abandon(self) -> None:
        """See StateFollower."""
        self._end(is_clean=False)

    def error(self) -> StoreError | None:
        """See StateFollower: of the state's writer, or of a kind that appends beside it."""
        return self._life.error

    def hear(self, queues: Mapping[str, Collection[int]], store_time_millis: int) -> None:
        """See StateFollower: wake the kinds of these topics."""
        self._life.clock.see(store_time_millis)
        for worker in self._workers:
            if not worker.kind.topics.isdisjoint(queues):
                worker.note()

    def has_state(self) -> bool:
        """See StateFollower."""
        return self._kinds.have_state()

    def has_many_changes(self) -> bool:
        """See StateFollower."""
        is_much = self._writer is not None and self._writer.changes_behind_full >= FULL_CHANGE_COUNT
        return is_much or self._kinds.transactions.behind_full_count() >= FULL_HALF_COUNT

    def write_full(self) -> "Future[int]":
        """See StateFollower."""
        return self._life.write_full(self._kinds.all)

    def needed_offset(self) -> int:
        """See StateFollower: the records of what waits."""
        return min(kind.needed_offset() for kind in self._kinds.all)

    def do_what_is_due(self) -> None:
        """See StateFollower: the kinds have threads of their own."""

    def _end(self, *, is_clean: bool) -> None:
        for worker in self._workers:
            worker.close()
        if self._writer is not None:
            is_clean = is_clean and self._life.error is None
            is_much = self._writer.changes_behind_full >= STOP_CHANGE_COUNT
            if is_clean and (is_much or self._kinds.transactions.behind_full_count() >= STOP_HALF_COUNT):
                self.write_full()
            self._writer.close()
            is_clean = is_clean and self._life.error is None
        for kind in self._kinds.all:
            kind.stop(is_clean=is_clean)


class SchedulePart(StatePart[ScheduleState, StateWriter]):
    """Opens lives, and the servicer answers from them.

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
        consumequeue: Calls,
        lasting: LastingTransactions,
    ) -> None:
        super().__init__(TOPIC, settings, servicer.shut, commitlog, consumequeue)
        self._lasting = lasting
        self._settings = settings
        self._servicer = servicer
        self._progress = progress

    def new_writer(self, append: Append, epoch: int, request_bytes_max: int) -> StateWriter:
        """See StatePart."""
        return StateWriter(TOPIC, append, epoch, request_bytes_max=request_bytes_max)

    def new_life(
        self, log: LogRange, writer: StateWriter | None, append: AppendRecords | None, begin_offset: int
    ) -> ScheduleFollower:
        """See StatePart."""
        loaded = self._state_log.load(begin_offset)
        if writer is not None:
            writer.changes_behind_full = loaded.change_count
        recent = self.recent_units()
        reader = QueueReader(recent, self._consumequeue, self._commitlog)
        clock = DueClock(newest_millis=self._state_log.newest_store_millis())
        life = Life(writer, reader, clock, append)
        if writer is None and not self._writes_no_records:
            life.refusal = not_leading

        def leads() -> bool:
            return replica_role(self._commitlog.call(GET_STATUS, GetStatusRequest(), CALL_SECONDS)) == log.role

        kinds = Kinds.of(
            life,
            loaded.states,
            self._commitlog,
            self._progress,
            self._state_log.end_offset,
            leads,
            self._kind_rules(writer, self._state_log.request_bytes_max()),
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

    def _kind_rules(self, writer: StateWriter | None, batch_bytes_max: int) -> KindRules:
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
