"""Polls of a group in a shard that does not know it, over a socket."""

import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from store.errors import GroupNotFoundError, ServiceUnavailableError
from tests.gateway.delivery.memory_delivery import MemoryDelivering
from tests.gateway.groups.memory_groups import MemoryGroups
from tests.gateway.rocketmq.consumers import GROUP, TOPIC, serving


@pytest.fixture
def near():
    return MemoryDelivering("broker-a")


@pytest.fixture
def far():
    """A shard where no group has begun."""
    delivering = MemoryDelivering("broker-b")
    delivering.begun = set()
    return delivering


class Keeper(MemoryGroups):
    """The groups of a shard that delivers from memory."""

    def __init__(self, delivering):
        super().__init__()
        self._delivering = delivering

    def commit(self, request, deadline):
        self._delivering.begun.add(request.consumer_group)
        return super().commit(request, deadline)


def test_a_poll_of_a_group_that_has_not_begun_in_a_shard_begins_there_and_goes_on(near, far):
    keeper = Keeper(far)
    far.store(TOPIC, b"m")
    with serving(near, far, keepers={"broker-a": MemoryGroups(), "broker-b": keeper}) as gateway:
        code, messages = gateway.consumer().receive(broker="broker-b")
        assert (code, [message.body for message in messages]) == (v2.OK, [b"m"])
        assert keeper.held == {(GROUP, TOPIC, 0): 0}
        assert [pop.known_only for pop in far.pops] == [True, False]
        far.store(TOPIC, b"n")
        gateway.consumer().receive(broker="broker-b")
        assert [pop.known_only for pop in far.pops] == [True, False, True], "a group that has begun costs one call"


def test_a_poll_hears_that_it_is_not_known_where_its_group_began(near, far):
    far.store(TOPIC, b"m")
    keeper, away = Keeper(far), MemoryGroups()
    away.failure = ServiceUnavailableError("it is away")
    with serving(near, far, keepers={"broker-a": away, "broker-b": keeper}) as gateway:
        code, messages = gateway.consumer().receive(broker="broker-b")
    assert (code, messages) == (v2.HA_NOT_AVAILABLE, [])
    assert keeper.held == {}


def test_a_gateway_with_one_shard_asks_nothing_more(far):
    far.store(TOPIC, b"m")
    with serving(far) as gateway:
        assert gateway.consumer().receive(broker="broker-b")[0] == v2.OK
    assert [pop.known_only for pop in far.pops] == [False]


class Forgetful(MemoryDelivering):
    """A shard that says of every pop that it does not know the group."""

    def pop(self, question, seconds, then):
        self.pops.append(question)
        then(GroupNotFoundError("unknown", beginsAtEnd="false"))


def test_a_shard_that_does_not_know_a_group_it_was_told_of_is_not_asked_for_ever(near):
    forgetful = Forgetful("broker-b")
    with serving(near, forgetful, keepers={"broker-a": MemoryGroups(), "broker-b": MemoryGroups()}) as gateway:
        code, messages = gateway.consumer().receive(broker="broker-b")
    assert (code, messages) == (v2.CONSUMER_GROUP_NOT_FOUND, [])
    assert [pop.known_only for pop in forgetful.pops] == [True, False]
