"""Transactions: the half messages of one life of the service, and what is being done with each of them.

Rules:
- Only this life appends op records, so what waits is what the log had at the start, with what arrives, without what this life
  ended. Arrivals are learned from the units of the half topic, in their order.
- A half message is claimed before it is ended or renewed. A claim is over when the append is answered, and that of a renewal
  when the new record has arrived, too. Nothing waits for the log while `lock` is held.
- A verdict may come before its half message has arrived here. Then its queue offset is kept until it does.
- When an append was not answered, this life is over (`error`), and the next one reads the log.

Outcomes: what became of the half messages that ended last.

EndWriter: appends what becomes of half messages, with the op record that ends them, one atomic request for many.

Theory of operation: a request takes everything that was submitted while the append before was under way. It has the copies of
all of it, and behind them the op record that names all their half messages. So a copy and the end of its half message
are in the log together, callers that come together share the write, and op records are batched as RocketMQ's are.

A request that the log refuses as it is was not written: each of its parts is then tried alone, and the bad one fails. An append
that fails otherwise breaks the writer (`services/following/batch_writer.py`).
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import structlog

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import AppendResult, StoredMessage
from schedule_svc.transactions.half_messages import CheckRules, HalfMessage, half_of, op_records
from schedule_svc.transactions.loading import PAGE_COUNT, Loaded
from services.following.batch_writer import BatchWriter
from services.following.state_topic import state_writer
from services.reading.queue_reader import Outcome as ReadOutcome
from services.reading.queue_reader import Reader, is_removed
from store.errors import DiskFullError, ServiceUnavailableError, StoreError, StoreReadOnlyError, StoreRecoveringError
from store.format.derived.queue_unit import QueueUnit
from store.format.topic import HALF_TOPIC, OP_HALF_TOPIC

# Half messages that are remembered: some 150 bytes each.
OUTCOME_COUNT_MAX = 65_536


class Outcome(Enum):
    """The outcome of a half message; the value is told to a verdict that comes after it."""

    COMMITTED = "it was committed before"
    ROLLED_BACK = "it was rolled back before"
    GIVEN_UP = "no producer knew a verdict in time, so it was moved to TRANS_CHECK_MAX_TIME_TOPIC"
    DROPPED = "no producer knew a verdict in time, and the log did not take it again, so only its half message has it"
    REMOVED = "retention removed its half message before a verdict came"
    ENDED = "it had its verdict before, or was given up"
    UNKNOWN = "there is no half message of it: it was never sent, had its verdict before, or was given up"


class Outcomes:
    """By the queue offset of the half message; a renewed one leads to its successor. Not thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, Outcome | int] = OrderedDict()

    def note(self, queue_offset: int, outcome: "Outcome | int") -> None:
        """Remember what became of a half message: an outcome, or the queue offset of the record that renews it."""
        self._known[queue_offset] = outcome
        if len(self._known) > OUTCOME_COUNT_MAX:
            self._known.popitem(last=False)

    def of(self, queue_offset: int) -> "Outcome | int | None":
        """The outcome of a half message and its successors, and the last known successor; None when nothing is known."""
        found: Outcome | int | None = None
        following: Outcome | int | None = queue_offset
        while isinstance(following, int):
            following = self._known.get(following)
            found = following if following is not None else found
        return found


# What is appended together: below the limits of AppendInternal (1,024 records, 4 MiB).
REQUEST_COUNT_MAX = 256
REQUEST_BYTES_MAX = 3 << 20
# The log refuses these before it writes.
REFUSALS = (*state_writer.REFUSALS, DiskFullError, StoreReadOnlyError)

Append = Callable[[Sequence[InternalRecord]], Sequence[AppendResult]]


@dataclass(slots=True)
class _End:
    """The end of one half message, and the copy that is made of it."""

    queue_offset: int
    copy: InternalRecord | None
    done: "Future[AppendResult | None]" = field(default_factory=Future)

    def size_bytes(self) -> int:
        return 0 if self.copy is None else self.copy.ByteSize()


