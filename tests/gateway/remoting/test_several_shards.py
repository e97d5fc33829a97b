"""A gateway before two shards: each has a door of its own, and one group has the messages of both."""

import contextlib

import pytest

import reput_embedded
from reput_client import AdminClient
from services.rocketmq.codes import RequestCode, ResponseCode
from tests.gateway.remoting.one_group import AnotherGateway, PoppingMember, RemotingMember, Seen
from tests.gateway.remoting.requests import V2, lock_body, send_fields
from tests.support.waiting import wait_until

SHARDS = ("broker-a", "broker-b")
QUEUE_COUNT = 2


@pytest.fixture
def other_store(tmp_path):
    with contextlib.closing(reput_embedded.open(tmp_path / "b", settings={"REPUT_BROKER_NAME": "broker-b"})) as store:
        yield store


@pytest.fixture
def gateway(stack, other_store, tmp_path):
    with contextlib.closing(AnotherGateway(tmp_path, broker_a=stack.store, broker_b=other_store)) as gateway:
        yield gateway


def test_a_group_has_the_messages_of_each_shard_and_one_that_dies_stops_only_its_own_door(gateway, other_store):
    group, topic, seen, sent = "of-both", "OfBoth", Seen(), []
    with AdminClient(gateway.target) as admin:
        admin.create_topic(topic, queue_count=QUEUE_COUNT)
    doors = [gateway.door(shard) for shard in SHARDS]
    members = [RemotingMember(door, group, topic, QUEUE_COUNT, "client", seen, 1).start() for door in doors]
    members.append(PoppingMember(gateway, group, topic, seen, 2).start())
    with contextlib.closing(doors[0].client()) as one, contextlib.closing(doors[1].client()) as two:
        # A queue of the same number is another one in each shard.
        for client, name in ((one, "one"), (two, "two")):
            assert topic.encode() in client.call(RequestCode.LOCK_BATCH_MQ, lock_body(name, "lockers", topic, 0)).body
        for number in range(40):
            for client, shard in zip((one, two), SHARDS, strict=True):
                sent.append(f"{shard} {number}".encode())
                assert client.call(V2, sent[-1], **send_fields(topic, queueId=number % QUEUE_COUNT)).code == 0
        wait_until(lambda: not seen.missing(sent), lambda: f"{seen.missing(sent)[:8]} are missing")
        for member in members:
            member.stop()
        other_store.close()
        assert one.call(V2, b"alive", **send_fields(topic)).code == 0
        assert two.call(V2, b"dead", **send_fields(topic)).code == ResponseCode.SERVICE_NOT_AVAILABLE
