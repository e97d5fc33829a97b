"""Lives of the transactions on a log in memory (`tests/support/memory_log.py`), and what brute force says of that log."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import FLUSH_MODE_UNSPECIFIED, AppendResult, StoredMessage
from reput.schedule.v1 import schedule_service_pb2 as pb
from schedule_svc.follower import STATE_TOPIC, TOPIC
from schedule_svc.life import Life
from schedule_svc.state.schedule_state import ScheduleState
from schedule_svc.transactions.checker import Check, CheckGateways
from schedule_svc.transactions.half_messages import CheckRules
from schedule_svc.transactions.kind import LastingTransactions, TransactionsKind
from schedule_svc.transactions.transactions import TransactionCounts
from schedule_svc.transactions.verdicts import verdict_of
from services.following.state_topic.state_log import LoadedState, load_state
from services.following.state_topic.state_writer import StateWriter
from services.reading.queue_reader import QueueReader
from services.reading.recent_units import RecentUnits
from store.errors import StoreError
from store.format.delivery.waiting_handles import TRANSACTION, WaitingHandle, encode_handle
from store.format.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRAN_MSG,
    TRANSACTION_ID,
    UNIQ_KEY,
)
from store.format.topic import HALF_TOPIC, OP_HALF_TOPIC
from tests.support import memory_log
from tests.support.memory_log import ManualClock, Queue, always_newer
from tests.support.waiting import WAIT_SECONDS_MAX

BROKER = "broker-a"
TOPIC_NAME = "Orders"
RULES = CheckRules()
MAX_CHECKS = 15


class MemoryLog(memory_log.MemoryLog):
    """A log in memory with the state of the schedule service."""

    def __init__(self) -> None:
        self.manual = ManualClock()
        super().__init__(self.manual, STATE_TOPIC)

    def send_half(
        self, body: str, *, key: str = "", topic: str = TOPIC_NAME, immunity: str = "", group: str = ""
    ) -> StoredMessage:
        """Append a half message as the commitlog service does for a producer: of the topic, or over remoting of a group."""
        key = key or f"key of {body}"
        properties = {
            UNIQ_KEY: key,
            TRAN_MSG: "true",
            PRODUCER_GROUP: group or topic,
            TRANSACTION_ID: key,
            REAL_TOPIC: topic,
            REAL_QUEUE_ID: "3",
        }
        if immunity:
            properties[CHECK_IMMUNITY_TIME_IN_SECONDS] = immunity
        record = InternalRecord(
            topic=HALF_TOPIC, body=body.encode(), flag=7, properties=properties, born_host="10.0.0.1:1"
        )
        (result,) = self.write([record])
        receipt = StoredMessage()
        receipt.CopyFrom(self.records[result.commit_log_offset])
        return receipt

    def state(self) -> LoadedState[ScheduleState]:
        """The state as the log has it."""
        queue = self.queues.get((STATE_TOPIC, 0), Queue())
        return load_state(
            TOPIC,
            queue.first,
            queue.end,
            lambda offset, count: queue.units[offset - queue.first : offset - queue.first + count],
            lambda units: [self.records[unit.commit_log_offset].body for unit in units],
        )

    def waiting(self) -> dict[int, StoredMessage]:
        """The half messages that wait, by queue offset: those that no op record names. By brute force."""
        named = b"".join(op.body for op in self.messages(OP_HALF_TOPIC)).split(b",")
        ended = {int(text) for text in named if text}
        halves = {half.queue_offset: half for half in self.messages(HALF_TOPIC)}
        return {offset: half for offset, half in halves.items() if offset not in ended}


class LogLife:
    """A life on a log, whose kind works only when `work` is called.

    Args:
        log: the log.
        gateways: can ask producers.
        counts: of the process.
        state: of a full state that is older than the newest one; None: the newest.
        rules: when producers are asked.
        ends_together: verdicts come as gateways send them: together with others first, alone if they have to.
    """

    def __init__(
        self,
        log: MemoryLog,
        gateways: CheckGateways | None = None,
        counts: TransactionCounts | None = None,
        state: ScheduleState | None = None,
        rules: CheckRules = RULES,
        *,
        ends_together: bool = False,
    ) -> None:
        self._ends_together = ends_together
        epoch = max(log.state().epoch, log.epoch) + 1
        self.log = log
        self.counts = counts or TransactionCounts()
        self.gateways = gateways or CheckGateways(lambda: 0.0)
        self.writer = StateWriter(TOPIC, partial(log.append, epoch), epoch)
        log.epoch = epoch
        recent = log.recent = RecentUnits(8)  # few, so that older units are read from the queues
        recent.set_ends((topic, queue_id, queue.end) for (topic, queue_id), queue in log.queues.items())
        client: Any = log
        reader = QueueReader(recent, client, client, clock=always_newer())
        clock: Any = log.manual

        def append(records: Sequence[InternalRecord]) -> Sequence[AppendResult]:
            return log.append(epoch, records, FLUSH_MODE_UNSPECIFIED)

        self.life = Life(self.writer, reader, clock, append)
        state = state or log.state().states
        lasting = LastingTransactions(self.gateways, self.counts)
        self.kind = TransactionsKind(self.life, state.transactions, rules, lasting, BROKER)
        self.kind.begin()

    def work(self) -> None:
        """Do what is due, until nothing is left to do now."""
        while True:
            self.log.manual.now += 1  # so that it looks again
            if self.kind.work() > self.log.manual.now:
                return

    def end(self, half: StoredMessage, *, commit: bool = True, from_check: bool = False) -> AppendResult | None:
        """A verdict for a half message by what its receipt says."""
        handle = WaitingHandle(half.properties[REAL_TOPIC], BROKER, half.commit_log_offset, half.properties[UNIQ_KEY])
        return self.end_by_id(encode_handle(TRANSACTION, handle), commit=commit, from_check=from_check)

    def end_by_id(self, transaction_id: str, *, commit: bool = True, from_check: bool = False) -> AppendResult | None:
        """A verdict by a transaction id."""
        resolution = f"TRANSACTION_RESOLUTION_{'COMMIT' if commit else 'ROLLBACK'}"
        request = pb.EndTransactionRequest(
            transaction_id=transaction_id, resolution=resolution, is_from_check=from_check
        )
        verdict = verdict_of(request, BROKER)
        if self._ends_together:
            (outcome,) = self.kind.end_all([verdict])
            if isinstance(outcome, StoreError):
                raise outcome
            if outcome is not None:
                return outcome.result if outcome.HasField("result") else None
        return self.kind.end(verdict)

    def pending(self, topic: str = "", page_size: int = 0) -> list[pb.PendingTransaction]:
        """All half messages that wait, over pages."""
        rows: list[pb.PendingTransaction] = []
        request = pb.ListPendingTransactionsRequest(topic=topic, page_size=page_size)
        while True:
            response = self.kind.list(request)
            rows += response.transactions
            request.page_token = response.next_page_token
            if not request.page_token:
                return rows

    def write_full(self) -> None:
        """The full state is written."""
        self.life.write_full([self.kind]).result(WAIT_SECONDS_MAX)

    def close(self) -> None:
        """End, as a clean stop or a kill does: the log has what was written."""
        self.writer.close()
        self.kind.stop(is_clean=False)


class Producers:
    """A gateway with producers of some topics, and groups."""

    def __init__(
        self, gateways: CheckGateways, *topics: str, gateway_id: str = "g1", groups: Sequence[str] = ()
    ) -> None:
        gateways.keep(gateway_id, topics, groups)
        self.stream = gateways.watch(gateway_id)

    def asked(self) -> list[Check]:
        """What was asked since the last time."""
        checks: list[Check] = []
        while taken := self.stream.take(0):
            checks += taken
        return checks


def committed_bodies(log: MemoryLog, topic: str = TOPIC_NAME) -> list[str]:
    """The bodies of the messages that consumers of a topic see."""
    return [message.body.decode() for message in log.messages(topic)]


def error_of(run: Any) -> StoreError:
    """The error that a call raises."""
    try:
        run()
    except StoreError as error:
        return error
    raise AssertionError("it did not fail")