class EndWriter(BatchWriter[_End]):
    """See the top of this file; thread-safe.

    Args:
        append: appends records atomically.
        on_broken: called once, by the thread that wrote, when it broke.

    Attributes:
        error: why it is broken; None while it works.
    """

    def __init__(self, append: Append, on_broken: Callable[[StoreError], None] = lambda _error: None) -> None:
        self._append = append
        super().__init__("schedule-transactions", "a verdict", on_broken)

    def submit_all(
        self, ended: "Sequence[tuple[int, InternalRecord | None]]", *, writes_here: bool = False
    ) -> "Sequence[Future[AppendResult | None]]":
        """Have half messages ended, in one request if it has room.

        Args:
            ended: the queue offset of each half message, and what is appended with its end.
            writes_here: this thread will wait for all of it, so it may write it itself.

        Returns:
            For each: done when both are in the log, with the receipt of the copy. It fails with the log's refusal, or with
            ServiceUnavailableError when the writer is broken.
        """
        ends = [_End(queue_offset, copy) for queue_offset, copy in ended]
        self._put(*ends, writes_here=writes_here)
        return [end.done for end in ends]

    def _take(self, submitted: "deque[_End]") -> list[_End]:
        taken = [submitted.popleft()]
        size_bytes = taken[0].size_bytes()
        while submitted and len(taken) < REQUEST_COUNT_MAX:
            size_bytes += submitted[0].size_bytes()
            if size_bytes > REQUEST_BYTES_MAX:
                break
            taken.append(submitted.popleft())
        return taken

    def _write(self, taken: Sequence[_End]) -> None:
        copies = [end.copy for end in taken if end.copy is not None]
        try:
            results = iter(self._append([*copies, *op_records([end.queue_offset for end in taken])]))
        except REFUSALS as error:
            if len(taken) == 1:
                taken[0].done.set_exception(error)
                return
            for end in taken:
                self._write([end])
            return
        for end in taken:
            end.done.set_result(next(results) if end.copy is not None else None)

    def _broken(self, error: StoreError | None) -> ServiceUnavailableError:
        why = "it is stopping" if error is None else f"the log did not answer an append: {error.message}"
        return ServiceUnavailableError(f"the schedule service cannot end transactions now: {why}; try again")


# Records of half messages that are read together.
READ_COUNT_MAX = 1_000
READ_BYTES_MAX = 4 << 20
READ_ALL_SECONDS_MAX = 3.0

_log = structlog.get_logger("reput.schedule")


def is_gone(outcome: StoreError, commit_log_offset: int) -> bool:
    """Whether retention removed the record at an offset (bytes); a log that is being opened may not reach so far yet."""
    first_offset = outcome.metadata.get("firstOffset", "")
    return is_removed(outcome) and (not first_offset.isdecimal() or commit_log_offset < int(first_offset))


class Clock(Protocol):
    """The time of the log."""

    def millis(self) -> int:
        """Now (ms since 1970)."""


class TransactionCounts:
    """Counts since the start of the process; changed under the lock of a life's Transactions."""

    def __init__(self) -> None:
        self.committed = self.rolled_back = self.given_up = self.skipped = self.removed = self.checks = 0

    def note(self, outcome: Outcome, count: int = 1) -> None:
        """Count half messages that ended."""
        match outcome:
            case Outcome.COMMITTED:
                self.committed += count
            case Outcome.ROLLED_BACK:
                self.rolled_back += count
            case Outcome.GIVEN_UP:
                self.given_up += count
            case Outcome.DROPPED:
                self.skipped += count
            case _:
                self.removed += count


