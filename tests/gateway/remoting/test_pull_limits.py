"""How pulls that look and wait are divided among clients, without a socket."""

from types import SimpleNamespace

import pytest

from gateway.delivery.timers import Timers
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.delivery import Pulled
from gateway.remoting.door import Ask, Door
from gateway.remoting.door_clients import DoorClients
from gateway.remoting.pulls import Pulls
from gateway.remoting.topic_copy import Topic
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.rocketmq.address import Address
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import Command
from services.serving.admission.shares import client_of_peer
from store.errors import ServiceUnavailableError
from tests.gateway.remoting.requests import HAS_SUBSCRIPTION, MAY_WAIT, pull_fields

EMPTY = Pulled(pb.PullMessagesResponse(status=gateway_pb.PULL_STATUS_NO_NEW_MSG, max_offset=1, next_offset=1), ())


class From:
    """A connection, and the codes of its answers."""

    is_closed = False

    def __init__(self, host, port=1):
        self.peer = Address(host, port)
        self.codes = []

    def answer(self, request, answer):
        self.codes.append(answer.code)


class Delivering:
    """Keeps what is asked until the test answers."""

    broker_name = "broker-a"

    def __init__(self):
        self.asked = []

    def pull(self, question, seconds, then):
        self.asked.append(then)

    def answer(self, outcome=EMPTY):
        asked, self.asked = self.asked, []
        for then in asked:
            then(outcome)


class Table:
    """Pulls of a door and what they have."""

    def __init__(self, **limits):
        self.delivering = Delivering()
        self.timers = Timers(clock=lambda: 0.0)
        self.room = WaitingRoom(self.timers, clock=lambda: 0.0)
        topics = SimpleNamespace(find=lambda name: Topic(topic=name, read_queue_count=8))
        clients = DoorClients()
        self.door = Door({}, clients)
        shard = SimpleNamespace(
            **{"room": self.room, "whole": None, "topics": topics, "clients": clients, "broker_name": "broker-a"},
            delivering=self.delivering,
        )
        self.pulls = Pulls(shard, clock=lambda: 0.0, **limits)

    def pull(self, connection, count=1):
        caller = client_of_peer(f"ipv4:{connection.peer.host}:{connection.peer.port}")
        fields = pull_fields("t", 1, sysFlag=HAS_SUBSCRIPTION | MAY_WAIT, suspendTimeoutMillis=15_000)
        command = Command(RequestCode.PULL_MESSAGE, {name: str(value) for name, value in fields.items()})
        for _ in range(count):
            self.pulls.pull(Ask(self.door, connection, command, caller))

    def close(self):
        self.room.close()
        self.door.close()
        self.timers.close()


@pytest.fixture
def make():
    tables = []

    def make(**limits):
        tables.append(Table(**limits))
        return tables[-1]

    yield make
    for table in tables:
        table.close()


def test_a_client_with_thousands_of_pulls_lets_others_look(make):
    table, hog, other = make(look_count_max=8), From("10.0.0.1"), From("10.0.0.2")
    table.pull(hog, 1_000)
    assert len(table.delivering.asked) == 4
    table.pull(other)
    assert len(table.delivering.asked) == 5
    for _ in range(300):
        table.delivering.answer()
    assert not table.delivering.asked
    assert table.room.poll_count == 1_001
    assert not hog.codes


def test_a_pull_beyond_the_share_of_its_client_looks_once_and_does_not_wait(make):
    table, hog, other = make(waiting_count_max=16), From("10.0.0.1"), From("10.0.0.2")
    table.pull(hog, 20)
    table.delivering.answer()
    assert hog.codes == [ResponseCode.PULL_NOT_FOUND] * 12
    assert table.room.poll_count == 8
    table.pull(other)
    table.delivering.answer()
    assert not other.codes
    table.pulls.forget(hog)
    assert table.room.poll_count == 1
    table.pull(hog)
    table.delivering.answer()
    assert len(hog.codes) == 12


def test_pulls_of_a_connection_that_ends_before_their_turn_are_never_looked_for(make):
    table, hog, other = make(look_count_max=8), From("10.0.0.1"), From("10.0.0.2")
    table.pull(hog, 100)
    hog.is_closed = True
    table.pulls.forget(hog)
    table.pull(other)
    assert len(table.delivering.asked) == 5
    table.delivering.answer()
    assert table.room.poll_count == 1
    assert not table.delivering.asked


def test_looks_that_fail_make_room_for_the_next_ones(make):
    table, hog = make(look_count_max=8), From("10.0.0.1")
    table.pull(hog, 100)
    while table.delivering.asked:
        table.delivering.answer(ServiceUnavailableError("it is not there"))
    assert hog.codes == [ResponseCode.SERVICE_NOT_AVAILABLE] * 100
