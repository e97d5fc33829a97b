"""Consumers of real processes, of which one is killed, stopped or hung while messages are in flight."""

import json
import pathlib
import time
from collections.abc import Iterator
from typing import TypeVar

import pytest

from reput.commitlog.v1.commitlog_service_pb2 import AppendMessagesRequest
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.calling.client import ServiceClient
from services.calling.commitlog import CommitLogClient
from services.rpcs import Answer, Request, Rpc
from services.rpcs import consumer as rpc
from services.rpcs.commitlog import APPEND_MESSAGES
from store.errors import (
    DeadlineExceededError,
    ServiceUnavailableError,
    StoreError,
    StoreReadOnlyError,
    StoreRecoveringError,
    TopicNotFoundError,
)
from tests.support.halting import halt, resume
from tests.support.ports import free_port
from tests.support.service import Service
from tests.support.stack import new_message
from tests.support.waiting import wait_for, wait_until

pytestmark = pytest.mark.life

NAMES = ("commitlog", "consumequeue", "consumer")
OUTCOME = pb.AckMessagesResponse

Value = TypeVar("Value")


class Shard:
    """The services that deliver messages, each at an address that it keeps over restarts."""

    def __init__(self, store: pathlib.Path) -> None:
        self.store = store
        self.addresses = {name: f"127.0.0.1:{free_port()}" for name in NAMES}
        self.running: dict[str, Service] = {}
        self.log = CommitLogClient(self.addresses["commitlog"])
        self.consumer = ServiceClient("consumer", self.addresses["consumer"])
        for name in NAMES:
            self.start(name)

    def start(self, name: str, **more: str) -> None:
        settings = {f"REPUT_{other.upper()}_TARGET": address for other, address in self.addresses.items()}
        settings |= {f"REPUT_{name.upper()}_ADDRESS": self.addresses[name], **more}
        self.running[name] = Service(name, self.store, settings)

    def kill(self, name: str) -> None:
        self.running.pop(name).kill()

    def stop(self, name: str) -> None:
        assert self.running.pop(name).stop() == 0, f"{name} did not end cleanly"

    def close(self) -> None:
        for service in reversed(self.running.values()):
            service.kill()
        self.log.close()

    def send(self, count: int, first: int = 0) -> None:
        messages = [new_message("T", f"m{at}".encode(), queue_id=0) for at in range(first, first + count)]
        self.log.call(APPEND_MESSAGES, AppendMessagesRequest(messages=messages))

    def pop(self, seconds: float, count: int = 32, group: str = "g") -> list[pb.Delivery]:
        """What a pop hands out; it is asked again while the service begins a life."""
        request = pb.PopMessagesRequest(consumer_group=group, topic="T", max_messages=count)
        request.invisible_duration.FromMilliseconds(int(seconds * 1000))
        found: list[pb.Delivery] = []

        def is_answered() -> bool:
            try:
                found.extend(self.consumer.call(rpc.POP_MESSAGES, request, 10).deliveries)
            except (ServiceUnavailableError, StoreRecoveringError, DeadlineExceededError):
                return False
            return True

        wait_until(is_answered, "a pop is answered")
        return found

    def pop_until(self, count: int, seconds: float) -> list[pb.Delivery]:
        """So many deliveries, over several pops."""
        found: list[pb.Delivery] = []

        def are_there() -> bool:
            found.extend(self.pop(seconds))
            return len(found) >= count

        wait_until(are_there, f"{count} deliveries")
        return found

    def ack(self, deliveries: list[pb.Delivery]) -> list[int]:
        """The outcomes; it is asked again while the service begins a life."""
        handles = [one.receipt_handle for one in deliveries]
        request = pb.AckMessagesRequest(consumer_group="g", receipt_handles=handles)
        found: list[int] = []

        def is_answered() -> bool:
            try:
                found.extend(self.consumer.call(rpc.ACK_MESSAGES, request, 10).outcomes)
            except (ServiceUnavailableError, StoreRecoveringError, DeadlineExceededError):
                return False
            return True

        wait_until(is_answered, "an acknowledgement is answered")
        return found

    def copies(self) -> list[str]:
        """The bodies of all retry copies, as another group reads them."""
        request = pb.PullMessagesRequest(topic="%RETRY%g_T", max_messages=1_000)
        return [message.body.decode() for message in self.consumer.call(rpc.PULL_MESSAGES, request).messages]


