"""TimerReader: keeps the index of timers up with the timer topic, page by page, and its files in order."""

import structlog

from schedule_svc.batch_reading import BatchReader, is_lost
from schedule_svc.life import NOTHING_NEEDED, KindWithoutState, Life
from schedule_svc.skipped import UNUSABLE, log_skipped
from schedule_svc.timers.roller import Roller
from schedule_svc.timers.run_files import RunFiles, SavedRuns
from schedule_svc.timers.timer_book import TimerBook
from schedule_svc.timers.timer_record import TIMER_QUEUE, TimerFacts, facts_of
from services.reading.queue_reader import checked
from store.errors import DiskFullError, FlushFailedError, StoreError
from store.format.topic import TIMER_TOPIC

# Records of a page: their headers are read together.
PAGE_COUNT_MAX = 1_000
# Pages of one call of `work`: between two calls the life can end.
WORK_PAGE_COUNT = 16
# Files that could not be written are tried again after this time.
FILES_AGAIN_MILLIS = 5_000
# No room, or a disk that refuses: see store/files/file_system.py.
FILE_ERRORS = (OSError, DiskFullError, FlushFailedError)

_log = structlog.get_logger("reput.schedule")


class TimerReader(KindWithoutState):
    """A Kind (`life.py`) that delivers nothing; see the top of this file.

    Args:
        life: what the kinds share.
        book: what is known of the timers.
        batches: reads records.
        files: of the index; None on a store that is only read.
        roller: what its thread does besides.
    """

    name = "timer-reader"
    topics = frozenset((TIMER_TOPIC,))

    def __init__(
        self, life: Life, book: TimerBook, batches: BatchReader, files: RunFiles | None, roller: Roller
    ) -> None:
        self._life = life
        self._book = book
        self._batches = batches
        self._files = files
        self._roller = roller
        self._known_end = 0
        self._again_millis = 0  # when files are tried again that could not be written

    def begin(self) -> None:
        """See Kind: take over the files, if they are of this log."""
        reader = self._life.reader
        self._known_end = reader.recent.end(TIMER_TOPIC, TIMER_QUEUE)
        min_offset = reader.range(TIMER_TOPIC, TIMER_QUEUE).min_offset
        saved = self._load_files()
        if saved is not None and not self._is_of_this_log(saved):
            _log.warning("timers.files_dropped", next_queue_offset=saved.next_queue_offset, end=self._known_end)
            saved = None
        with self._life.lock:
            try:
                self._book.load(saved, min_offset)
            except FILE_ERRORS as error:
                _log.warning("timers.files_dropped", error=str(error))
                self._book.load(None, min_offset)
            self._book.is_known = self._book.index.next_queue_offset >= self._known_end

    def work(self) -> int:
        """See Kind: read what is new."""
        is_more = self._read_pages()
        now_millis = self._life.clock.millis()
        if self._again_millis:
            self._book.index.merge_in_memory()
            if now_millis >= self._again_millis:
                self._keep_files()
        if is_more or now_millis < self._again_millis:
            return now_millis if is_more else self._again_millis
        try:
            return self._roller.work()
        except FILE_ERRORS as error:  # what it has stored again is done, and leaves the files later
            return self._note_failure(error)

    def needed_offset(self) -> int:
        """See Kind: what was not read yet lies behind the last record that was."""
        index = self._book.index
        is_behind = index.next_queue_offset < self._life.reader.recent.end(TIMER_TOPIC, TIMER_QUEUE)
        return max(index.last_log_offset, 0) if is_behind else NOTHING_NEEDED

    def stop(self, *, is_clean: bool) -> None:
        """See Kind: the next start has nothing to read again."""
        if is_clean and self._files is not None:
            try:
                self._book.index.settle(is_last=True)
            except (StoreError, OSError) as error:
                _log.warning("timers.files_not_written", error=str(error))

    def _read_pages(self) -> bool:
        """Read some pages; whether there are more."""
        for _ in range(WORK_PAGE_COUNT):
            if not self._read_page():
                return False
            if not self._again_millis:
                self._keep_files()
        return True

    def _keep_files(self) -> None:
        """Move what is much to files. While that fails it stays in memory, and what is due is delivered from there."""
        try:
            self._book.index.settle()
        except FILE_ERRORS as error:
            self._note_failure(error)
        else:
            if self._again_millis:
                _log.info("timers.files_written_again")
            self._again_millis = 0

    def _note_failure(self, error: Exception) -> int:
        if not self._again_millis:
            _log.warning("timers.files_not_written", error=str(error))
        self._again_millis = self._life.clock.millis() + FILES_AGAIN_MILLIS
        return self._again_millis

    def _load_files(self) -> SavedRuns | None:
        try:
            return self._files.load() if self._files is not None else None
        except FILE_ERRORS as error:
            _log.warning("timers.files_dropped", error=str(error))
            return None

    def _is_of_this_log(self, saved: SavedRuns) -> bool:
        if saved.next_queue_offset > self._known_end:
            return False
        if not saved.next_queue_offset:
            return True
        run = self._life.reader.units(TIMER_TOPIC, TIMER_QUEUE, saved.next_queue_offset - 1, 1)
        return run.queue_offset == saved.next_queue_offset - 1 and bool(
            run.units and run.units[0].commit_log_offset == saved.last_log_offset
        )

    def _read_page(self) -> bool:
        """Add a page to the index; False when there is none."""
        reader, book = self._life.reader, self._book
        begin = book.index.next_queue_offset
        if begin >= reader.recent.end(TIMER_TOPIC, TIMER_QUEUE):
            return False
        run = reader.units(TIMER_TOPIC, TIMER_QUEUE, begin, PAGE_COUNT_MAX)
        if not run.units:
            return False
        offset = run.queue_offset
        skipped_count = offset - begin
        rows: list[tuple[int, int, TimerFacts, int]] = []
        failure: StoreError | None = None
        for unit, found in zip(run.units, self._batches.read_headers(run.units), strict=True):
            outcome = checked(found, TIMER_TOPIC, TIMER_QUEUE, offset)
            if isinstance(outcome, StoreError):
                if not is_lost(outcome):
                    failure = outcome
                    break
                facts = None
            else:
                facts = facts_of(outcome)
            if facts is None:
                skipped_count += 1
                why = outcome if isinstance(outcome, StoreError) else UNUSABLE
                log_skipped("timer", offset, unit.commit_log_offset, "", why)
            else:
                rows.append((offset, unit.commit_log_offset, facts, unit.record_size_bytes))
            offset += 1
        if offset > run.queue_offset:
            self._add(rows, offset, run.units[offset - run.queue_offset - 1].commit_log_offset, skipped_count)
        if failure is not None:
            raise failure
        return True

    def _add(
        self, rows: list[tuple[int, int, TimerFacts, int]], next_offset: int, last_log_offset: int, skipped_count: int
    ) -> None:
        life, book = self._life, self._book
        with life.lock:
            ended = book.add(rows, next_offset, last_log_offset)
            if ended and not life.is_read_only:
                life.change([book.change(ended)])
            book.skipped_count += skipped_count
            book.is_known = book.is_known or next_offset >= self._known_end
        book.note_added()
