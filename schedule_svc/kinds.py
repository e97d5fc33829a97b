"""Kinds: the kinds of waiting messages of one life, and what answers calls about them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from schedule_svc.batches import BATCH_BYTES_MAX, BatchReader
from schedule_svc.broker_files import BrokerBeside, BrokerFiles, apply_broker_marks, read_broker_marks
from schedule_svc.delay_levels import DelayLevels
from schedule_svc.life import Life, WaitingKind
from schedule_svc.listing import Listing
from schedule_svc.state.schedule_state import ScheduleState
from schedule_svc.timers.recalls import KNOWN_SECONDS_MAX, Recalls
from schedule_svc.timers.roller import Roller
from schedule_svc.timers.runs import RunFiles
from schedule_svc.timers.timer_book import TimerBook
from schedule_svc.timers.timer_index import TimerIndex
from schedule_svc.timers.timer_reader import TimerReader
from schedule_svc.timers.timers import Timers
from schedule_svc.transactions.half_messages import CheckRules
from schedule_svc.transactions.kind import LastingTransactions, TransactionsKind
from services.calling.commitlog import CommitLogClient
from services.following.follower_progress import FollowerProgress
from store.errors import ServiceUnavailableError
from store.files.file_system import RealFileSystem


@dataclass(frozen=True, slots=True)
class KindRules:
    """What the settings say.

    Attributes:
        directory: of the files of timers; None on a store that is only read.
        delays_millis: of the delay levels, from level 1 on.
        roll_after_millis: timers that were stored longer ago are stored again.
        broker_name: of the shard.
        checks: when producers are asked for verdicts.
        batch_bytes_max: records that are appended together.
    """

    directory: Path | None
    delays_millis: Sequence[int]
    roll_after_millis: int
    broker_name: str
    checks: CheckRules
    batch_bytes_max: int = BATCH_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Kinds:
    """See the top of this file."""

    life: Life
    levels: DelayLevels
    reader: TimerReader
    timers: Timers
    recalls: Recalls
    listing: Listing
    transactions: TransactionsKind
    rules: KindRules
    broker_files: BrokerFiles | None
    beside: BrokerBeside | None = None

    @classmethod
    def of(
        cls,
        life: Life,
        state: ScheduleState,
        commitlog: CommitLogClient,
        progress: FollowerProgress,
        end_offset: Callable[[], int],
        leads: Callable[[], bool],
        rules: KindRules,
        lasting: LastingTransactions,
        *,
        is_beside: bool = False,
    ) -> "Kinds":
        """Those of a life; what a broker has done since is noted in the state.

        Args:
            life: what they share.
            state: as the log has it.
            commitlog: the client for large records.
            progress: of the follower.
            end_offset: asks for the end of the log (bytes).
            leads: asks whether the log still leads, without a break since the begin of the life.
            rules: what the settings say.
            lasting: what of transactions outlives a life.
            is_beside: a broker runs on the store and delivers what waits.
        """
        marks = read_broker_marks(commitlog)
        if marks is not None:
            apply_broker_marks(state, marks)
        batches = BatchReader(life.reader, commitlog, rules.batch_bytes_max)

        def catch_up() -> None:
            if not progress.wait_past(end_offset() - 1, KNOWN_SECONDS_MAX):
                raise ServiceUnavailableError("not all messages that wait are known yet: try again")

        def mark_changes() -> Callable[[], bool]:
            newest = life.newest_change()

            def are_shown() -> bool:
                is_past = newest.done() and newest.exception() is None and progress.next_offset > newest.result()
                # In this order: after a change of leaders other records may be there.
                return is_past and leads()

            return are_shown

        files = RunFiles(RealFileSystem(), rules.directory) if rules.directory is not None else None
        levels = DelayLevels(life, batches, state.levels, rules.delays_millis)
        book = TimerBook(life, TimerIndex(files, mark_changes), state.timers)
        roller = Roller(life, book, batches, rules.roll_after_millis)
        timers = Timers(life, book, batches)
        transactions = TransactionsKind(life, state.transactions, rules.checks, lasting, rules.broker_name, catch_up)
        written = BrokerFiles(life, levels, timers, transactions, commitlog, is_taken_over=marks is not None)
        return cls(
            life,
            levels,
            TimerReader(life, book, batches, files, roller),
            timers,
            Recalls(life, book, batches, progress, end_offset),
            Listing(life, levels, book, batches),
            transactions,
            rules,
            None if life.is_read_only else written,
            BrokerBeside(life, levels, book, commitlog) if is_beside else None,
        )

    @property
    def all(self) -> Sequence[WaitingKind]:
        """Each once."""
        others = [kind for kind in (self.broker_files, self.beside) if kind is not None]
        return (self.levels, self.reader, self.timers, self.transactions, *others)

    def have_state(self) -> bool:
        """Whether there is anything that the log must keep."""
        return any(kind.has_state() for kind in self.all)

    def oldest_due_millis(self) -> int:
        """When the first message is due that waits for a time; NEVER_MILLIS for none."""
        return min(self.levels.oldest_due_millis(), self.timers.oldest_due_millis())

    def pending_count(self) -> int:
        """Messages that wait for a time."""
        return self.levels.pending_count() + self.timers.pending_count()