@pytest.fixture
def shard(tmp_path: pathlib.Path) -> Iterator[Shard]:
    running = Shard(tmp_path / "store")
    try:
        yield running
    finally:
        running.close()


def bodies(deliveries: list[pb.Delivery]) -> list[str]:
    return sorted(one.message.body.decode() for one in deliveries)


@pytest.mark.parametrize("victim", ["consumer", "commitlog", "consumequeue"])
def test_a_kill_loses_no_acknowledgement_and_hides_what_is_in_flight(shard: Shard, victim: str) -> None:
    shard.send(20)
    first = shard.pop_until(20, 8)
    began = time.monotonic()
    assert set(shard.ack(first[:10])) == {OUTCOME.OUTCOME_OK}
    shard.kill(victim)
    shard.start(victim)
    hidden = shard.pop(8)
    assert hidden == [] or time.monotonic() - began >= 8  # a slow start may take longer than the messages are hidden
    outcomes = shard.ack(first[10:12])
    assert set(outcomes) <= {OUTCOME.OUTCOME_OK, OUTCOME.OUTCOME_TOO_LATE}
    late = [one for one, outcome in zip(first[10:12], outcomes, strict=True) if outcome == OUTCOME.OUTCOME_OK]
    acked = set(bodies(first[:10] + late))
    rest = set(bodies(first)) - acked
    again = hidden + shard.pop_until(len(rest) - len(hidden), 30)
    assert bodies(again) == sorted(rest)
    assert {one.delivery_attempt for one in again} == {2}
    assert sorted(shard.copies()) == sorted(rest)  # each moved once
    assert shard.ack(again) == [OUTCOME.OUTCOME_OK] * len(again)
    shard.send(3, first=20)
    assert bodies(shard.pop_until(3, 30)) == ["m20", "m21", "m22"]


