"""TransactionsKind: half messages as a kind of waiting messages (`life.py`)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from reput.message.v1.message_pb2 import AppendResult
from reput.schedule.v1 import schedule_service_pb2 as pb
from reput.schedule.v1 import state_pb2
from schedule_svc.life import NOTHING_NEEDED, Life
from schedule_svc.state.schedule_state import TransactionsState
from schedule_svc.transactions.checker import Checker, CheckGateways
from schedule_svc.transactions.half_messages import CheckRules
from schedule_svc.transactions.pending_list import PendingList
from schedule_svc.transactions.transactions import TransactionCounts, Transactions
from schedule_svc.transactions.verdicts import Verdict, Verdicts
from store.errors import StoreError
from store.format.topic import HALF_TOPIC

# How often what is due is looked for: a look at one million half messages takes some 10 ms.
LOOK_MILLIS = 500


@dataclass(frozen=True, slots=True)
class LastingTransactions:
    """The part of transactions that outlives a life: which gateways can ask producers, and counts since the start."""

    gateways: CheckGateways = field(default_factory=CheckGateways)
    counts: TransactionCounts = field(default_factory=TransactionCounts)


class TransactionsKind:
    """A WaitingKind; see the top of this file. It can be used between `begin` and `stop`.

    Args:
        life: what the kinds share.
        state: of the newest full state.
        rules: when producers are asked.
        lasting: what outlives a life.
        broker_name: of this shard.
        catch_up: waits until the units of what the log has now are known.

    Attributes:
        counts: of the process.
    """

    name = "transactions"
    topics = frozenset((HALF_TOPIC,))  # op records are its own

    def __init__(
        self,
        life: Life,
        state: TransactionsState,
        rules: CheckRules,
        lasting: LastingTransactions,
        broker_name: str,
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._catch_up = catch_up
        self.counts = lasting.counts
        self._life = life
        self._state = state
        self._rules = rules
        self._gateways = lasting.gateways
        self._full_half_offset = state.half_offset  # end of the half topic, as of the newest full state
        self._broker_name = broker_name
        self._look_millis = 0
        self._transactions: Transactions

    def begin(self) -> None:
        """See WaitingKind: what waits is read from the log."""
        life, state = self._life, self._state
        append = None if life.is_read_only else life.append
        self._transactions = Transactions(
            life.reader,
            append,
            life.clock,
            self._rules,
            self.counts,
            state.half_offset,
            state.op_offset,
            life.fail,
            self._catch_up,
        )
        if life.is_read_only:
            self._transactions.refusal = life.refusal
        self._verdicts = Verdicts(self._transactions)
        self._checker = Checker(self._transactions, self._gateways, self._broker_name)
        self._list = PendingList(self._transactions, self._gateways, self._broker_name)

    def work(self) -> int:
        """See WaitingKind: half messages arrive, and producers are asked."""
        self._transactions.follow()
        now = self._life.clock.millis()
        if now >= self._look_millis or self._look_millis > now + LOOK_MILLIS:
            self._look_millis = now + LOOK_MILLIS
            if not self._life.is_read_only and self._checker.check_due():
                self._look_millis = now  # there may be more
                self._transactions.follow()  # what was renewed
            if len(self._transactions.table):
                self._transactions.drop_removed()
        return self._look_millis

    def has_state(self) -> bool:
        """See WaitingKind."""
        return self._transactions.table.next_queue_offset > 0

    def pieces(self) -> Iterator[state_pb2.FullState]:
        """See WaitingKind."""
        half_offset, op_offset = self._transactions.positions()
        self._full_half_offset = self._transactions.table.next_queue_offset
        if half_offset:
            passed = state_pb2.TransactionsPassed(half_offset=half_offset, op_offset=op_offset)
            yield state_pb2.FullState(transactions=passed)

    def positions(self) -> tuple[int, int]:
        """Positions of the half topic and of the op topic, for a broker: half messages before the one have ended, and op
        records before the other name none behind it."""
        return self._transactions.positions()

    def behind_full_count(self) -> int:
        """Half messages that have arrived since the newest full state."""
        return self._transactions.table.next_queue_offset - self._full_half_offset

    def needed_offset(self) -> int:
        """See WaitingKind."""
        first = self._transactions.needed_offset()
        return first if first >= 0 else NOTHING_NEEDED

    def stop(self, *, is_clean: bool) -> None:
        """See WaitingKind."""
        self._transactions.close()

    def end(self, verdict: Verdict) -> AppendResult | None:
        """See Verdicts.end."""
        return self._verdicts.end(verdict)

    def end_all(self, verdicts: Sequence[Verdict]) -> "Sequence[pb.EndTransactionResponse | StoreError | None]":
        """See Verdicts.end_all."""
        return self._verdicts.end_all(verdicts)

    def list(self, request: pb.ListPendingTransactionsRequest) -> pb.ListPendingTransactionsResponse:
        """See PendingList.list."""
        return self._list.list(request)

    def describe(self, status: pb.GetStatusResponse) -> None:
        """Say what waits and what was done."""
        counts = self.counts
        status.transaction_count = len(self._transactions.table)
        status.check_count = counts.checks
        status.committed_count = counts.committed
        status.rolled_back_count = counts.rolled_back
        status.skipped_count += counts.skipped
        status.removed_transaction_count = counts.removed
