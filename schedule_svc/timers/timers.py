"""Timers: delivers the messages of `rmq_sys_wheel_timer` when they are due.

Those that are due are taken from the index in the order of their times, read whole, and appended to their topics, as many in
one request as fit. The next ones are read while a request is under way. Nothing is delivered before everything that the log had
at the begin of the life is known: the last of its records may take back the first.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import structlog

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.schedule.v1 import state_pb2
from schedule_svc.batches import BATCH_COUNT_MAX, BatchReader, EndedBatch, UnderWay, is_lost
from schedule_svc.due_record import timer_due
from schedule_svc.life import NEVER_MILLIS, Life
from schedule_svc.timers.runs import Entries
from schedule_svc.timers.timer_book import TimerBook
from schedule_svc.timers.timer_record import TIMER_QUEUE, due_of
from services.convert import timestamp_to_millis
from services.reading.queue_reader import Outcome, checked
from store.errors import StoreError, failure_fields
from store.format.derived.queue_unit import QueueUnit
from store.format.topic import TIMER_TOPIC

# Requests of one call of `work`.
WORK_REQUEST_COUNT = 64
# How often it looks whether all timers are known.
KNOWN_MILLIS = 50
# What is due cannot be taken for a moment while files are replaced.
PAUSE_MILLIS = 2
# What cannot be read now is tried again after this time.
AGAIN_MILLIS = 1_000
# Requests after which the memory of the index's files is given back.
FORGET_REQUEST_COUNT = 64

_log = structlog.get_logger("reput.schedule")


class Timers:
    """A WaitingKind (`life.py`); see the top of this file.

    Args:
        life: what the kinds share.
        book: what is known of the timers.
        batches: reads messages.
    """

    name = "timers"
    topics: frozenset[str] = frozenset()  # the reader of the topic says when there are new ones

    def __init__(self, life: Life, book: TimerBook, batches: BatchReader) -> None:
        self.book = book
        self._life = life
        self._batches = batches
        self._under_way = UnderWay()
        self._request_count = 0

    def begin(self) -> None:
        """See WaitingKind."""

    def work(self) -> int:
        """See WaitingKind: deliver what is due."""
        if self._life.is_read_only:
            return NEVER_MILLIS
        if not self.book.is_known:
            return self._life.clock.millis() + KNOWN_MILLIS
        for _ in range(WORK_REQUEST_COUNT):
            if not self._deliver():
                break
        else:
            return self._life.clock.millis()  # a crowd is due: between two calls the life can end
        first_millis = self.book.index.first_due_millis()
        if first_millis is None:
            return NEVER_MILLIS
        return max(first_millis, self._life.clock.millis() + PAUSE_MILLIS)

    def has_state(self) -> bool:
        """See WaitingKind."""
        return self.book.has_state()

    def pieces(self) -> Iterator[state_pb2.FullState]:
        """See WaitingKind."""
        return self.book.pieces()

    def needed_offset(self) -> int:
        """See WaitingKind."""
        with self._life.lock:
            oldest = self.book.index.oldest_offset()
            needed = [self._under_way.needed_offset()]
            needed += [int(self.book.in_hand.commit_log_offsets.min())] if len(self.book.in_hand) else []
            needed += [oldest] if oldest is not None else []
            return min(needed)

    def stop(self, *, is_clean: bool) -> None:
        """See WaitingKind."""

    def pending_count(self) -> int:
        """Messages that wait, or whose request is under way."""
        with self._life.lock:
            return self.book.pending_count() + self._under_way.message_count()

    def oldest_due_millis(self) -> int:
        """When the first message of all is due; NEVER_MILLIS for none."""
        with self._life.lock:
            first_millis = self.book.index.first_due_millis()
            in_hand: list[int] = self.book.in_hand.dues_millis.tolist()
            oldest = [*in_hand, self._under_way.oldest_due_millis()]
            return min(oldest if first_millis is None else [*oldest, first_millis])

    def _deliver(self) -> bool:
        """Submit one request; False when nothing is due."""
        life, book = self._life, self.book
        self._under_way.wait_for_room()
        now_millis = life.clock.millis()
        with life.lock:
            taken = book.take(now_millis, BATCH_COUNT_MAX)
        if not len(taken):
            return False
        batch = taken.pick(slice(0, self._batches.fitting_count(taken.sizes_bytes.tolist())))
        units = [
            QueueUnit(offset, size_bytes, 0)
            for offset, size_bytes in zip(batch.commit_log_offsets.tolist(), batch.sizes_bytes.tolist(), strict=True)
        ]
        outcomes = self._batches.read(units)
        life.refuse_if_over()
        with life.lock:
            self._submit(batch, outcomes, now_millis)
            book.in_hand = book.in_hand.pick(slice(len(batch), None))
        return True

    def _submit(self, batch: Entries, outcomes: Sequence[Outcome], now_millis: int) -> None:
        """Have a batch written; what cannot be read now waits again."""
        book = self.book
        done = EndedBatch("timer", book.count)
        ended: list[tuple[int, int]] = []
        waiting: list[tuple[int, int, int, int, int]] = []
        failure: StoreError | None = None
        for at, (offset, found) in enumerate(zip(batch.queue_offsets.tolist(), outcomes, strict=True)):
            outcome = checked(found, TIMER_TOPIC, TIMER_QUEUE, offset)
            record: InternalRecord | None = None
            due_millis = int(batch.dues_millis[at])
            if isinstance(outcome, StoreError):
                if not is_lost(outcome):
                    failure = outcome
                    waiting.append((now_millis + AGAIN_MILLIS, *_row(batch, at)[1:]))
                    continue
            else:
                found_millis = due_of(outcome)
                if found_millis is not None and found_millis > now_millis:
                    # The index does not say what the record says: the record counts.
                    waiting.append((found_millis, *_row(batch, at)[1:]))
                    continue
                if found_millis is not None:
                    due_millis = found_millis
                    record = timer_due(outcome, timestamp_to_millis(outcome.store_time, "store_time"), now_millis)
            if isinstance(outcome, StoreError) or record is None:
                done.skip(offset, int(batch.commit_log_offsets[at]), outcome)
            else:
                done.append(outcome, record)
            ended.append((offset, due_millis))
        if ended:
            written = self._life.change([book.change(ended)], done.records, may_lose=True, on_written=done.on_written)
            written.add_done_callback(lambda outcome: self._confirm(outcome, len(ended)))
            oldest_millis = min(due_millis for _, due_millis in ended)
            self._under_way.add(written, len(ended), int(batch.commit_log_offsets.min()), oldest_millis)
            book.kept.difference_update(offset for offset, _ in ended)
        if waiting:
            book.put_back(Entries.of(waiting))
        self._request_count += 1
        if self._request_count % FORGET_REQUEST_COUNT == 0:
            book.index.forget_pages()
        if failure is not None:
            _log.warning("timer.unreadable", **failure_fields(failure))

    def _confirm(self, done: "Future[int]", count: int) -> None:
        if done.exception() is None:
            self.book.index.confirm(count)


def _row(entries: Entries, at: int) -> tuple[int, int, int, int, int]:
    return (
        int(entries.dues_millis[at]),
        int(entries.queue_offsets[at]),
        int(entries.commit_log_offsets[at]),
        int(entries.keys[at]),
        int(entries.sizes_bytes[at]),
    )
