"""Heartbeats, members, locks and notices over the door, with the answers of RocketMQ 5.5.0."""

import contextlib
import itertools
import json
import threading
from unittest.mock import Mock

import pytest

from gateway.remoting.door_clients import DoorClient, DoorClients, Membership
from gateway.remoting.members import Members
from services.rocketmq.codes import RequestCode, ResponseCode
from tests.gateway.remoting.requests import heartbeat, lock_body, pull_fields, records
from tests.support.waiting import wait_until

_groups = itertools.count()
KEEP_SECONDS = 2.0  # of a consumer service that does not answer


@pytest.fixture
def group():
    """A new one for each test: they share a store."""
    return f"members-{next(_groups)}"


def beat(client, *arguments, **fields):
    return client.call(RequestCode.HEART_BEAT, heartbeat(*arguments, **fields))


def members(client, group):
    answer = client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
    return json.loads(answer.body)["consumerIdList"] if answer.code == 0 else answer


def test_a_heartbeat_makes_a_member_and_the_retry_topic(client, group):
    nobody = members(client, group)
    assert (nobody.code, nobody.remark) == (ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
    answer = beat(client, "c1", group)
    assert (answer.code, answer.fields) == (0, {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})
    assert members(client, group) == ["c1"]
    fields = pull_fields(f"%RETRY%{group}", consumerGroup=group)
    assert client.call(RequestCode.PULL_MESSAGE, **fields).code == ResponseCode.PULL_NOT_FOUND


def test_one_connection_was_as_many_members_as_it_had_names(stack, client, group):
    """A broker has one client for a connection. The others were members for two minutes, and had queues that nobody read."""
    with contextlib.closing(stack.client()) as other:
        for number in range(5):
            assert beat(other, f"c{number}", group).code == 0
        assert members(client, group) == ["c4"]
        assert beat(other, "c4", f"{group}-next").code == 0
        assert members(client, group).code == ResponseCode.SYSTEM_ERROR
        assert members(client, f"{group}-next") == ["c4"]
        assert beat(client, "c4", f"{group}-next").code == 0  # by another connection, too
        assert beat(other, "c5", f"{group}-next").code == 0
        assert members(client, f"{group}-next") == ["c4", "c5"]


def test_a_heartbeat_with_newer_versions_only_waits_for_no_service(stack, client, group, monkeypatch):
    """A client of 5.x whose heartbeat is under way sends no other one for 30 s, and pulls nothing until then."""
    topic = f"{group}-topic"
    stack.append(topic)
    assert beat(client, "c1", group, topic=topic, version=1).code == 0
    goes_on, has_ended = threading.Event(), threading.Event()
    kept = Members._keep

    def keep(members, facts):
        goes_on.wait(KEEP_SECONDS)
        has_ended.set()
        kept(members, facts)

    monkeypatch.setattr(Members, "_keep", keep)
    try:
        assert beat(client, "c1", group, topic=topic, version=2).code == 0
        pulled = client.call(
            RequestCode.PULL_MESSAGE, **pull_fields(topic, consumerGroup=group, sysFlag=0, subVersion=2)
        )
        assert (pulled.code, has_ended.is_set()) == (0, False)
    finally:
        goes_on.set()


def test_members_are_told_of_those_that_come_and_go(stack, client, group):
    beat(client, "c1", group)
    with contextlib.closing(stack.client()) as other:
        beat(other, "c2", group)
        assert members(client, group) == ["c1", "c2"]
        client.told.clear()  # of itself
        beat(other, "c2", group, expression="other")
        told = client.next_told()
        assert (told.code, told.fields, told.is_oneway) == (
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            {"consumerGroup": group},
            True,
        )
    wait_until(lambda: members(client, group) == ["c1"], "the end of a connection ends its member")


@pytest.mark.parametrize("bad", ["a/../../b", "", "g" * 300])
def test_a_heartbeat_that_is_refused_makes_no_member(stack, client, group, bad):
    assert beat(client, "c1", group, bad).code == ResponseCode.INVALID_PARAMETER
    assert beat(client, "c1", bad).code == ResponseCode.INVALID_PARAMETER
    assert members(client, group).code == ResponseCode.SYSTEM_ERROR
    assert members(client, bad).code == (
        ResponseCode.INVALID_PARAMETER if len(bad) > 255 else ResponseCode.SYSTEM_ERROR
    )
    assert beat(client, "c1", group).code == 0
    assert beat(client, "c1", bad).code == ResponseCode.INVALID_PARAMETER
    assert members(client, group) == ["c1"]  # what it said before holds


def test_a_client_without_heartbeats_is_no_member_although_its_connection_stays():
    now = 0.0
    clients = DoorClients(clock=lambda: now)
    silent, alive = Mock(is_closed=False), Mock(is_closed=False)
    for connection, name in ((silent, "c1"), (alive, "c2")):
        membership = {"g": Membership("g")}
        clients.settle(DoorClient(connection, name, "JAVA", 479, frozenset(("pg",)), membership))
    now = 100.0
    clients.settle(clients.of(alive))
    now = 119.0
    assert len(clients.members("g")) == 2
    now = 121.0  # RocketMQ's CHANNEL_EXPIRED_TIMEOUT is 120 s
    for found in (clients.members("g"), clients.producers("pg"), clients.all()):
        assert [each.client_id for each in found] == ["c2"]
    assert clients.named("c1") == []
    clients.settle(clients.of(silent))
    assert len(clients.members("g")) == 2


def test_a_client_that_unregisters_is_no_member(stack, client, group):
    with contextlib.closing(stack.client()) as other:
        beat(client, "c1", group)
        beat(other, "c2", group)
        answer = client.call(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup=group)
        assert answer.code == 0
        assert members(client, group) == ["c2"]


def test_a_client_with_another_connection_stays_a_member(stack, client, group):
    beat(client, "c1", group)
    with contextlib.closing(stack.client()) as again:
        beat(again, "c1", group)
    assert client.call(999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert members(client, group) == ["c1"]


def test_a_pull_takes_its_subscription_from_the_heartbeat(stack, client, group):
    topic = f"of-{group}"
    stack.append(topic, tags="A")
    stack.append(topic, tags="B")
    beat(client, "c1", group, topic=topic, expression="B", version=7)
    fields = pull_fields(topic, consumerGroup=group, sysFlag=0, subVersion=7)
    found = client.call(RequestCode.PULL_MESSAGE, **fields)
    assert [record.tags for record in records(found.body)] == ["B"]
    newer = client.call(RequestCode.PULL_MESSAGE, **fields | {"subVersion": "8"})
    assert (newer.code, newer.remark) == (
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        "the consumer's subscription not latest",
    )
    with contextlib.closing(stack.client()) as silent:
        assert [record.tags for record in records(silent.call(RequestCode.PULL_MESSAGE, **fields).body)] == ["B"]


def test_a_short_heartbeat_keeps_the_subscriptions(stack, client, group):
    topic = f"of-{group}"
    stack.append(topic, tags="A")
    beat(client, "c1", group, topic=topic, expression="B", version=7)
    short = heartbeat("c1", group, heartbeatFingerprint=5, withoutSub=True)
    answer = client.call(RequestCode.HEART_BEAT, short.replace(b'"topic": "T"', b'"topic": ""'))
    assert answer.fields["IS_SUB_CHANGE"] == "false"
    fields = pull_fields(topic, consumerGroup=group, sysFlag=0, subVersion=7)
    assert client.call(RequestCode.PULL_MESSAGE, **fields).code == ResponseCode.PULL_RETRY_IMMEDIATELY


def locked(answer):
    assert answer.code == 0
    rows = json.loads(answer.body)["lockOKMQSet"]
    assert all(set(row) == {"topic", "brokerName", "queueId"} for row in rows)
    return sorted(row["queueId"] for row in rows)


def test_a_queue_is_locked_by_one_member_at_a_time(stack, client, group):
    topic = f"of-{group}"
    stack.append(topic)
    lock, unlock = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
    assert locked(client.call(lock, lock_body("c1", group, topic, 0, 1))) == [0, 1]
    assert locked(client.call(lock, lock_body("c2", group, topic, 0, 1, 2))) == [2]
    assert locked(client.call(lock, lock_body("c1", group, topic, 0))) == [0]
    assert client.call(unlock, lock_body("c1", group, topic, 0)).code == 0
    assert locked(client.call(lock, lock_body("c2", group, topic, 0, 1))) == [0]
    assert locked(client.call(lock, lock_body("c1", group, "nowhere", 0))) == []


def test_the_end_of_a_connection_leaves_its_locks(stack, client, group):
    topic = f"of-{group}"
    stack.append(topic)
    with contextlib.closing(stack.client()) as other:
        beat(other, "c2", group)
        assert locked(other.call(RequestCode.LOCK_BATCH_MQ, lock_body("c2", group, topic, 0))) == [0]
    beat(client, "c1", group)
    wait_until(lambda: members(client, group) == ["c1"])
    assert locked(client.call(RequestCode.LOCK_BATCH_MQ, lock_body("c1", group, topic, 0, 1))) == [1]


@pytest.mark.parametrize(
    ("kind", "text", "code"),
    [
        ("TAG", "A || B", 0),
        ("SQL92", "a > 5 AND TAGS IS NOT NULL", 0),
        ("SQL92", "a > ", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
def test_a_filter_is_checked_before_a_consumer_starts(client, kind, text, code):
    subscription = {"topic": "T", "subString": text, "expressionType": kind, "subVersion": 1}
    body = {"clientId": "c1", "group": "g", "subscriptionData": subscription}
    assert client.call(RequestCode.CHECK_CLIENT_CONFIG, json.dumps(body).encode()).code == code


def test_a_body_that_is_none_is_told(client):
    answer = client.call(RequestCode.HEART_BEAT, b"")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "JSON" in answer.remark
    assert beat(client, "").code == ResponseCode.INVALID_PARAMETER
