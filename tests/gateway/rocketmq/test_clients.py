"""What a gateway tells the shards of its clients, without a socket: the deliveries that they have."""

import pytest

from gateway.delivery.shards import DeliveryShards
from gateway.delivery.timers import Timers
from gateway.delivery.waiting_room import WaitingRoom
from gateway.rocketmq.clients import DELIVERED_COUNT_MAX, DELIVERED_WAITING_COUNT_MAX, Clients
from store.errors import StoreReadOnlyError
from tests.gateway.delivery.memory_delivery import MemoryDelivering


@pytest.fixture
def shards():
    return MemoryDelivering("broker-a"), MemoryDelivering("broker-b")


@pytest.fixture
def clients(shards):
    delivering = DeliveryShards(WaitingRoom(Timers()))
    delivering.keep(shards)
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


def test_deliveries_that_a_shard_refuses_are_forgotten(shards, clients, monkeypatch):
    def refuse(*_):
        raise StoreReadOnlyError("only read")

    with monkeypatch.context() as patch:
        patch.setattr(shards[0], "keep_clients", refuse)
        clients.note_delivered("broker-a", ["1"])
        clients.keep()
    clients.keep()
    assert shards[0].confirmed == []


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
