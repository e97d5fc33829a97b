"""Requests that no client sends: each is answered with a code, and the door goes on."""

import contextlib
import json
import random
import string

import pytest

from gateway.remoting.fair_threads import WORK_COUNT_MAX
from services.rocketmq.codes import RequestCode, ResponseCode
from tests.gateway.remoting.requests import V2, heartbeat, lock_body, pull_fields, send_fields
from tests.support.seeds import seeds

ROUND_COUNT = 300
NAMES = (
    "topic",
    "queueId",
    "queueOffset",
    "sysFlag",
    "commitLogOffset",
    "consumerGroup",
    "group",
    "offset",
    "a",
    "b",
    "e",
)
VALUES = (
    "",
    "-1",
    "0",
    str(1 << 31),
    str(1 << 63),
    str(1 << 70),
    "nan",
    "true",
    "T" * 300,
    "%RETRY%g",
    "a/b",
    "\u0001",
    "名",
)
BODIES = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b'{"clientID":7}',
    b'{"clientID":"c","consumerDataSet":[null,7,{"groupName":"g"}]}',
    b"\0" * 64,
)
ACKED = {"c": "g", "t": "hostile", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 0, "it": 0, "b": "AQ=="}


def codes():
    to_clients = (RequestCode.CHECK_TRANSACTION_STATE, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    return [code for code in RequestCode if code not in to_clients]


def some_request(chance):
    """A request that is nearly one, or none at all."""
    fields = chance.choice(
        ({}, pull_fields("hostile"), send_fields("hostile"), {"consumerGroup": "g", "topic": "hostile", "queueId": 0})
    )
    fields = dict(fields)
    for _ in range(chance.randrange(4)):
        fields[chance.choice([*NAMES, *fields])] = chance.choice(VALUES)
    for name in [name for name in fields if chance.random() < 0.1]:
        del fields[name]
    body = chance.choice((*BODIES, heartbeat("c", "g"), lock_body("c", "g", "hostile", 0)))
    if body and chance.random() < 0.5:
        at = chance.randrange(len(body))
        body = body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]
    fields.pop("suspendTimeoutMillis", None)
    return fields, body


@pytest.mark.parametrize("seed", seeds(6, short=2))
def test_any_request_is_answered_and_the_door_goes_on(stack, client, seed):
    chance = random.Random(seed)
    for _ in range(ROUND_COUNT):
        code = chance.choice([*codes(), chance.randrange(1 << 31)])
        fields, body = some_request(chance)
        answer = client.call(code, body, **fields)
        assert 0 <= answer.code < 1_000, (code, fields, body, answer)
        assert "Error(" not in answer.remark, (code, fields, body, answer.remark)
    assert client.call(999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_a_client_has_its_share_of_the_threads(stack, client):
    """Each of more requests than its half of the places is answered, and so are those of others meanwhile."""
    requests = [
        client.request(RequestCode.QUERY_CONSUMER_OFFSET, topic=f"t-{n}", queueId=0, consumerGroup="g")
        for n in range(WORK_COUNT_MAX // 2 + 200)
    ]
    client.send(*requests)
    with contextlib.closing(stack.client()) as other:
        assert other.call(V2, b"x", **send_fields("fair")).code == 0
    answers = {client.receive().opaque for _ in requests}
    assert answers == {request.opaque for request in requests}


def test_names_that_are_too_long_make_no_group(client):
    long_name = "".join(random.Random(1).choices(string.ascii_letters, k=5_000))
    refused = client.call(RequestCode.HEART_BEAT, heartbeat("c", long_name))
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert client.call(RequestCode.HEART_BEAT, heartbeat("c" * 256, "g")).code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (RequestCode.LOCK_BATCH_MQ, lock_body("c" * 256, "g", "hostile", 0)),
        (RequestCode.LOCK_BATCH_MQ, lock_body("c", "g" * 256, "hostile", 0)),
        (RequestCode.UNLOCK_BATCH_MQ, lock_body("c", "g", "t" * 301, 0)),
        (RequestCode.CHECK_CLIENT_CONFIG, {"group": "g" * 256}),
        (RequestCode.CHECK_CLIENT_CONFIG, {"group": "g", "subscriptionData": {"topic": "t" * 301}}),
        (RequestCode.QUERY_ASSIGNMENT, {"topic": "hostile", "consumerGroup": "g", "clientId": "c" * 256}),
        (RequestCode.QUERY_ASSIGNMENT, {"topic": "hostile", "consumerGroup": "g" * 256, "clientId": "c"}),
        (RequestCode.SET_MESSAGE_REQUEST_MODE, {"topic": "t" * 301, "consumerGroup": "g", "mode": "POP"}),
        (RequestCode.BATCH_ACK_MESSAGE, {"acks": [ACKED | {"c": "g" * 256}]}),
        (RequestCode.BATCH_ACK_MESSAGE, {"acks": [ACKED | {"t": "t" * 301}]}),
        (RequestCode.HEART_BEAT, {"clientID": "c", "consumerDataSet": [{"groupName": "g", "messageModel": "m" * 256}]}),
    ],
)
def test_a_name_in_a_body_that_is_longer_than_any_is_refused(client, code, body):
    answer = client.call(code, body if isinstance(body, bytes) else json.dumps(body).encode())
    assert (answer.code, "characters: at most" in answer.remark) == (ResponseCode.INVALID_PARAMETER, True), answer


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", str(1 << 63), str(1 << 70), '"1e400"', "[]"])
def test_a_number_of_a_body_that_no_field_has_is_refused_without_an_error_in_the_log(client, caplog, number):
    for field in ("so", "q", "rq", "pt", "it"):
        body = json.dumps({"brokerName": "broker-a", "acks": [ACKED | {field: 0.5}]}).replace("0.5", number)
        assert client.call(RequestCode.BATCH_ACK_MESSAGE, body.encode()).code == ResponseCode.MESSAGE_ILLEGAL
    for field in ("readQueueNums", "writeQueueNums", "perm"):
        row = {"topicName": "hostile", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} | {field: 0.5}
        body = json.dumps({"topicConfigList": [row]}).replace("0.5", number)
        answer = client.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body.encode())
        assert answer.code == ResponseCode.INVALID_PARAMETER
    assert not [each for each in caplog.messages if "request.failed" in each]
