"""Transactions through the services of a shard, of which one is killed while half messages wait."""

import contextlib
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import AppendResult, StoredMessage
from reput.schedule.v1 import schedule_service_pb2 as pb
from services.calling.client import ServiceClient
from services.calling.commitlog import CommitLogClient
from services.rpcs import commitlog, consumequeue
from services.rpcs import schedule as rpc
from store.errors import (
    DeadlineExceededError,
    QueueNotFoundError,
    ServiceUnavailableError,
    StoreError,
    StoreReadOnlyError,
    StoreRecoveringError,
    TopicNotFoundError,
    TransactionNotFoundError,
)
from store.format.properties import PRODUCER_GROUP, TRAN_MSG, TRANSACTION_CHECK_TIMES
from store.format.topic import CHECK_MAX_TIME_TOPIC
from tests.support.ports import free_port
from tests.support.service import Service
from tests.support.stack import hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

NAMES = ("commitlog", "consumequeue", "schedule")
TOPIC = "Orders"
COMMIT, ROLLBACK = gateway_pb.TRANSACTION_RESOLUTION_COMMIT, gateway_pb.TRANSACTION_RESOLUTION_ROLLBACK
# A check each second, so that the test is short.
QUICK = {
    "REPUT_SCHEDULE_TRANSACTION_TIMEOUT_SECONDS": "0.5",
    "REPUT_SCHEDULE_TRANSACTION_CHECK_INTERVAL_SECONDS": "1",
    "REPUT_SCHEDULE_TRANSACTION_CHECK_COUNT_MAX": "2",
}


