"""One group whose members come over remoting, RocketMQ's gRPC protocol and as PullConsumer, at two gateways."""

import contextlib
import random

import pytest

from reput_client import AdminClient
from services.rocketmq.codes import RequestCode
from tests.gateway.remoting.one_group import AnotherGateway, PoppingMember, PullingMember, RemotingMember, Seen
from tests.gateway.remoting.requests import (
    UNIQUE,
    V2,
    heartbeat,
    lock_body,
    properties,
    pull_fields,
    records,
    send_fields,
)
from tests.support.waiting import wait_for, wait_until

QUEUE_COUNT = 4


def told_of(client, group):
    """Whether a client is told that the members of the group have changed."""
    told = client.next_told()
    return (told.code, told.fields) == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})


@pytest.mark.parametrize("kind", ["remoting", "grpc", "pull"])
def test_a_member_that_joins_or_leaves_is_told_at_every_gateway(gateways, stack, kind):
    near, far = gateways
    group, topic = f"told-{kind}", f"Told-{kind}"
    stack.append(topic)
    seen = Seen()
    with contextlib.closing(near.client()) as one, contextlib.closing(far.client()) as two:
        for client, name in ((one, "one"), (two, "two")):
            client.call(RequestCode.HEART_BEAT, heartbeat(name, group, topic=topic))
        for client in (one, two):
            answer = client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
            assert answer.body == b'{"consumerIdList":["one","two"]}'
            # What is told of these two themselves comes before the answer, or soon.
            client.told.clear()
        for door in (near, far):
            member = {
                "remoting": lambda door=door: RemotingMember(door, group, topic, 1, "third", seen, 1),
                "grpc": lambda door=door: PoppingMember(door, group, topic, seen, 1),
                "pull": lambda door=door: PullingMember(door, group, topic, seen, 1),
            }[kind]().start()
            for count in (3, 2):

                def has_count(count=count):
                    answers = [
                        client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
                        for client in (one, two)
                    ]
                    return all(answer.body.count(b",") == count - 1 for answer in answers)

                wait_until(has_count, f"the group has {count} members")
                assert told_of(one, group)
                assert told_of(two, group)
                one.told.clear()
                two.told.clear()
                if count == 3:
                    member.stop()


@pytest.mark.parametrize("seed", range(2))
def test_members_of_three_doors_lose_no_message_of_their_group(gateways, stack, seed):
    dice = random.Random(seed)
    group, topic = f"three-{seed}", f"Three-{seed}"
    with AdminClient(stack.store.target) as admin:
        admin.create_topic(topic, queue_count=QUEUE_COUNT)
    seen, sent, numbers = Seen(), [], iter(range(1_000))

    def send(count):
        for _ in range(count):
            body = f"{topic}-{len(sent)}".encode()
            stack.store.append(topic, body, queue_id=dice.randrange(QUEUE_COUNT))
            sent.append(body)

    def join(kind):
        door, number = dice.choice(gateways), next(numbers)
        if kind == "remoting":
            return RemotingMember(door, group, topic, QUEUE_COUNT, f"r-{number}", seen, number).start()
        kinds = {"grpc": PoppingMember, "pull": PullingMember}
        return kinds[kind](door, group, topic, seen, number).start()

    members = {kind: join(kind) for kind in ("remoting", "grpc", "pull")}
    for _ in range(5):
        send(25)
        kind = dice.choice(list(members))
        members[kind].stop()
        send(10)
        members[kind] = join(kind)
        before = sum(seen.processed.values())
        wait_until(lambda before=before: sum(seen.processed.values()) > before, "the group goes on")
    extra = join("remoting")
    # A PullConsumer has its queues a while after it has joined.
    wait_until(lambda: send(4) or len(seen.by_door) == 3, lambda: f"only {set(seen.by_door)} got messages")
    wait_until(lambda: not seen.missing(sent), lambda: f"{seen.missing(sent)[:8]} of {len(sent)} are missing")
    for member in (extra, members["pull"], members["remoting"]):
        member.stop()
    wait_until(lambda: lag_of(stack, group, topic) == 0, lambda: f"the lag is {lag_of(stack, group, topic)}")
    members["grpc"].stop()
    assert extra.notice_count, "it was told of members"


def lag_of(stack, group, topic):
    """Messages of a topic that a group has not consumed: behind its positions, in flight, or waiting."""
    return sum(each.lag_count for each in stack.store.consumer_group(group).queues if each.topic == topic)


def test_a_queue_is_locked_for_one_member_of_all_gateways(gateways, stack):
    near, far = gateways
    group, topic = "locked-everywhere", "LockedEverywhere"
    stack.append(topic)
    with contextlib.closing(near.client()) as one, contextlib.closing(far.client()) as two:
        mine = one.call(RequestCode.LOCK_BATCH_MQ, lock_body("one", group, topic, 0))
        theirs = two.call(RequestCode.LOCK_BATCH_MQ, lock_body("two", group, topic, 0))
        assert (mine.body.count(topic.encode()), theirs.body) == (1, b'{"lockOKMQSet":[]}')
        one.call(RequestCode.UNLOCK_BATCH_MQ, lock_body("one", group, topic, 0))
        theirs = two.call(RequestCode.LOCK_BATCH_MQ, lock_body("two", group, topic, 0))
        assert theirs.body.count(topic.encode()) == 1


