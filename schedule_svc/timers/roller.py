"""Roller: messages that wait longer than log files are kept are appended to the timer topic again, before their files go.

Retention waits for the oldest record that is needed. So nothing is lost when rolling is late, but files are kept longer. A
record is rolled when it is older than a setting, half of the time that files are kept, and waits for longer than SOON_MILLIS.
"""

import numpy as np
import structlog

from schedule_svc.batches import BATCH_COUNT_MAX, BatchReader, EndedBatch, is_lost
from schedule_svc.life import NEVER_MILLIS, Life
from schedule_svc.timers.runs import Entries
from schedule_svc.timers.timer_book import TimerBook
from schedule_svc.timers.timer_record import TIMER_QUEUE, rolled
from services.convert import timestamp_to_millis
from services.following.state_topic.state_writer import wait_for
from services.reading.queue_reader import checked
from store.errors import StoreError
from store.format.derived.queue_unit import QueueUnit
from store.format.topic import TIMER_TOPIC

# What is due so soon is not rolled.
SOON_MILLIS = 600_000
# How often the oldest record is looked at.
LOOK_MILLIS = 60_000
# Records of one pass, and how far they lie apart: some of a log file.
PASS_COUNT_MAX = 65_536
PASS_BYTES = 256 << 20

_log = structlog.get_logger("reput.schedule")


class Roller:
    """See the top of this file.

    Args:
        life: what the kinds share.
        book: what is known of the timers.
        batches: reads messages.
        age_millis: records that are older are rolled.
    """

    def __init__(self, life: Life, book: TimerBook, batches: BatchReader, age_millis: int) -> None:
        self._life = life
        self._book = book
        self._batches = batches
        self._age_millis = age_millis
        self._look_millis = 0

    def work(self) -> int:
        """Roll what is old; when it wants to be called next (ms since 1970). By the thread that adds to the index."""
        now_millis = self._life.clock.millis()
        if self._life.is_read_only or not self._book.is_known:
            return NEVER_MILLIS
        if now_millis >= self._look_millis:
            if self._pass(now_millis):
                return now_millis  # there may be more: between two calls the life can end
            self._look_millis = now_millis + LOOK_MILLIS
        return self._look_millis

    def _pass(self, now_millis: int) -> bool:
        """Roll the oldest records; False when none was."""
        life, book = self._life, self._book
        oldest = book.index.oldest_offset()
        if oldest is None or not self._is_old(oldest, now_millis):
            return False
        found = book.index.stored_before(oldest + PASS_BYTES, PASS_COUNT_MAX)
        with life.lock:
            gone = [offset for offset in found.queue_offsets.tolist() if offset in book.done]
        waits = found.pick(found.dues_millis > now_millis + SOON_MILLIS)
        rolled_offsets: list[int] = []
        for begin in range(0, len(waits), BATCH_COUNT_MAX):
            page = waits.pick(slice(begin, begin + BATCH_COUNT_MAX))
            while len(page):
                count = self._batches.fitting_count(page.sizes_bytes.tolist())
                rolled_offsets += self._roll(page.pick(slice(0, count)), now_millis)
                page = page.pick(slice(count, None))
        dropped = sorted({*gone, *rolled_offsets})
        if dropped:
            count = book.index.drop(np.array(dropped, dtype=np.int64))
            min_offset = life.reader.range(TIMER_TOPIC, TIMER_QUEUE).min_offset
            with life.lock:
                book.note_dropped(count)
                book.forget_removed(min_offset)
            _log.info("timers.rolled", rolled=len(rolled_offsets), dropped=len(gone))
        return bool(dropped)

    def _is_old(self, commit_log_offset: int, now_millis: int) -> bool:
        (outcome,) = self._batches.read_headers([QueueUnit(commit_log_offset, 0, 0)])
        if isinstance(outcome, StoreError):
            if is_lost(outcome):
                return True
            raise outcome
        return timestamp_to_millis(outcome.store_time, "store_time") < now_millis - self._age_millis

    def _roll(self, batch: Entries, now_millis: int) -> list[int]:
        """Append messages again; the positions of those that wait no longer."""
        life, book = self._life, self._book
        units = [
            QueueUnit(offset, size_bytes, 0)
            for offset, size_bytes in zip(batch.commit_log_offsets.tolist(), batch.sizes_bytes.tolist(), strict=True)
        ]
        outcomes = self._batches.read(units)
        done = EndedBatch("timer", lambda _stored_count, skipped_count: book.count(0, skipped_count))
        ended: list[tuple[int, int]] = []
        with life.lock:
            life.refuse_if_over()
            for at, (due_millis, offset, found) in enumerate(
                zip(batch.dues_millis.tolist(), batch.queue_offsets.tolist(), outcomes, strict=True)
            ):
                outcome = checked(found, TIMER_TOPIC, TIMER_QUEUE, offset)
                if isinstance(outcome, StoreError):
                    if not is_lost(outcome):
                        continue
                elif timestamp_to_millis(outcome.store_time, "store_time") >= now_millis - self._age_millis:
                    continue
                if book.end(due_millis, offset):
                    ended.append((offset, due_millis))
                    if isinstance(outcome, StoreError):
                        done.skip(offset, int(batch.commit_log_offsets[at]), outcome)
                    else:
                        done.append(outcome, rolled(outcome))
            if not ended:
                return []
            written = life.change([book.change(ended)], done.records, on_written=done.on_written)
        wait_for(written)
        return [offset for offset, _ in ended]
