"""What a gateway tells the shards of its clients, without a socket: who lives, and the deliveries that they have."""

import os
from pathlib import Path

import pytest

from gateway.delivery.shards import DeliveryShards
from gateway.delivery.timers import Timers
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.delivery import KEEP_BYTES_MAX
from gateway.rocketmq import clients as clients_module
from gateway.rocketmq.clients import DELIVERED_COUNT_MAX, DELIVERED_WAITING_COUNT_MAX, Clients
from reput.consumer.v1.consumer_service_pb2 import Client
from reput.gateway.v1.gateway_service_pb2 import MessageFilter, TopicSubscription
from store.errors import NotLeaderError, ResourceBusyError, StoreReadOnlyError, StoreRecoveringError
from tests.gateway.delivery.memory_delivery import MemoryDelivering
from tests.gateway.groups.memory_groups import group_settings


@pytest.fixture
def shards():
    return MemoryDelivering("broker-a"), MemoryDelivering("broker-b")


def delivering_of(shards):
    delivering = DeliveryShards(WaitingRoom(Timers()))
    delivering.keep(shards)
    return delivering


@pytest.fixture
def clients(shards):
    delivering = delivering_of(shards)
    yield Clients(delivering)
    delivering.close()


def test_deliveries_are_told_to_their_shard_also_when_no_client_was_heard_of(shards, clients):
    clients.note_delivered("broker-b", ["b1", "b2"])
    clients.keep()
    clients.keep()
    assert [shard.confirmed for shard in shards] == [[], ["b1", "b2"]]


def test_deliveries_that_a_shard_did_not_hear_of_are_told_again_before_newer_ones(shards, clients):
    shards[0].is_down = True
    for name in ("broker-a", "broker-b"):
        clients.note_delivered(name, ["1", "2"])
    clients.keep()
    clients.note_delivered("broker-a", ["3"])
    clients.keep()
    shards[0].is_down = False
    clients.keep()
    assert [shard.confirmed for shard in shards] == [["1", "2", "3"], ["1", "2"]]


@pytest.fixture
def confirmed_after(shards, clients, monkeypatch):
    """What a shard hears of a delivery when it has refused it once, with an error."""

    def confirmed(error):
        def refuse(*_):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(shards[0], "keep_clients", refuse)
            clients.note_delivered("broker-a", ["1"])
            clients.keep()
        clients.keep()
        return shards[0].confirmed

    return confirmed


def test_deliveries_that_a_shard_refuses_are_forgotten(confirmed_after):
    assert confirmed_after(StoreReadOnlyError("only read")) == []


@pytest.mark.parametrize("error", [StoreRecoveringError, NotLeaderError, ResourceBusyError])
def test_deliveries_were_forgotten_when_the_consumer_service_began_a_new_life(confirmed_after, error):
    """They came again after 60 s, though their clients had them: at each restart and change of leaders."""
    assert confirmed_after(error("not now")) == ["1"]


def test_deliveries_that_are_acknowledged_already_are_not_told(shards, clients):
    clients.note_acknowledged("broker-a", ["1"])
    clients.note_delivered("broker-a", ["2", "3"])
    clients.note_acknowledged("broker-a", ["1", "2"])
    clients.keep()
    assert shards[0].confirmed == ["3"]