def test_members_whose_gateway_ends_keep_membership_locks_and_positions_at_another(stack, gateways, tmp_path):
    near, _ = gateways
    ending = AnotherGateway(tmp_path, broker_a=stack.store)
    group, topic = "moves-over", "MovesOver"
    stack.append(topic, count=5)
    beats = {name: heartbeat(name, group, topic=topic) for name in ("mover", "stayer")}
    position = {"consumerGroup": group, "topic": topic, "queueId": 0}
    with contextlib.closing(near.client()) as stayer:
        with contextlib.closing(ending.client()) as mover:
            for client, name in ((mover, "mover"), (stayer, "stayer")):
                assert client.call(RequestCode.HEART_BEAT, beats[name]).code == 0
            assert topic.encode() in mover.call(RequestCode.LOCK_BATCH_MQ, lock_body("mover", group, topic, 0)).body
            assert mover.call(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=3, **position).code == 0
            members = stayer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group).body
            stayer.told.clear()
            ending.close()
            # Nothing is rebalanced, and the queue stays locked, while the member is on its way.
            assert stayer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group).body == members
            theirs = stayer.call(RequestCode.LOCK_BATCH_MQ, lock_body("stayer", group, topic, 0))
            assert (members, theirs.body) == (b'{"consumerIdList":["mover","stayer"]}', b'{"lockOKMQSet":[]}')
        with contextlib.closing(near.client()) as mover:
            # A pull that comes before the heartbeat is answered, too.
            pulled = mover.call(RequestCode.PULL_MESSAGE, **pull_fields(topic, 3, consumerGroup=group, sysFlag=0))
            assert [record.queue_offset for record in records(pulled.body)] == [3, 4]
            assert mover.call(RequestCode.HEART_BEAT, beats["mover"]).code == 0
            assert topic.encode() in mover.call(RequestCode.LOCK_BATCH_MQ, lock_body("mover", group, topic, 0)).body
            assert mover.call(RequestCode.QUERY_CONSUMER_OFFSET, **position).fields["offset"] == "3"
            assert stayer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group).body == members
            assert stayer.told == []


def test_the_late_end_of_an_old_connection_leaves_a_member_that_is_at_another_gateway(gateways, stack):
    near, far = gateways
    group, topic = "connects-elsewhere", "ConnectsElsewhere"
    stack.append(topic)
    beats = {name: heartbeat(name, group, topic=topic) for name in ("mover", "passing", "stayer")}
    with contextlib.closing(near.client()) as stayer, contextlib.closing(near.client()) as mover:
        assert stayer.call(RequestCode.HEART_BEAT, beats["stayer"]).code == 0
        with contextlib.closing(far.client()) as old, contextlib.closing(far.client()) as passing:
            assert old.call(RequestCode.HEART_BEAT, beats["mover"]).code == 0
            assert mover.call(RequestCode.HEART_BEAT, beats["mover"]).code == 0
            assert passing.call(RequestCode.HEART_BEAT, beats["passing"]).code == 0
            old.close()
            # The ends of connections are told in their order.
            passing.close()
            wait_until(lambda: "passing" not in members_of(stack, group), "the member that passed by has gone")
        assert members_of(stack, group) == {"mover", "stayer"}


def test_a_group_with_locks_at_one_gateway_has_dead_letters_at_each(gateways, stack):
    near, far = gateways
    group, topic = "locks-far", "LocksFar"
    stack.append(topic)
    again = properties(UNIQ_KEY=UNIQUE, RETRY_TOPIC=topic, DELAY="1")
    sent_again = send_fields(f"%RETRY%{group}", queueId=0, reconsumeTimes=16, maxReconsumeTimes=16, properties=again)
    with contextlib.closing(near.client()) as one, contextlib.closing(far.client()) as two:
        assert one.call(RequestCode.HEART_BEAT, heartbeat("one", group, topic=topic)).code == 0
        assert topic.encode() in two.call(RequestCode.LOCK_BATCH_MQ, lock_body("two", group, topic, 0)).body
        assert one.call(V2, b"tried often enough", **sent_again).code == 0
        fields = pull_fields(f"%DLQ%{group}")
        letters = wait_for(lambda: records(one.call(RequestCode.PULL_MESSAGE, **fields).body) or None, "the letter")
        assert [letter.body for letter in letters] == [b"tried often enough"]


def members_of(stack, group):
    """The members of a group, as its shard knows them."""
    return {member.client_id for member in stack.store.consumer_group(group).members}
