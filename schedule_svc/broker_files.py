"""BrokerFiles: RocketMQ's files of what waits, kept so that a real broker can take over.

    delayOffset.json    the position of each delay level; and for the consumer service those of transactions
    timerlog/           a unit for each timer that waits, then one that says how far the timer topic is read
    timercheck          the slot that a broker reads first

They are written while something changes, every 5 s, and at a clean stop. They never say more than the log: what is under way
when they are made is in the log before they are written. A broker that comes after a kill delivers again what was delivered
since. Many timers are written less often. `timerlog/` is written before `timercheck`: it has only what waits, so with an older
page a broker looks for units in slots that have none. The position in the page is that of the first timer that waits.

A life that finds what a broker has done since writes the full state before it delivers anything, and then replaces the files.

BrokerBeside: what a broker that runs beside this service has delivered does not wait any more.

The broker writes the positions of its delay levels every 10 s (flushDelayOffsetInterval) and the time of its timer wheel every
second, to files of `config/`. A transaction needs nothing: its end is a record of the log.

BrokerMarks: what the files of a broker say that it has done of the messages that wait.

encode_units: the units of `timerlog/` for timers that wait, as a broker would have written them; pure.

A slot is a second, and its messages go in the second after it. A timer that is far away gets a slot before its own, at which
the broker stores its record again, to wait on (`TimerMessageStore.doEnqueue` of RocketMQ 5.3.3). A broker looks no further back
than seven days, so what is overdue longer gets a later slot.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import structlog

from schedule_svc.delay_levels import DelayLevels
from schedule_svc.life import KindWithoutState, Life
from schedule_svc.state.schedule_state import Passed, ScheduleState
from schedule_svc.timers.runs import Entries
from schedule_svc.timers.timer_book import TimerBook
from schedule_svc.timers.timer_record import TIMER_QUEUE
from schedule_svc.timers.timers import Timers
from schedule_svc.transactions.kind import TransactionsKind
from services.calling.commitlog import CommitLogClient
from services.following.state_topic.state_writer import wait_for
from store.errors import ServiceUnavailableError, StoreCorruptedError, StoreError, failure_fields
from store.format.config_json import is_own
from store.format.delivery.consumer_files import decode_offsets, joined_offsets
from store.format.delivery.delay_offset_file import (
    TRANSACTION_GROUP,
    TransactionOffsets,
    decode_delay_offsets,
    encode_delay_offsets,
)
from store.format.delivery.timer_files import (
    MAGIC_DEFAULT,
    MAGIC_ROLL,
    SLOT_MILLIS,
    UNIT_DTYPE,
    UNIT_SIZE_BYTES,
    TimerCheckpoint,
    decode_timer_checkpoint,
    encode_timer_checkpoint,
    is_own_timer_checkpoint,
)
from store.format.topic import HALF_TOPIC, OP_HALF_TOPIC, TIMER_TOPIC

DELAY_OFFSETS, TIMER_CHECK = "delayOffset.json", "timercheck"
CONSUMER_OFFSETS = ("consumerOffset.json", "lmqConsumerOffset.json")
CALL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class BrokerMarks:
    """See the top of this file.

    Attributes:
        levels: the position of the next message, by delay level; None: the file is ours.
        timers: `config/timercheck`; None: the page is ours, or there is none.
        transactions: positions in the half topic and the operation topic.
    """

    levels: Mapping[int, int] | None
    timers: TimerCheckpoint | None
    transactions: TransactionOffsets


def read_broker_marks(commitlog: CommitLogClient) -> BrokerMarks | None:
    """The marks that a broker wrote since this service wrote the files; None when no broker has been on the store.

    Raises:
        StoreError: a file cannot be read: what a broker delivered would be delivered again.
    """
    levels = commitlog.read_config_file(DELAY_OFFSETS, timeout_seconds=CALL_SECONDS)
    timers = commitlog.read_config_file(TIMER_CHECK, timeout_seconds=CALL_SECONDS)
    has_levels = bool(levels) and not is_own(levels or b"")
    has_timers = bool(timers) and not is_own_timer_checkpoint(timers or b"")
    if not has_levels and not has_timers:
        return None
    files = [commitlog.read_config_file(name, timeout_seconds=CALL_SECONDS) for name in CONSUMER_OFFSETS]
    offsets = joined_offsets(decode_offsets(content) for content in files if content)
    half = offsets.get((TRANSACTION_GROUP, HALF_TOPIC), {}).get(0, 0)
    operation = offsets.get((TRANSACTION_GROUP, OP_HALF_TOPIC), {}).get(0, 0)
    return BrokerMarks(
        decode_delay_offsets(levels) if levels and has_levels else None,
        decode_timer_checkpoint(timers) if timers and has_timers else None,
        TransactionOffsets(half, operation),
    )


def apply_broker_marks(state: ScheduleState, marks: BrokerMarks) -> None:
    """Note in a state what a broker has done.

    Nothing goes back: what one of us has done is done. A broker that was killed may say less than the log.
    """
    for level, position in (marks.levels or {}).items():
        state.levels[level] = max(state.levels.get(level, 0), position)
    if marks.timers is not None:
        timers = state.timers
        # A message of the slot before is due a second after its begin at the latest.
        passed = Passed(marks.timers.last_read_millis + 1)
        timers.next_queue_offset = max(timers.next_queue_offset, marks.timers.queue_offset)
        if passed >= timers.passed:
            timers.passed = passed
            timers.pending.clear()  # what was overdue here is delivered there first
    transactions = state.transactions
    transactions.half_offset = max(transactions.half_offset, marks.transactions.half)
    transactions.op_offset = max(transactions.op_offset, marks.transactions.operation)


# RocketMQ's timerRollWindowSlot.
ROLL_WINDOW_MILLIS = 2 * 24 * 3600 * SLOT_MILLIS
LOOK_BACK_MILLIS = 6 * 24 * 3600 * SLOT_MILLIS


def first_slot(oldest_due_millis: int | None, now_millis: int) -> int:
    """The slot that a broker is to read first (ms since 1970), if the oldest timer that waits is due at a time; None: none."""
    now_slot = now_millis // SLOT_MILLIS * SLOT_MILLIS
    slot = now_slot if oldest_due_millis is None else (oldest_due_millis - 1) // SLOT_MILLIS * SLOT_MILLIS
    return max(min(slot, now_slot), now_slot - LOOK_BACK_MILLIS)


def encode_units(timers: Entries, first_slot_millis: int, now_millis: int) -> bytes:
    """Units of timers that wait.

    Args:
        timers: in any order.
        first_slot_millis: see `first_slot`.
        now_millis: the time (ms since 1970).
    """
    import numpy as np

    slots = np.maximum((timers.dues_millis - 1) // SLOT_MILLIS * SLOT_MILLIS, first_slot_millis)
    now_slot = now_millis // SLOT_MILLIS * SLOT_MILLIS
    delays = slots - now_slot
    is_far = delays >= ROLL_WINDOW_MILLIS
    is_soon_after = delays < ROLL_WINDOW_MILLIS + ROLL_WINDOW_MILLIS // 3
    roll_delays = np.where(is_soon_after, ROLL_WINDOW_MILLIS // 2, ROLL_WINDOW_MILLIS)
    units = np.zeros(len(timers), UNIT_DTYPE)
    units["size"] = UNIT_SIZE_BYTES
    units["magic"] = np.where(is_far, MAGIC_DEFAULT | MAGIC_ROLL, MAGIC_DEFAULT)
    units["enqueue_millis"] = now_slot
    units["delay_millis"] = np.where(is_far, roll_delays, delays)
    units["commit_log_offset"] = timers.commit_log_offsets
    units["record_size_bytes"] = timers.sizes_bytes
    return units.tobytes()


def encode_last_unit(commit_log_offset: int, record_size_bytes: int, first_slot_millis: int) -> bytes:
    """The unit that says how far a broker has read the timer topic: its newest record, in a slot that is over.

    Args:
        commit_log_offset: of the record (bytes).
        record_size_bytes: of it.
        first_slot_millis: see `first_slot`.
    """
    import numpy as np

    unit = np.zeros(1, UNIT_DTYPE)
    unit["size"], unit["magic"] = UNIT_SIZE_BYTES, MAGIC_DEFAULT
    unit["enqueue_millis"] = first_slot_millis - SLOT_MILLIS
    unit["commit_log_offset"], unit["record_size_bytes"] = commit_log_offset, record_size_bytes
    return unit.tobytes()


WRITE_MILLIS = 5_000
# How often it looks whether all timers are known.
KNOWN_MILLIS = 200
# A million timers, 52 MB of units, are written every 50 s.
PAUSE_MILLIS_A_THOUSAND_TIMERS = 50
PAGE_COUNT = 65_536
# The units of all timers are on the disk by then.
TIMER_LOG_SECONDS = 120.0
# The last unit says where a broker goes on in the timer topic; its master is not before that.
NO_MASTER = (1 << 63) - 1

_log = structlog.get_logger("reput.schedule")


class BrokerFiles(KindWithoutState):
    """A WaitingKind (`life.py`) that delivers nothing; see the top of this file.

    Args:
        life: what the kinds share.
        levels: of delay.
        timers: of their own time.
        transactions: half messages.
        commitlog: writes the files.
        is_taken_over: a broker was here since the files were written.
    """

    name = "broker-files"
    topics: frozenset[str] = frozenset()

    def __init__(
        self,
        life: Life,
        levels: DelayLevels,
        timers: Timers,
        transactions: TransactionsKind,
        commitlog: CommitLogClient,
        *,
        is_taken_over: bool,
    ) -> None:
        self._life = life
        self._levels = levels
        self._transactions = transactions
        self._kinds = (levels, timers, transactions)
        self._book = timers.book
        self._commitlog = commitlog
        self._is_taken_over = is_taken_over
        self._written_levels: tuple[Mapping[int, int], TransactionOffsets] | None = None
        self._seen_timers: tuple[int, int] | None = None
        self._written_timers: tuple[int, int] | None = None
        self._first_offset = 0
        self._pause_until_millis = 0

    def begin(self) -> None:
        """See WaitingKind: have what a broker did in the log, before its files are replaced."""
        if self._is_taken_over:
            wait_for(self._life.write_full(self._kinds))
            _log.info("broker_files.taken_over")

    def work(self) -> int:
        """See WaitingKind: write what has changed."""
        self._write_levels()
        if not self._book.is_known:  # no timer was delivered yet
            return self._life.clock.millis() + KNOWN_MILLIS
        self._write_timers(is_last=False)
        return self._life.clock.millis() + WRITE_MILLIS

    def stop(self, *, is_clean: bool) -> None:
        """See WaitingKind: nothing is under way any more."""
        if not is_clean:
            return
        try:
            self._write_levels()
            if self._book.is_known:
                self._write_timers(is_last=True)
        except StoreError as error:
            _log.warning("broker_files.failed", **failure_fields(error))

    def _write_levels(self) -> None:
        with self._life.lock:
            levels = {
                position.level: position.next_offset for piece in self._levels.pieces() for position in piece.levels
            }
            under_way = self._life.newest_write()
        transactions = self._transaction_offsets()
        if self._written_levels == (levels, transactions):
            return
        wait_for(under_way)
        previous = self._commitlog.read_config_file(DELAY_OFFSETS, timeout_seconds=CALL_SECONDS)
        if previous or levels or transactions != TransactionOffsets():
            content = encode_delay_offsets(levels, transactions, previous, time_millis=self._life.clock.millis())
            self._commitlog.write_config_file(DELAY_OFFSETS, content, timeout_seconds=CALL_SECONDS)
        self._written_levels = (levels, transactions)

    def _transaction_offsets(self) -> TransactionOffsets:
        """Positions that are in the queues: a broker that finds its position removed asks for all verdicts again."""
        half_offset, op_offset = self._transactions.positions()
        reader = self._life.reader
        return TransactionOffsets(
            max(half_offset, reader.range(HALF_TOPIC, 0).min_offset),
            max(op_offset, reader.range(OP_HALF_TOPIC, 0).min_offset),
        )

    def _write_timers(self, *, is_last: bool) -> None:
        index, life = self._book.index, self._life
        seen = (index.next_queue_offset, self._book.pending_count())
        if self._written_timers == seen or (self._seen_timers == seen and not is_last):
            return
        before = self._commitlog.read_config_file(TIMER_CHECK, timeout_seconds=CALL_SECONDS)
        if not before and not seen[0]:
            return
        now_millis = life.clock.millis()
        pause_millis = seen[1] * PAUSE_MILLIS_A_THOUSAND_TIMERS // 1000
        if self._seen_timers is None and before and is_own_timer_checkpoint(before):
            self._pause_until_millis = now_millis + pause_millis  # until then those of the life before will do
        with life.lock:
            slot = first_slot(self._oldest_due_millis(), now_millis)
            under_way = life.newest_write()
        wait_for(under_way)
        counter = decode_timer_checkpoint(before).counter if before else 0
        if now_millis >= self._pause_until_millis or is_last:
            if not before or not is_own_timer_checkpoint(before):
                # A crash may leave no timerlog: then a broker is to read the whole timer topic.
                counter += 1
                self._write_page(TimerCheckpoint(slot, 0, 0, NO_MASTER, 0, now_millis, counter))
            last_unit = self._last_unit(seen[0], slot)
            self._first_offset = seen[0]
            parts = itertools.chain(self._units(seen[0], slot, now_millis), last_unit)
            self._commitlog.write_timer_log(parts, timeout_seconds=TIMER_LOG_SECONDS)
            self._written_timers = seen
            self._pause_until_millis = now_millis + pause_millis
        self._seen_timers = seen
        self._write_page(TimerCheckpoint(slot, 0, self._first_offset, NO_MASTER, 0, now_millis, counter + 1))

    def _write_page(self, page: TimerCheckpoint) -> None:
        self._commitlog.write_config_file(TIMER_CHECK, encode_timer_checkpoint(page), timeout_seconds=CALL_SECONDS)

    def _oldest_due_millis(self) -> int | None:
        in_hand = self._book.in_hand.dues_millis.tolist()
        first = self._book.index.first_due_millis()
        return min([*in_hand, *([] if first is None else [first])], default=None)

    def _units(self, end: int, slot: int, now_millis: int) -> Iterator[bytes]:
        """The units of timers that wait before a position; notes the first of them.

        What is taken out of the index meanwhile is in hand then, or under way.
        """
        for timers in itertools.chain(self._pages(), self._in_hand()):
            known = timers.pick(timers.queue_offsets < end)  # a broker reads the others in the topic
            if len(known):
                self._first_offset = min(self._first_offset, int(known.queue_offsets.min()))
                yield encode_units(known, slot, now_millis)

    def _pages(self) -> Iterator[Entries]:
        place = Passed()
        while len(page := self._book.index.page(place, PAGE_COUNT)):
            place = Passed(int(page.dues_millis[-1]), int(page.queue_offsets[-1]) + 1)
            yield self._without_done(page)

    def _in_hand(self) -> Iterator[Entries]:
        with self._life.lock:
            in_hand = self._book.in_hand
            under_way = self._life.newest_write()
        wait_for(under_way)
        yield self._without_done(in_hand)

    def _without_done(self, timers: Entries) -> Entries:
        with self._life.lock:
            return timers.pick(
                np.array([offset not in self._book.done for offset in timers.queue_offsets.tolist()], dtype=np.bool_)
            )

    def _last_unit(self, end: int, slot: int) -> Sequence[bytes]:
        """The unit that says how far the timer topic is read; none when retention removed all of it."""
        run = self._life.reader.units(TIMER_TOPIC, TIMER_QUEUE, max(end - 1, 0), 1)
        if not end or run.queue_offset >= end:
            return ()
        if not run.units:
            raise ServiceUnavailableError(f"topic {TIMER_TOPIC} has no unit at {end - 1}: its queue is being built")
        return (encode_last_unit(run.units[0].commit_log_offset, run.units[0].record_size_bytes, slot),)


LOOK_MILLIS = 2_500
TAKE_COUNT = 4_096


class BrokerBeside(KindWithoutState):
    """A WaitingKind (`life.py`) that delivers nothing; see the top of this file.

    Args:
        life: of a store that is only read.
        levels: of delay.
        book: the timers.
        commitlog: reads the files.
    """

    name = "broker-beside"
    topics: frozenset[str] = frozenset()

    def __init__(self, life: Life, levels: DelayLevels, book: TimerBook, commitlog: CommitLogClient) -> None:
        self._life = life
        self._levels = levels
        self._book = book
        self._commitlog = commitlog

    def begin(self) -> None:
        """See WaitingKind."""

    def work(self) -> int:
        """See WaitingKind: read the files."""
        try:
            marks = read_broker_marks(self._commitlog)
        except StoreCorruptedError as error:  # a broker writes a file in place: the next time it is whole
            _log.info("broker_marks.not_read", error=error.message)
            marks = None
        if marks is not None:
            with self._life.lock:
                for level, position in (marks.levels or {}).items():
                    self._levels.pass_to(level, position)
            if marks.timers is not None and self._book.is_known:
                self._drop_until(marks.timers.last_read_millis)
        return self._life.clock.millis() + LOOK_MILLIS

    def stop(self, *, is_clean: bool) -> None:
        """See WaitingKind."""

    def _drop_until(self, due_millis: int) -> None:
        """Forget the timers that were due at a time or before."""
        count = TAKE_COUNT
        while count == TAKE_COUNT:
            with self._life.lock:
                count = len(self._book.take(due_millis, TAKE_COUNT))
                self._book.in_hand = Entries.of(())
                self._book.index.confirm(count)