def test_the_oldest_of_too_many_deliveries_are_forgotten(shards, clients):
    shards[0].is_down = True
    handles = [str(number) for number in range(DELIVERED_WAITING_COUNT_MAX + 10)]
    clients.note_delivered("broker-a", handles[:20])
    clients.keep()
    clients.note_delivered("broker-a", handles[20:])
    clients.keep()
    shards[0].is_down = False
    clients.keep()
    assert shards[0].confirmed == handles[10:]
    assert len(shards[0].kept) == -(-DELIVERED_WAITING_COUNT_MAX // DELIVERED_COUNT_MAX)


def test_a_clean_stop_tells_what_is_left(shards, clients):
    clients.note_delivered("broker-a", ["1"])
    clients.close()
    assert shards[0].confirmed == ["1"]


def consumer(client_id, subscription_count=0, group="group", caller=""):
    wanted = MessageFilter(tags="a" * 1_000)
    subscriptions = [TopicSubscription(topic=f"T{number}", filter=wanted) for number in range(subscription_count)]
    return Client(client_id=client_id, consumer_group=group, subscriptions=subscriptions, caller=caller)


def told(shards, monkeypatch):
    """The clients of each KeepClients of the first shard from now on."""
    calls, keep = [], shards[0].keep_clients

    def note(members, *rest):
        answer = keep(members, *rest)
        calls.append(list(members))
        return answer

    monkeypatch.setattr(shards[0], "keep_clients", note)
    return calls


def test_large_settings_of_one_client_silenced_all_clients(shards, clients, monkeypatch):
    """A KeepClients with them was above the service's limit of 4 MiB, so it failed, and no client lived any more."""
    calls = told(shards, monkeypatch)
    for number in range(100):
        clients.settle(consumer(f"large-{number}", 60), 3.0)
    clients.beat(consumer("honest"))
    clients.keep()
    named = [member.client_id for members in calls for member in members]
    assert named == [*(f"large-{number}" for number in range(100)), "honest"]
    for members in calls:
        assert sum(len(each.filter.tags) for member in members for each in member.subscriptions) <= KEEP_BYTES_MAX


def test_subscriptions_of_large_clients_have_room_together(shards, clients, monkeypatch):
    monkeypatch.setattr(clients_module, "LARGE_CLIENT_BYTES_MAX", 20_000)
    for name in ("a", "b", "c"):
        clients.settle(consumer(name, 8), 3.0)
    assert [len(clients.find(name).facts.subscriptions) for name in "abc"] == [8, 8, 0]
    clients.settle(consumer("small"), 3.0)
    clients.end("a", "", 1.0)
    clients.settle(consumer("c", 8), 3.0)
    assert [len(clients.find(name).facts.subscriptions) for name in "bc"] == [8, 8]


def memory_bytes():
    """What this process takes of the machine's memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_subscriptions_that_found_no_room_take_no_memory(clients, monkeypatch):
    """A message that is cleared keeps what its fields took: 80 MB of these here."""
    monkeypatch.setattr(clients_module, "LARGE_CLIENT_BYTES_MAX", 1)
    before = memory_bytes()
    for number in range(400):
        clients.settle(consumer(f"c{number}", 200), 3.0)
        clients.beat(consumer(f"d{number}", 200))
    assert memory_bytes() - before < 40 << 20


def test_clients_that_are_forgotten_do_not_collect_while_a_shard_is_away(shards, monkeypatch):
    clients = Clients(delivering_of(shards), count_max=2)
    for shard in shards:
        shard.is_down = True
    for number in range(5):
        clients.beat(consumer(f"c{number}"))
        clients.keep()
    for shard in shards:
        shard.is_down = False
    calls = told(shards, monkeypatch)
    clients.keep()
    assert [sorted(member.client_id for member in members) for members in calls] == [["c3", "c4"]]


def test_a_caller_that_invents_clients_loses_its_own_and_the_others_stay_known(shards):
    clients = Clients(delivering_of(shards), count_max=100)
    clients.settle(consumer("victim", 1, caller="identity:victim"), 3.0)
    for number in range(500):
        clients.beat(consumer(f"c{number}", caller="identity:attacker"))
    assert clients.find("victim").facts.subscriptions
    assert [clients.find(f"c{number}") is not None for number in (489, 490, 499)] == [False, True, True]


SET = group_settings("g", delivery_attempts_max=3, consume_enabled=False, is_set=True)


@pytest.mark.parametrize("at", [0, 1])
def test_a_heartbeat_brings_a_group_its_settings_in_a_shard_where_nobody_has_set_them(shards, clients, at):
    shards[at].groups["g"] = SET
    clients.settle(consumer("c", group="g"), 3.0)
    clients.keep()
    assert [shard.groups["g"] for shard in shards] == [SET, SET]
    assert clients.group(consumer("c", group="g")) == SET


def test_settings_that_two_shards_have_are_left_as_they_are(shards, clients):
    others = group_settings("g", delivery_attempts_max=5, is_set=True)
    shards[0].groups["g"], shards[1].groups["g"] = SET, others
    clients.settle(consumer("c", group="g"), 3.0)
    clients.keep()
    assert [shard.groups["g"] for shard in shards] == [SET, others]


def test_the_settings_that_somebody_has_set_count_in_whatever_shard(shards, clients):
    shards[0].groups["g"] = SET
    assert clients.group(consumer("c", group="g")) == SET


def test_a_shard_that_takes_no_settings_gets_them_with_a_later_heartbeat(shards, clients):
    shards[0].groups["g"] = SET
    make, shards[1].make_group = shards[1].make_group, lambda *_: (_ for _ in ()).throw(ResourceBusyError("full"))
    clients.settle(consumer("c", group="g"), 3.0)
    clients.keep()
    assert "g" not in shards[1].groups
    shards[1].make_group = make
    clients.beat(consumer("c", group="g"))
    clients.keep()
    assert shards[1].groups["g"] == SET
