"""What heartbeats may say, and how much of it one call to the consumer service has."""

from types import SimpleNamespace

import pytest

from gateway.ports.delivery import KEEP_BYTES_MAX
from gateway.remoting import members as members_module
from gateway.remoting.door import Ask, Door, RefusedError
from gateway.remoting.door_clients import DoorClient, DoorClients, Membership, Subscription
from gateway.remoting.members import Members
from services.rocketmq.address import Address
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import Command
from services.serving.admission.shares import client_of_peer
from store.errors import ResourceBusyError
from tests.gateway.remoting.requests import heartbeat


class Delivering:
    """Takes members up to the limit of a call."""

    def __init__(self):
        self.kept = []

    def make_group(self, settings, caller, seconds):
        pass

    def keep_clients(self, facts, seconds):
        if sum(each.ByteSize() for each in facts) > 2 * KEEP_BYTES_MAX:
            raise ResourceBusyError("too large")
        self.kept += [each.client_id for each in facts]


class From:
    """A connection from an address."""

    is_closed = False

    def __init__(self, port, host="10.0.0.1"):
        self.peer = Address(host, port)


class AskAtOnce(Ask):
    """A request whose work is done when it is asked for, and whose refusals are raised."""

    def work(self, work):
        work()

    beside = work

    def answer(self, *arguments, **fields):
        pass


@pytest.fixture
def members():
    clients, delivering = DoorClients(), Delivering()
    topics = SimpleNamespace(find_now=lambda topic: topic)
    members = Members(SimpleNamespace(clients=clients, delivering=delivering, topics=topics, on_beat=[]))
    members.clients, members.delivering = clients, delivering
    clients.on_close.append(members.give_room_back)
    yield members
    members.close()


def beat(members, connected, body, language="JAVA"):
    door = Door({}, members.clients)
    caller = client_of_peer(f"ipv4:{connected.peer.host}:{connected.peer.port}")
    command = Command(RequestCode.HEART_BEAT, body=body, language=language)
    members.beat(AskAtOnce(door, connected, command, caller))
    door.close()


def test_large_members_of_a_door_are_kept_in_calls_that_the_service_takes(members):
    for number in range(400):
        wanted = {str(n): Subscription(str(n), "x" * 10_000) for n in range(2)}
        client = DoorClient(
            From(number + 1), f"c-{number}", "JAVA", 479, memberships={"g": Membership("g", subscriptions=wanted)}
        )
        assert members.clients.settle(client)
    members._keep_all()
    assert len(members.delivering.kept) == 400


def test_a_heartbeat_that_no_call_has_room_for_is_refused_and_not_kept(members):
    one = From(1)
    large = heartbeat("c", *(f"g-{number}" for number in range(200)), expression="x" * 16_000)
    with pytest.raises(RefusedError, match="bytes of groups and subscriptions") as refused:
        beat(members, one, large)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    assert members.clients.of(one) is None


def test_what_heartbeats_say_is_divided_among_clients_until_they_go(members, monkeypatch):
    monkeypatch.setattr(members_module, "ALL_CLIENTS_BYTES_MAX", 200_000)
    members = Members(members._shard)
    members.clients = members._shard.clients
    members.clients.on_close.append(members.give_room_back)
    hog, other = From(1), From(1, "10.0.0.2")
    large = heartbeat("c", *(f"g-{number}" for number in range(14)), expression="x" * 15_000)
    with pytest.raises(RefusedError, match="its share") as refused:
        beat(members, hog, large)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    small = heartbeat("c", *(f"g-{number}" for number in range(5)), expression="x" * 15_000)
    for _ in range(10):
        beat(members, hog, small)
    beat(members, other, heartbeat("d", "g"))
    members.clients.end(hog)
    members.clients.end(other)
    assert members._room.count == 0


def test_names_of_groups_and_topics_that_are_too_long_are_refused(members):
    for body in (
        heartbeat("c", "g" * 256),
        heartbeat("c", producers=["g" * 256]),
        heartbeat("c", "g", topic="t" * 301),
    ):
        with pytest.raises(RefusedError, match="characters"):
            beat(members, From(1), body)
    connected = From(1)
    beat(members, connected, heartbeat("c", "g" * 255, producers=["g" * 255]), "L" * 1_000_000)
    assert members.clients.of(connected).language == "L" * 32
