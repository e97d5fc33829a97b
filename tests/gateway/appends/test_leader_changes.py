"""Appends to a shard whose leader changes: what waits for the next leader, and what its caller is told."""

import threading
import time

import grpc
import pytest
from google.rpc import error_details_pb2

from gateway.appends.coalescer import AppendFailedError
from gateway.appends.forwarder import Commitlog, CommitlogGroup
from gateway.appends.outcomes import NOT_SENT
from services.status import error_info, to_status
from store.errors import DiskFullError, FlushFailedError, NotLeaderError, ServiceUnavailableError, StoreError
from tests.support.waiting import WAIT_SECONDS_MAX


class Leaders:
    """Says at once, or when it is told, that the shard has a leader."""

    def __init__(self) -> None:
        self.not_leading: list[str] = []
        self.led = threading.Event()
        self.waits = threading.Semaphore(0)

    def is_replicated(self, broker_name: str) -> bool:
        return broker_name == "a"

    def note_not_leading(self, broker_name: str, commitlog: str) -> None:
        self.not_leading.append(commitlog)

    def wait_until_led(self, broker_name: str, seconds: float) -> bool:
        self.waits.release()
        return self.led.wait(seconds)


class Replica(Commitlog):
    """Answers with its own name, or refuses."""

    def __init__(self, name: str, group: CommitlogGroup, shard: str = "a", alone_count: int = 4) -> None:
        super().__init__(grpc.insecure_channel("127.0.0.1:9"), name, alone_count, broker_name=shard, group=group)
        self.name = name
        self.error: StoreError | None = None
        self.count = 0

    def send_once(self, request: bytes, seconds: float) -> bytes:
        self.count += 1
        if self.error is not None:
            raise AppendFailedError(to_status(self.error))
        return self.name.encode()


@pytest.fixture
def leaders() -> Leaders:
    return Leaders()


@pytest.fixture
def replicas(leaders: Leaders):
    group = CommitlogGroup(leaders)
    made = [Replica("r1", group), Replica("r2", group)]
    group.keep({"a": made[1]})
    yield made
    for one in made:
        one.close()


class Caller:
    """A call that waits for its outcome."""

    def __init__(self) -> None:
        self.outcome = None
        self.done = threading.Event()

    def answer(self, response: bytes) -> None:
        self.outcome = response
        self.done.set()

    def fail(self, status) -> None:
        self.outcome = status
        self.done.set()

    def is_active(self) -> bool:
        return True

    def time_remaining(self) -> float:
        return WAIT_SECONDS_MAX


def sent(replica: Replica, seconds: float = WAIT_SECONDS_MAX) -> Caller:
    caller = Caller()
    replica.send_alone(b"", time.monotonic() + seconds, caller)
    return caller


def outcome_of(caller: Caller):
    assert caller.done.wait(WAIT_SECONDS_MAX)
    return caller.outcome


def retry_seconds(status) -> int | None:
    info = error_details_pb2.RetryInfo()
    return next((info.retry_delay.seconds for detail in status.details if detail.Unpack(info)), None)


def test_an_append_that_a_follower_refuses_waits_for_the_leader_and_is_written_there(leaders, replicas) -> None:
    first, second = replicas
    first.error = NotLeaderError("r1 does not lead")

    caller = sent(first)
    assert leaders.waits.acquire(timeout=WAIT_SECONDS_MAX)
    assert not caller.done.is_set()
    leaders.led.set()

    assert outcome_of(caller) == b"r2"
    assert (first.count, second.count, leaders.not_leading) == (1, 1, ["r1"])


def test_an_append_that_found_no_connection_is_sent_to_the_next_leader(leaders, replicas) -> None:
    first, _ = replicas
    first.error = ServiceUnavailableError("no connection", **{NOT_SENT: "true"})
    leaders.led.set()

    assert outcome_of(sent(first)) == b"r2"


@pytest.mark.parametrize("error", [ServiceUnavailableError("the connection broke"), FlushFailedError("the disk")])
def test_an_append_that_may_be_written_is_not_sent_again_and_its_caller_hears_when_to_come_back(
    leaders, replicas, error
) -> None:
    first, second = replicas
    first.error = error
    leaders.led.set()

    status = outcome_of(sent(first))

    assert status.code == grpc.StatusCode.UNAVAILABLE.value[0]
    assert error_info(status).reason == error.reason()
    assert retry_seconds(status) == 1
    assert second.count == 0


def test_without_a_leader_in_time_the_caller_gets_the_refusal_with_a_retry_info(leaders, replicas) -> None:
    first, second = replicas
    first.error = NotLeaderError("r1 does not lead")

    status = outcome_of(sent(first, seconds=0.2))

    assert error_info(status).reason == "NOT_LEADER"
    assert retry_seconds(status) == 1
    assert second.count == 0


def test_a_refusal_that_has_nothing_to_do_with_the_leader_is_passed_on_unchanged(leaders, replicas) -> None:
    first, second = replicas
    first.error = DiskFullError("full")
    leaders.led.set()

    assert outcome_of(sent(first)) == to_status(first.error)
    assert (second.count, leaders.not_leading) == (0, [])


def test_an_append_that_waited_for_a_thread_of_a_leader_that_is_left_was_not_sent(leaders) -> None:
    busy = Replica("r1", CommitlogGroup(leaders), alone_count=1)
    busy.error = NotLeaderError("r1 does not lead")
    held = sent(busy)
    assert leaders.waits.acquire(timeout=WAIT_SECONDS_MAX)
    waiting = sent(busy)

    busy.close()

    status = outcome_of(waiting)
    assert error_info(status).metadata[NOT_SENT] == "true"
    assert retry_seconds(status) == 1
    leaders.led.set()
    outcome_of(held)


def test_a_shard_without_replicas_is_sent_to_once(leaders) -> None:
    alone = Replica("b1", CommitlogGroup(leaders), shard="b")
    alone.error = ServiceUnavailableError("the connection broke")

    status = outcome_of(sent(alone))

    assert status == to_status(alone.error)
    alone.close()
