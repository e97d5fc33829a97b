"""Requests and their replies, without a process: which of several replies a caller gets."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.delivery.timers import Timers
from gateway.delivery.waiting_room import WaitingRoom
from gateway.reput.requests import REQUEST_COUNT_MAX, Requests
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import AppendResult, NewMessage, StoredMessage
from services.serving.admission.shares import Client, client_of_identity
from tests.gateway.delivery.memory_delivery import MemoryDelivering
from tests.gateway.memory_shard import MemoryShard
from tests.support.waiting import wait_until

CLUSTER, CLIENT = "Home", "gateway-1"


class Caller:
    """Keeps what a call is ended with."""

    def __init__(self, client: Client | None = None) -> None:
        self.ends: list[Any] = []
        self.client = client

    def answer(self, response: bytes) -> None:
        self.ends.append(pb.SendRequestResponse.FromString(response).reply.body)

    def fail(self, status: Any) -> None:
        self.ends.append(status)

    def is_active(self) -> bool:
        return True

    def time_remaining(self) -> float | None:
        return None


class Forwarder:
    """Keeps append requests; the test says when each is stored."""

    def __init__(self) -> None:
        self.asked: list[tuple[NewMessage, Any]] = []

    def append_messages(self, request: bytes, caller: Any) -> None:
        self.asked.append((pb.AppendMessagesRequest.FromString(request).messages[0], caller))

    def stored(self) -> None:
        response = pb.AppendMessagesResponse(results=[AppendResult(offset_msg_id="id")])
        self.asked[-1][1].answer(response.SerializeToString())


class World:
    """A gateway's requests over shards in memory."""

    def __init__(self, request_count_max: int = REQUEST_COUNT_MAX) -> None:
        shard = MemoryShard([], {f"{CLUSTER}_REPLY_TOPIC": 1}).shard()
        source = SimpleNamespace(named=lambda _: MemoryDelivering())
        self.timers = Timers()
        self.forwarder = Forwarder()
        self.requests = Requests(
            cast(Any, SimpleNamespace(now=lambda: [shard])),
            cast(Any, source),
            WaitingRoom(self.timers),
            self.timers,
            cast(Any, self.forwarder),
            CLUSTER,
            CLIENT,
            request_count_max=request_count_max,
        )

    def ask(self) -> Caller:
        caller, count = Caller(), len(self.forwarder.asked)
        request = pb.SendRequestRequest(message=NewMessage(topic="Questions", body=b"?"))
        self.requests.send_request(request.SerializeToString(), caller)
        wait_until(lambda: len(self.forwarder.asked) > count)
        return caller

    def replies(self, *bodies: bytes) -> list[StoredMessage]:
        request = self.forwarder.asked[-1][0].properties
        own = {name: request[name] for name in ("CORRELATION_ID", "REPLY_TO_CLIENT")}
        return [StoredMessage(body=body, properties={**own, "MSG_TYPE": "reply"}) for body in bodies]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.timers.close()


def test_of_two_replies_in_one_batch_the_second_was_answered(world: World) -> None:
    caller = world.ask()
    world.forwarder.stored()

    world.requests.take(world.replies(b"first", b"second"))

    assert caller.ends == [b"first"]


def test_of_two_replies_before_the_receipt_the_second_was_answered(world: World) -> None:
    caller = world.ask()

    world.requests.take(world.replies(b"first"))
    world.requests.take(world.replies(b"second"))
    world.forwarder.stored()
    world.requests.take(world.replies(b"third"))

    assert caller.ends == [b"first"]


def test_a_client_whose_requests_all_wait_leaves_places_for_those_of_another() -> None:
    world = World(request_count_max=16)
    request = pb.SendRequestRequest(message=NewMessage(topic="Questions", body=b"?")).SerializeToString()
    attackers = [Caller(client_of_identity("attacker")) for _ in range(16)]
    for caller in attackers:
        world.requests.send_request(request, caller)
    assert sum(bool(caller.ends) for caller in attackers) == 8, "half of them are refused at once"
    victim = Caller(client_of_identity("victim"))
    world.requests.send_request(request, victim)
    assert not victim.ends
    world.timers.close()