def test_a_clean_stop_writes_the_files_of_a_broker_and_a_start_goes_on(shard: Shard) -> None:
    shard.send(10)
    first = shard.pop_until(10, 60)
    shard.ack(first[:4])
    shard.stop("consumer")
    offsets = json.loads((shard.store / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    assert offsets == {"T@g": {"0": 4}}
    shard.start("consumer")
    assert shard.pop(60) == []
    assert set(shard.ack(first[4:])) == {OUTCOME.OUTCOME_OK}
    assert [
        one.queue_offset
        for one in shard.consumer.call(rpc.GET_OFFSETS, pb.GetOffsetsRequest(consumer_group="g")).offsets
    ] == [10]


def test_attempts_end_in_one_dead_letter_over_kills_at_each_attempt(shard: Shard) -> None:
    settings = pb.GroupSettings(consumer_group="g", delivery_attempts_max=3, consume_enabled=True)
    shard.consumer.call(rpc.UPDATE_GROUP, pb.UpdateGroupRequest(settings=settings))
    shard.send(5)
    for attempt in (1, 2, 3):
        assert {one.delivery_attempt for one in shard.pop_until(5, 1)} == {attempt}
        shard.kill("consumer")
        shard.start("consumer")
    dead = pb.PullMessagesRequest(topic="%DLQ%g", max_messages=100)

    def letters() -> list[str]:
        try:
            return sorted(message.body.decode() for message in shard.consumer.call(rpc.PULL_MESSAGES, dead).messages)
        except StoreError:
            return []

    wait_until(lambda: len(letters()) >= 5, "all are dead")
    assert letters() == [f"m{at}" for at in range(5)]
    assert len(shard.copies()) == 10
    assert shard.pop(1) == []


@pytest.mark.parametrize("victim", ["consumer", "commitlog"])
def test_messages_are_sent_back_once_and_a_queue_keeps_its_holder_over_a_kill(shard: Shard, victim: str) -> None:
    shard.send(4)

    def answer(method: Rpc[Request, Answer], request: Request) -> Answer:
        """It is asked again while the service begins a life."""

        def ask() -> Answer | None:
            try:
                return shard.consumer.call(method, request, 10)
            except (ServiceUnavailableError, StoreRecoveringError, DeadlineExceededError, TopicNotFoundError):
                return None

        return wait_for(ask, "an answer")

    def lock(client_id: str, *, renew: bool = False) -> int:
        request = pb.LockQueuesRequest(consumer_group="g", client_id=client_id, renew=renew)
        request.queues.add(topic="T")
        return len(answer(rpc.LOCK_QUEUES, request).queues)

    assert lock("a") == 1
    back = pb.SendBackMessagesRequest(consumer_group="g", topic="T", queue_offsets=[1, 3])
    assert list(answer(rpc.SEND_BACK_MESSAGES, back).outcomes) == [gateway_pb.SEND_BACK_OUTCOME_OK] * 2
    shard.kill(victim)
    shard.start(victim)
    assert (lock("b"), lock("b", renew=False), lock("a", renew=True), lock("b", renew=True)) == (0, 0, 1, 0)
    assert list(answer(rpc.SEND_BACK_MESSAGES, back).outcomes) == [gateway_pb.SEND_BACK_OUTCOME_OK] * 2

    def waiting() -> list[bytes]:
        """Both, once the queue has been built so far."""
        pulled = answer(rpc.PULL_MESSAGES, pb.PullMessagesRequest(topic="SCHEDULE_TOPIC_XXXX", queue_id=2))
        return [message.body for message in pulled.messages]

    wait_until(lambda: len(waiting()) >= 2, "both wait")
    assert waiting() == [b"m1", b"m3"]


def test_a_consumer_service_that_hangs_hinders_no_append_and_goes_on(shard: Shard) -> None:
    shard.send(1)
    (one,) = shard.pop_until(1, 60)
    pid = shard.running["consumer"].pid
    halt(pid)
    try:
        for at in range(1, 50):
            messages = [new_message("T", f"m{at}".encode(), queue_id=0)]
            shard.log.call(APPEND_MESSAGES, AppendMessagesRequest(messages=messages), 5)
        with pytest.raises((ServiceUnavailableError, DeadlineExceededError)):
            shard.consumer.call(rpc.GET_STATUS, pb.GetStatusRequest(), 1)
    finally:
        resume(pid)
    assert len(shard.pop_until(49, 60)) == 49
    assert shard.ack([one]) == [OUTCOME.OUTCOME_OK]


def test_a_store_that_is_only_read_hands_nothing_out_and_is_read(shard: Shard) -> None:
    shard.send(3)
    first = shard.pop_until(3, 60)
    shard.stop("consumer")
    shard.start("consumer", REPUT_READ_ONLY="true")
    with pytest.raises(StoreReadOnlyError):
        shard.consumer.call(rpc.POP_MESSAGES, pb.PopMessagesRequest(consumer_group="g", topic="T"))
    with pytest.raises(StoreReadOnlyError):
        shard.ack(first)
    pulled = shard.consumer.call(rpc.PULL_MESSAGES, pb.PullMessagesRequest(topic="T"))
    assert [message.body for message in pulled.messages] == [b"m0", b"m1", b"m2"]
    assert [
        one.queue_offset
        for one in shard.consumer.call(rpc.GET_OFFSETS, pb.GetOffsetsRequest(consumer_group="g")).offsets
    ] == [0]
