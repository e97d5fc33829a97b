"""TimerReader: keeps the index of timers up with the timer topic, page by page, and its files in order."""

import structlog

from schedule_svc.batches import BatchReader, EndedBatch, is_lost, log_removed
from schedule_svc.life import NOTHING_NEEDED, KindWithoutState, Life
from schedule_svc.timers.roller import Roller
from schedule_svc.timers.runs import RunFiles, SavedRuns
from schedule_svc.timers.timer_book import TimerBook
from schedule_svc.timers.timer_record import TIMER_QUEUE, TimerFacts, facts_of
from services.reading.queue_reader import Outcome, checked
from store.errors import DiskFullError, FlushFailedError, StoreError
from store.format.topic import TIMER_TOPIC

# Records of a page: their headers are read together.
PAGE_COUNT_MAX = 1_000
# Pages of one call of `work`: between two calls the life can end.
WORK_PAGE_COUNT = 16
# Whether files count that wait for the log is looked at so often.
FILES_WAIT_MILLIS = 100
# Files that could not be written are tried again after this time.
FILES_AGAIN_MILLIS = 5_000
# No room, or a disk that refuses: see store/files/file_system.py.
FILE_ERRORS = (OSError, DiskFullError, FlushFailedError)

_log = structlog.get_logger("reput.schedule")


class TimerReader(KindWithoutState):
    """A WaitingKind (`life.py`) that delivers nothing; see the top of this file.

    Attributes:
        problem: why the files cannot be written now, for the status; empty when they can.

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
        self.problem = ""
        self._again_millis = 0  # when files are tried again that could not be written
        self._removed: list[tuple[int, int]] = []  # positions that retention removed, and how many; not counted yet

    def begin(self) -> None:
        """See WaitingKind: take over the files, if they are of this log."""
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
        """See WaitingKind: read what is new."""
        index = self._book.index
        if index.is_waiting:
            self._keep_files()
        is_more = self._read_pages()
        now_millis = self._life.clock.millis()
        if self._again_millis:
            index.merge_in_memory()
            if now_millis >= self._again_millis:
                self._keep_files()
        if is_more or now_millis < self._again_millis:
            return now_millis if is_more else self._again_millis
        if index.is_waiting:
            return now_millis + FILES_WAIT_MILLIS  # what is old is stored again afterwards
        try:
            return self._roller.work()
        except FILE_ERRORS as error:  # what it has stored again is done, and leaves the files later
            return self._note_failure(error)

    def needed_offset(self) -> int:
        """See WaitingKind: what was not read yet lies behind the last record that was."""
        index = self._book.index
        is_behind = index.next_queue_offset < self._life.reader.recent.end(TIMER_TOPIC, TIMER_QUEUE)
        return max(index.last_log_offset, 0) if is_behind else NOTHING_NEEDED

    def stop(self, *, is_clean: bool) -> None:
        """See WaitingKind: the next start has nothing to read again."""
        if is_clean and self._files is not None:
            try:
                self._book.index.settle(even_little=True)
            except (StoreError, OSError) as error:
                _log.warning("timers.files_not_written", error=str(error))

    def _read_pages(self) -> bool:
        """Read some pages; whether there are more."""
        for _ in range(WORK_PAGE_COUNT):
            if self._book.index.is_full or not self._read_page():
                return False
            if not self._again_millis:
                self._keep_files()
        return True

    def _keep_files(self) -> None:
        """Move what is much to files. While that fails it stays in memory, and what is due is delivered from there."""
        try:
            is_settled = self._book.index.settle(even_little=bool(self._removed))
        except FILE_ERRORS as error:
            self._note_failure(error)
            return
        if is_settled:
            if self._again_millis:
                _log.info("timers.files_written_again")
            self._again_millis, self.problem = 0, ""
            self._count_removed()

    def _count_removed(self) -> None:
        """Count what retention removed unread; the files are behind it now, so the next life does not count it again."""
        if not self._life.is_read_only:
            for queue_offset, message_count in self._removed:
                self._book.count(0, message_count)
                log_removed("timer", queue_offset, message_count)
        self._removed.clear()

    def _note_failure(self, error: Exception) -> int:
        if not self._again_millis:
            _log.warning("timers.files_not_written", error=str(error))
        self.problem = f"timers are kept in memory, because their files cannot be written: {error}"
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
        if offset > begin:
            self._removed.append((begin, offset - begin))
        rows: list[tuple[int, int, TimerFacts, int]] = []
        unusable: list[tuple[int, int, Outcome]] = []
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
                unusable.append((offset, unit.commit_log_offset, outcome))
            else:
                rows.append((offset, unit.commit_log_offset, facts, unit.record_size_bytes))
            offset += 1
        if offset > run.queue_offset:
            self._add(rows, offset, run.units[offset - run.queue_offset - 1].commit_log_offset, unusable)
        if failure is not None:
            raise failure
        return True

    def _add(
        self,
        rows: list[tuple[int, int, TimerFacts, int]],
        next_offset: int,
        last_log_offset: int,
        unusable: list[tuple[int, int, Outcome]],
    ) -> None:
        life, book = self._life, self._book
        skipped = EndedBatch("timer", book.count)
        with life.lock:
            ended = book.add(rows, next_offset, last_log_offset)
            # The log says that they are done, too: without files the next life reads them again.
            unusable_ended = dict(book.end_unusable([offset for offset, _, _ in unusable]))
            ended += unusable_ended.items()
            for offset, commit_log_offset, outcome in unusable:
                if offset in unusable_ended:
                    skipped.skip(offset, commit_log_offset, outcome)
            if ended and not life.is_read_only:  # on a store that is only read another service delivers, and counts
                life.change([book.change(ended)], on_written=skipped.on_written)
            book.is_known = book.is_known or next_offset >= self._known_end
        book.note_added()
