"""BrokerBeside: what a broker that runs beside this service has delivered does not wait any more.

The broker writes the positions of its delay levels every 10 s (flushDelayOffsetInterval) and the time of its timer wheel every
second, to files of `config/`. A transaction needs nothing: its end is a record of the log.
"""

import structlog

from schedule_svc.handover.broker_marks import read_broker_marks
from schedule_svc.levels.delay_levels import DelayLevels
from schedule_svc.life import KindWithoutState, Life
from schedule_svc.timers.entries import Entries
from schedule_svc.timers.timer_book import TimerBook
from services.calling.commitlog import CommitLogClient
from store.errors import StoreCorruptedError

LOOK_MILLIS = 2_500
PAGE_COUNT = 4_096

_log = structlog.get_logger("reput.schedule")


class BrokerBeside(KindWithoutState):
    """A Kind (`life.py`) that delivers nothing; see the top of this file.

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
        """See Kind."""

    def work(self) -> int:
        """See Kind: read the files."""
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
        """See Kind."""

    def _drop_until(self, due_millis: int) -> None:
        """Forget the timers that were due at a time or before."""
        count = PAGE_COUNT
        while count == PAGE_COUNT:
            with self._life.lock:
                count = len(self._book.take(due_millis, PAGE_COUNT))
                self._book.in_hand = Entries.of(())
                self._book.index.confirm(count)
