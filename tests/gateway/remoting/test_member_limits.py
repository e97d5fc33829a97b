"""What heartbeats may say, and how much of it one call to the consumer service has."""

import json
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gateway.ports.delivery import KEEP_BYTES_MAX
from gateway.remoting import members as members_module
from gateway.remoting.door import Ask, Door, RefusedError
from gateway.remoting.door_clients import DoorClient, DoorClients, Membership, Subscription
from gateway.remoting.members import LOOP_SUBSCRIPTION_COUNT_MAX, Members
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
    members = Members(SimpleNamespace(clients=clients, delivering=delivering, topics=topics, tenants=None, on_beat=[]))
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


class Taken(AskAtOnce):
    """Notes what it leaves to a thread, and has it done later."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.later, self.answers = [], 0

    def work(self, work):
        self.later.append(work)

    def answer(self, *arguments, **fields):
        self.answers += 1


def beaten(members, connected, body, kind=Taken):
    ask = kind(
        Door({}, members.clients), connected, Command(RequestCode.HEART_BEAT, body=body), client_of_peer("ipv4:1:1")
    )
    members.beat(ask)
    return ask


def wanting(count, version=1, **more):
    """A heartbeat of a client that wants so many topics; a short one names none of them."""
    said = json.loads(heartbeat("c", "g", version=version))
    (row,) = said["consumerDataSet"][0]["subscriptionDataSet"]
    rows = [row | {"topic": f"t{number}"} for number in range(count)]
    said["consumerDataSet"][0]["subscriptionDataSet"] = [] if more.get("withoutSub") else rows
    return json.dumps(said | more).encode()


def test_a_short_heartbeat_that_stands_for_many_subscriptions_is_left_to_a_thread(members, monkeypatch):
    """830 bytes took 0.12 s of the loop of all connections: what was known was made into messages there, twice."""
    few, many = From(1), From(2)
    beaten(members, few, wanting(LOOP_SUBSCRIPTION_COUNT_MAX), AskAtOnce)
    beaten(members, many, wanting(LOOP_SUBSCRIPTION_COUNT_MAX + 1), AskAtOnce)
    monkeypatch.setattr(members_module, "facts_of", lambda client: pytest.fail("made in the loop"))
    monkeypatch.setattr(members_module, "client_of", Mock(wraps=members_module.client_of))
    short = wanting(0, withoutSub=True)
    taken = beaten(members, many, short)
    assert (len(taken.later), taken.answers, members_module.client_of.called) == (1, 0, False)
    beaten_here = beaten(members, few, short, AnsweredHere)
    assert (beaten_here.later, beaten_here.answers) == ([], 1)
    monkeypatch.undo()
    taken.later[0]()
    assert len(members.clients.of(many).memberships["g"].subscriptions) == LOOP_SUBSCRIPTION_COUNT_MAX + 1


class AnsweredHere(Taken):
    """What goes on beside its answer is left out."""

    def beside(self, work):
        pass


@pytest.mark.parametrize(
    ("body", "is_new"),
    [
        (wanting(3, version=2), False),
        (wanting(3, withoutSub=True), False),
        (wanting(2), True),
        (wanting(3, producerDataSet=[{"groupName": "p"}]), True),
        (wanting(3).replace(b'"subString": "*"', b'"subString": "a"'), True),
        (wanting(3).replace(b"CONSUME_PASSIVELY", b"CONSUME_ACTIVELY"), True),
        (wanting(3).replace(b'"groupName": "g"', b'"groupName": "h"'), True),
        (wanting(3).replace(b'"clientID": "c"', b'"clientID": "d"'), True),
    ],
)
def test_a_heartbeat_that_says_nothing_new_but_versions_is_answered_at_once(members, body, is_new):
    connected = From(1)
    beaten(members, connected, wanting(3), AskAtOnce)
    ask = beaten(members, connected, body, AnsweredHere)
    assert (len(ask.later), ask.answers) == ((1, 0) if is_new else (0, 1))
    if not is_new and b'"withoutSub": true' not in body:
        assert {one.version for one in members.clients.of(connected).memberships["g"].subscriptions.values()} == {2}


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
