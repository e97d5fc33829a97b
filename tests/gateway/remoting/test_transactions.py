"""Transactions over the door: verdicts and checks as those of RocketMQ 5.5.0."""

import contextlib
import itertools
import json

import pytest

from gateway.remoting.topics import document_of
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import ONEWAY
from store.format.message_id import decode_offset_msg_id
from store.format.record import decode_record
from tests.gateway.remoting.requests import UNIQUE, properties
from tests.gateway.remoting.test_members import beat
from tests.gateway.remoting.test_sends import pulled, send

COMMIT, ROLLBACK = 8, 12

_topics = itertools.count()


@pytest.fixture
def topic():
    """A new one for each test: they share a store."""
    return f"transacted-{next(_topics)}"


def send_half(client, topic, body=b"half", group="tx", **more):
    answer = send(
        client,
        topic,
        body,
        sysFlag=4,
        producerGroup=group,
        properties=properties(UNIQ_KEY=UNIQUE, TRAN_MSG="true", PGROUP=group, **more),
    )
    assert answer.code == 0
    return answer


def verdict_fields(answer, verdict, group="tx", **more):
    return {
        "producerGroup": group,
        "tranStateTableOffset": answer.fields["queueOffset"],
        "commitLogOffset": decode_offset_msg_id(answer.fields["msgId"])[1],
        "commitOrRollback": verdict,
        "fromTransactionCheck": "false",
        "msgId": UNIQUE,
        "transactionId": answer.fields["transactionId"],
    } | more


def end(client, answer, verdict, **more):
    return client.call(RequestCode.END_TRANSACTION, **verdict_fields(answer, verdict, **more))


def test_a_committed_message_is_delivered_and_one_rolled_back_is_not(stack, client, topic):
    rolled_back = send_half(client, topic, b"no")
    committed = send_half(client, topic, b"yes")
    assert committed.fields["transactionId"] == UNIQUE
    assert end(client, rolled_back, ROLLBACK).code == 0
    assert end(client, committed, COMMIT).code == 0
    (record,) = pulled(stack, topic)
    assert (record.body, record.queue_offset, record.unique_key) == (b"yes", 0, UNIQUE)


def test_an_unknown_verdict_leaves_the_transaction_as_it_is(stack, client, topic):
    half = send_half(client, topic)
    assert end(client, half, 0).code == 0
    client.send(
        client.request(RequestCode.END_TRANSACTION, b"", ONEWAY, **verdict_fields(half, COMMIT))
    )  # as Java's clients do
    (record,) = pulled(stack, topic)
    assert record.body == b"half"


def test_a_verdict_of_another_group_or_offset_is_refused(client, topic):
    half = send_half(client, topic)
    wrong = end(client, half, COMMIT, producerGroup="other")
    assert (wrong.code, wrong.remark) == (ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    place = int(half.fields["queueOffset"]) + 1
    wrong = end(client, half, COMMIT, tranStateTableOffset=place)
    assert (wrong.code, wrong.remark) == (ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    absent = end(client, half, COMMIT, commitLogOffset=1 << 40)
    assert (absent.code, absent.remark) == (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
    assert end(client, half, COMMIT).code == 0
    assert end(client, half, COMMIT).code == ResponseCode.SYSTEM_ERROR


def test_a_producer_of_the_group_is_asked_for_a_verdict(stack, client, topic):
    group = f"asked-{topic}"
    half = send_half(client, topic, group=group, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    with contextlib.closing(stack.client()) as producer:  # it starts after the half message was sent
        beat(producer, "p1", producers=(group,))
        check = producer.next_told()
    assert (check.code, check.is_oneway) == (RequestCode.CHECK_TRANSACTION_STATE, True)
    message = decode_record(check.body)
    assert (message.topic, message.queue_id, message.body, message.unique_key) == (topic, 1, b"half", UNIQUE)
    assert message.properties["PGROUP"] == group
    assert check.fields["msgId"] == check.fields["transactionId"] == UNIQUE
    places = {name: check.fields[name] for name in ("commitLogOffset", "tranStateTableOffset")}
    said = places | {"fromTransactionCheck": "true"}
    assert end(client, half, COMMIT, producerGroup=group, **said).code == 0
    (record,) = pulled(stack, topic)
    assert record.body == b"half"


def test_half_of_a_surrogate_in_a_heartbeat_switched_off_the_checks_of_a_gateway(stack, client, topic):
    """No message of protobuf takes one, so what names the producers of all clients could not be made."""
    assert document_of(b'{"a":"\\uD83D","b":["\\ud83d\\ude00"],"\\udead":1}') == {"a": "?", "b": ["\U0001f600"], "?": 1}
    group = f"asked-{topic}"
    with contextlib.closing(stack.client()) as other:
        said = {"clientID": "half", "producerDataSet": [{"groupName": "\ud83d"}]}
        assert other.call(RequestCode.HEART_BEAT, json.dumps(said).encode()).code == 0
        beat(client, "p1", producers=(group,))
        with contextlib.closing(stack.client()) as sender:
            send_half(sender, topic, group=group, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
        check = client.next_told()
    assert decode_record(check.body).topic == topic


def test_a_producer_at_another_gateway_was_not_asked(gateways, client, topic):
    """A gateway knew the topics of its producers from what was sent through it, and from what waited when they came."""
    _, far = gateways
    group = f"far-{topic}"
    with contextlib.closing(far.client()) as producer:
        beat(producer, "p1", producers=(group,))
        half = send_half(client, topic, group=group, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
        check = producer.next_told()
        assert check.code == RequestCode.CHECK_TRANSACTION_STATE
        places = {name: check.fields[name] for name in ("commitLogOffset", "tranStateTableOffset")}
        said = places | {"fromTransactionCheck": "true"}
        assert end(producer, half, COMMIT, producerGroup=group, **said).code == 0