class Transactions:
    """See the top of this file; thread-safe.

    Args:
        reader: of queues and records.
        append: appends records atomically; None on a store that is only read.
        clock: the time of checks.
        rules: when producers are asked.
        counts: of the process.
        half_queue_offset: position of the newest full state: everything of the half topic before it has ended.
        op_queue_offset: position of the newest full state: no op record before it names a half message behind that.
        on_broken: called once, when this life is over.
        catch_up: waits until the units of what the log has now are known.

    Attributes:
        lock: see above.
        table: of what waits.
        outcomes: of what ended last.

    Raises:
        StoreError: the log or the queues cannot be read.
    """

    def __init__(
        self,
        reader: Reader,
        append: Append | None,
        clock: Clock,
        rules: CheckRules,
        counts: TransactionCounts,
        half_queue_offset: int,
        op_queue_offset: int,
        on_broken: Callable[[StoreError], None] = lambda _error: None,
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        loaded = Loaded(reader, rules, half_queue_offset, op_queue_offset)
        self.reader = reader
        self.clock = clock
        self.rules = rules
        self.counts = counts
        self.lock = threading.RLock()
        self.table = loaded.table
        self.outcomes = Outcomes()
        self._positions = loaded.positions
        self._catch_up = catch_up
        self._following = threading.Lock()  # by one at a time; it waits for the queues
        self._ended_early: set[int] = set()
        self._claims: dict[int, Future[None]] = {}
        self._renewals: dict[int, tuple[HalfMessage, int]] = {}  # by the new queue offset; with the old one
        self.refusal: Callable[[], StoreError] = _read_only  # of a life that only reads
        self._writer = EndWriter(append, on_broken) if append is not None else None
        self._is_closed = False
        self._count_removed(loaded.removed_count)

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be appended."""
        return self._writer is None

    @property
    def error(self) -> StoreError | None:
        """Why this life is over; None while it is not."""
        return self._writer.error if self._writer is not None else None

    def positions(self) -> tuple[int, int]:
        """The positions of the half topic and of the op topic for a full state."""
        with self.lock:
            first = self.table.first_queue_offset
            return first, self._positions.op_offset(first)

    def needed_offset(self) -> int:
        """The commit-log offset of the first half message that waits (bytes); -1 for none."""
        with self.lock:
            return self.table.first_commit_log_offset

    def follow(self) -> None:
        """Learn of the half messages that have arrived.

        Raises:
            StoreError: their units cannot be read now.
        """
        with self._following:
            self._follow()

    def catch_up(self) -> None:
        """Learn of all half messages that the log has now.

        Raises:
            StoreError: they cannot be known now.
        """
        self._catch_up()
        self.follow()

    def _follow(self) -> None:
        # In this order: an op record that is seen names half messages that are seen.
        op_end = self.reader.recent.end(OP_HALF_TOPIC, 0)
        half_end = self.reader.recent.end(HALF_TOPIC, 0)
        while self.table.next_queue_offset < half_end:
            next_offset = self.table.next_queue_offset
            run = self.reader.units(HALF_TOPIC, 0, next_offset, min(PAGE_COUNT, half_end - next_offset))
            if not run.units and run.queue_offset < half_end:
                raise ServiceUnavailableError(
                    f"topic {HALF_TOPIC} has no unit at {next_offset}: its queue is being built"
                )
            now = self.clock.millis()
            with self.lock:
                self._pass_removed(run.queue_offset)
                for queue_offset, unit in enumerate(run.units, run.queue_offset):
                    self._arrive(queue_offset, unit.commit_log_offset, now)
        with self.lock:
            self._positions.note(self.table.next_queue_offset, op_end)

    def drop_removed(self) -> None:
        """Note which half messages retention has removed."""
        first = self.reader.range(HALF_TOPIC, 0).min_offset
        with self.lock:
            self._count_removed(self.table.end_before(first))

    def close(self) -> None:
        """Writes what is submitted, and ends; every waiting caller is told."""
        if self._writer is not None:
            self._writer.close()
        with self.lock:
            self._is_closed = True
            self._renewals.clear()
            claims = list(self._claims.values())
            self._claims.clear()
        for claim in claims:
            if not claim.done():
                claim.set_exception(ServiceUnavailableError("the schedule service begins a new life: try again"))

    # -- what waits

    def waits(self, queue_offset: int) -> bool:
        """Whether a half message waits; also one that has not arrived here. The caller holds `lock`."""
        if queue_offset >= self.table.next_queue_offset:
            return queue_offset not in self._ended_early
        return self.table.waits(queue_offset)

    def claim(self, queue_offset: int) -> "Future[None] | None":
        """Claim a half message that waits; None when that is done, else what to wait for. The caller holds `lock`."""
        other = self._claims.get(queue_offset)
        if other is None:
            if self._is_closed:
                raise ServiceUnavailableError("the schedule service begins a new life: try again")
            self._claims[queue_offset] = Future()
        return other

    def release(self, queue_offset: int) -> None:
        """Ends a claim; calls that wait for it look again."""
        with self.lock:
            claim = self._claims.pop(queue_offset, None)
        if claim is not None:
            claim.set_result(None)

    def is_claimed(self, queue_offset: int) -> bool:
        """Whether a half message is claimed. The caller holds `lock`."""
        return queue_offset in self._claims

    def arriving(self, topic: str, unique_key: str) -> "Future[None] | None":
        """The event to wait for when a half message with these names was renewed and has not arrived here yet.

        The caller holds `lock`.
        """
        for half, queue_offset in self._renewals.values():
            if (half.topic, half.unique_key) == (topic, unique_key):
                return self._claims.get(queue_offset)
        return None

    def append(self, queue_offset: int, copy: InternalRecord | None) -> "Future[AppendResult | None]":
        """Have a claimed half message ended in the log: see EndWriter.submit_all."""
        assert self._writer is not None
        return self._writer.submit_all([(queue_offset, copy)])[0]

    def append_all(
        self, ended: "Sequence[tuple[int, InternalRecord | None]]"
    ) -> "Sequence[Future[AppendResult | None]]":
        """Have claimed half messages ended in the log, by a thread that waits for it: see EndWriter.submit_all."""
        assert self._writer is not None
        return self._writer.submit_all(ended, writes_here=True)

    def end(self, queue_offset: int, outcome: Outcome) -> None:
        """A claimed half message has ended in the log."""
        with self.lock:
            self._end(queue_offset)
            self.outcomes.note(queue_offset, outcome)
            self.counts.note(outcome)
        self.release(queue_offset)

    def renew(self, queue_offset: int, new_queue_offset: int, half: HalfMessage) -> None:
        """A claimed half message was renewed in the log; its claim is over when the new record has arrived."""
        with self.lock:
            self._end(queue_offset)
            self.outcomes.note(queue_offset, new_queue_offset)
            if new_queue_offset < self.table.next_queue_offset:
                self.table.fill(new_queue_offset, half)
                self.release(queue_offset)
            else:
                self._renewals[new_queue_offset] = (half, queue_offset)

    def _end(self, queue_offset: int) -> None:
        if queue_offset >= self.table.next_queue_offset:
            self._ended_early.add(queue_offset)
        else:
            self.table.end(queue_offset)

    def _arrive(self, queue_offset: int, commit_log_offset: int, store_millis: int) -> None:
        if queue_offset in self._ended_early:
            self._ended_early.remove(queue_offset)
            self.table.pass_ended(queue_offset)
        else:
            self.table.add(queue_offset, commit_log_offset, store_millis)
        renewed = self._renewals.pop(queue_offset, None)
        if renewed is not None:
            half, old_queue_offset = renewed
            self.table.fill(queue_offset, half)
            self.release(old_queue_offset)

    def _pass_removed(self, first_queue_offset: int) -> None:
        """Retention removed half messages before they were learned of."""
        for queue_offset in range(self.table.next_queue_offset, first_queue_offset):
            if queue_offset in self._ended_early:
                self._ended_early.remove(queue_offset)
            else:
                self._count_removed(1)
            self.table.pass_ended(queue_offset)

    # -- records

    def read(self, commit_log_offsets: Sequence[int], body_bytes_max: int = READ_BYTES_MAX) -> Sequence[ReadOutcome]:
        """Records by their places in the log (bytes); the bodies behind `body_bytes_max` are left out."""
        return self.reader.records([QueueUnit(offset, 0, 0) for offset in commit_log_offsets], body_bytes_max)

    def read_details(self, stored_before_millis: int) -> int:
        """Read what the records of half messages say that were stored before a time; how many were looked at, at most 1,000.

        Raises:
            StoreError: they cannot be read now.
        """
        with self.lock:
            queue_offsets = self.table.unread(READ_COUNT_MAX, stored_before_millis)
            places = [self.table.commit_log_offset(queue_offset) for queue_offset in queue_offsets]
        if not queue_offsets:
            return 0
        failure: StoreError | None = None
        outcomes = self.read(places, 1)
        with self.lock:
            for queue_offset, place, outcome in zip(queue_offsets, places, outcomes, strict=True):
                if isinstance(outcome, StoredMessage):
                    self.table.fill(queue_offset, self.details_of(outcome))
                elif not is_gone(outcome, place):
                    failure = failure or outcome
                elif self.table.end(queue_offset):
                    self.outcomes.note(queue_offset, Outcome.REMOVED)
                    self.counts.note(Outcome.REMOVED)
        if failure is not None:
            raise failure
        return len(queue_offsets)

    def read_all_details(self) -> None:
        """Read what the records of all half messages say.

        Raises:
            StoreRecoveringError: there are too many for one call, as after a start; each call gets further.
            StoreError: they cannot be read now.
        """
        deadline = time.monotonic() + READ_ALL_SECONDS_MAX
        while self.read_details(1 << 62) == READ_COUNT_MAX:
            if time.monotonic() > deadline:
                raise StoreRecoveringError("the half messages are being read: try again soon")

    def details_of(self, record: StoredMessage) -> HalfMessage:
        """The fields of a half message. One without a topic, which no verdict can end, is as one whose checks are over."""
        now = self.clock.millis()
        return half_of(record) or HalfMessage("", record.unique_key, now, now, self.rules.count_max, "")

    def _count_removed(self, count: int) -> None:
        if count:
            self.counts.note(Outcome.REMOVED, count)
            _log.warning("transactions.removed", count=count, reason="retention removed their half messages")


def _read_only() -> StoreError:
    return StoreReadOnlyError("this store is only read: transactions do not end here")