class Shard:
    """What asks the services that end transactions."""

    def __init__(self, addresses: dict[str, str], topic: str = TOPIC) -> None:
        self.topic = topic
        self.log = CommitLogClient(addresses["commitlog"])
        self.queues = ServiceClient("consumequeue", addresses["consumequeue"])
        self.schedule = ServiceClient("schedule", addresses["schedule"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()
        self.queues.close()
        self.schedule.close()

    def send(self, count: int, first: int = 0) -> list[AppendResult]:
        """Half messages, and their receipts."""
        properties = {TRAN_MSG: "true", PRODUCER_GROUP: "producers"}
        messages = [new_message(self.topic, f"m{at}".encode(), queue_id=0) for at in range(first, first + count)]
        for message in messages:
            message.properties.update(properties)
        return [
            result
            for message in messages
            for result in self.log.call(
                commitlog.APPEND_MESSAGES, log_pb.AppendMessagesRequest(messages=[message])
            ).results
        ]

    def end(self, transaction_id: str, resolution: "gateway_pb.TransactionResolution") -> AppendResult:
        """A verdict; it is said again while the service begins a life and has not heard it."""
        request = pb.EndTransactionRequest(transaction_id=transaction_id, resolution=resolution, is_from_check=True)
        answers: list[pb.EndTransactionResponse] = []

        def is_answered() -> bool:
            try:
                answers.append(self.schedule.call(rpc.END_TRANSACTION, request))
            except StoreRecoveringError:
                return False
            return True

        wait_until(is_answered, "a verdict is answered")
        return answers[0].result

    def messages(self, topic: str = "") -> list[StoredMessage]:
        """What consumers of queue 0 of a topic see."""
        past_offset = self.log.call(commitlog.GET_STATUS, log_pb.GetStatusRequest()).log_end_offset
        status = queue_pb.GetStatusRequest()
        wait_until(
            lambda: self.queues.call(consumequeue.GET_STATUS, status).next_offset >= past_offset,
            "the queues are built",
        )
        try:
            request = queue_pb.GetQueueUnitsRequest(topic=topic or self.topic, max_units=1_000)
            units = self.queues.call(consumequeue.GET_QUEUE_UNITS, request).units
        except (TopicNotFoundError, QueueNotFoundError):
            return []
        return [
            outcome
            for outcome in self.log.get_many([unit.commit_log_offset for unit in units])
            if isinstance(outcome, StoredMessage)
        ]

    def bodies(self, topic: str = "") -> list[bytes]:
        return [message.body for message in self.messages(topic)]

    def pending(self) -> list[pb.PendingTransaction]:
        """The half messages that wait; it is asked again while the service begins a life."""
        rows: list[pb.PendingTransaction] = []

        def is_listed() -> bool:
            rows.clear()
            request = pb.ListPendingTransactionsRequest(page_size=7)
            try:
                while True:
                    page = self.schedule.call(rpc.LIST_PENDING_TRANSACTIONS, request)
                    rows.extend(page.transactions)
                    request.page_token = page.next_page_token
                    if not request.page_token:
                        return True
            except (StoreRecoveringError, ServiceUnavailableError, DeadlineExceededError):
                return False

        wait_until(is_listed, "the half messages are listed")
        return rows


class Processes:
    """The services, each in a process of its own at an address that it keeps over restarts."""

    def __init__(self, store: pathlib.Path) -> None:
        self.store = store
        self.addresses = {name: f"127.0.0.1:{free_port()}" for name in NAMES}
        self.running: dict[str, Service] = {}
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        settings = {f"REPUT_{other.upper()}_TARGET": address for other, address in self.addresses.items()}
        settings |= {f"REPUT_{name.upper()}_ADDRESS": self.addresses[name]}
        self.running[name] = Service(name, self.store, settings)

    def kill_and_start(self, name: str) -> None:
        self.running.pop(name).kill()
        self.start(name)

    def close(self) -> None:
        for service in reversed(self.running.values()):
            service.kill()


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Those that tests kill."""
    started = Processes(tmp_path_factory.mktemp("processes") / "store")
    yield started
    started.close()


@contextlib.contextmanager
def hosted_shard(store: pathlib.Path, settings: dict[str, str] | None = None, **choices: Any) -> Iterator[Shard]:
    """A shard in this process."""
    with hosted_stack(store, settings=settings, **choices) as stack, Shard(stack.addresses) as shard:
        yield shard


@pytest.fixture
def shard(tmp_path: pathlib.Path) -> Iterator[Shard]:
    """A shard in this process."""
    with hosted_shard(tmp_path / "store") as one:
        yield one


class Gateway:
    """Says that it has a producer of the group, and hears checks."""

    def __init__(self, shard: Shard, gateway_id: str = "g1") -> None:
        shard.schedule.call(
            rpc.KEEP_PRODUCERS, pb.KeepProducersRequest(gateway_id=gateway_id, producer_groups=["producers"])
        )
        self.checks: list[pb.WatchChecksResponse.Check] = []
        self._stream = shard.schedule.follow(rpc.WATCH_CHECKS, pb.WatchChecksRequest(gateway_id=gateway_id))
        self._thread = threading.Thread(target=self._hear)
        self._thread.start()

    def _hear(self) -> None:
        try:
            for response in self._stream:
                self.checks += response.checks
        except StoreError:
            pass  # cancelled, or the service has gone

    def close(self) -> None:
        self._stream.cancel()
        self._thread.join()


def test_transactions_end_as_their_producers_say(shard: Shard) -> None:
    receipts = shard.send(4)
    assert all(receipt.transaction_id for receipt in receipts)
    assert shard.bodies() == [], "half messages are invisible"
    result = shard.end(receipts[0].transaction_id, COMMIT)
    shard.end(receipts[1].transaction_id, ROLLBACK)
    (message,) = shard.messages()
    assert (message.body, message.offset_msg_id) == (b"m0", result.offset_msg_id)
    assert message.prepared_transaction_offset == receipts[0].commit_log_offset
    for receipt in receipts[:2]:
        with pytest.raises(TransactionNotFoundError, match="before"):
            shard.end(receipt.transaction_id, COMMIT)
    # Not in their order: half messages of one millisecond stand in that of a hash.
    assert {row.unique_key for row in shard.pending()} == {receipt.unique_key for receipt in receipts[2:]}
    status = shard.schedule.call(rpc.GET_STATUS, pb.GetStatusRequest())
    assert (status.transaction_count, status.committed_count, status.rolled_back_count) == (2, 1, 1)
    (waiting,) = (row for row in shard.pending() if row.unique_key == receipts[2].unique_key)
    shard.end(waiting.transaction_id, COMMIT)
    assert shard.bodies() == [b"m0", b"m2"]


def test_a_producer_is_asked_and_what_nobody_knows_is_given_up(tmp_path: pathlib.Path) -> None:
    with hosted_shard(tmp_path / "store", QUICK) as shard:
        shard.send(2)
        gateway = Gateway(shard)
        try:
            wait_until(lambda: len(gateway.checks) >= 2, "both are asked for")
            check = next(check for check in gateway.checks if check.message.body == b"m0")
            assert (check.message.topic, check.message.queue_id) == (TOPIC, 0)
            shard.end(check.transaction_id, COMMIT)
            wait_until(lambda: shard.bodies(CHECK_MAX_TIME_TOPIC) == [b"m1"], "the other is given up")
            (given_up,) = shard.messages(CHECK_MAX_TIME_TOPIC)
            assert given_up.properties[TRANSACTION_CHECK_TIMES] == "2"
            assert sum(check.message.body == b"m1" for check in gateway.checks) == 2
            assert shard.bodies() == [b"m0"]
            assert shard.pending() == []
        finally:
            gateway.close()


def test_verdicts_count_once_while_the_service_is_killed(processes: Processes) -> None:
    """Producers say verdicts again until they are answered; the service is killed again and again meanwhile."""
    with Shard(processes.addresses) as shard:
        receipts = shard.send(150)
        resolutions = {receipt.transaction_id: COMMIT if at % 3 else ROLLBACK for at, receipt in enumerate(receipts)}
        is_over = threading.Event()
        left = list(resolutions)
        lock = threading.Lock()

        def produce() -> None:
            while True:
                with lock:
                    if not left:
                        return
                    transaction_id = left.pop()
                resolution = resolutions[transaction_id]
                request = pb.EndTransactionRequest(transaction_id=transaction_id, resolution=resolution)
                while True:
                    try:
                        shard.schedule.call(rpc.END_TRANSACTION, request, 10)
                        break
                    except TransactionNotFoundError:
                        break  # the answer before was lost
                    except (ServiceUnavailableError, StoreRecoveringError, DeadlineExceededError):
                        time.sleep(0.02)  # the service is down, and nothing tells when it is back

        threads = [threading.Thread(target=produce) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            is_over.wait(0.3)  # in the middle of something
            processes.kill_and_start("schedule")
        for thread in threads:
            thread.join(WAIT_SECONDS_MAX)
        expected = sorted(f"m{at}".encode() for at in range(150) if at % 3)
        assert sorted(shard.bodies()) == expected
        assert shard.pending() == []


def test_the_kill_of_the_log_loses_no_transaction(processes: Processes) -> None:
    with Shard(processes.addresses, "Kept") as shard:
        receipts = shard.send(3)
        shard.end(receipts[0].transaction_id, COMMIT)
        processes.kill_and_start("commitlog")

        def rolls_back() -> bool:
            try:
                shard.end(receipts[1].transaction_id, ROLLBACK)
            except TransactionNotFoundError:
                return True  # the answer before was lost
            except (ServiceUnavailableError, DeadlineExceededError):
                return False
            return True

        wait_until(rolls_back, "the service has a new life")
        assert [row.unique_key for row in shard.pending()] == [receipts[2].unique_key]
        assert shard.bodies() == [b"m0"]


def test_a_store_that_is_only_read_shows_what_waits(tmp_path: pathlib.Path) -> None:
    with hosted_shard(tmp_path / "store") as shard:
        receipts = shard.send(2)
    with hosted_shard(tmp_path / "store", read_only=True) as shard:
        assert {row.unique_key for row in shard.pending()} == {receipt.unique_key for receipt in receipts}
        with pytest.raises(StoreReadOnlyError):
            shard.end(receipts[0].transaction_id, COMMIT)
