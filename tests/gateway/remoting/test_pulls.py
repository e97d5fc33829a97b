"""Pulls over the door: codes, header fields and records as RocketMQ 5.5.0 answers them."""

import functools
import itertools
import time

import pytest

from services.rocketmq.codes import RequestCode, ResponseCode
from store.compiled import loading
from store.format.topic import HALF_TOPIC
from tests.gateway.remoting.requests import HAS_SUBSCRIPTION, MAY_WAIT, pull_fields, records
from tests.gateway.remoting.test_transactions import send_half
from tests.support.waiting import wait_for

TOOLS_GROUP = "TOOLS_CONSUMER"  # RocketMQ's MixAll.TOOLS_CONSUMER_GROUP

PULL, LITE_PULL = RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE

_topics = itertools.count()


@pytest.fixture
def topic():
    """A new one for each test: they share a store."""
    return f"pulled-{next(_topics)}"


def pull(client, topic, offset=0, code=PULL, **more):
    return client.call(code, **pull_fields(topic, offset, **more))


def offsets(answer):
    names = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")
    return [int(answer.fields[name]) for name in names]


@pytest.mark.parametrize("code", [PULL, LITE_PULL])
@pytest.mark.parametrize("count_max", [32, 2])
def test_a_pull_brings_the_records_of_the_log(stack, client, topic, code, count_max):
    receipts = stack.append(topic, 3, tags="A", keys=["k"], properties={"p": "v"})
    answer = pull(client, topic, code=code, maxMsgNums=count_max)
    found = records(answer.body)
    expected = receipts[:count_max]
    assert answer.code == 0
    assert answer.remark == "FOUND"
    assert offsets(answer) == [len(expected), 0, 3, 0]
    assert [record.commit_log_offset for record in found] == [receipt.commit_log_offset for receipt in expected]
    assert [record.queue_offset for record in found] == list(range(len(expected)))
    assert all(record.is_guarded for record in found), "they are the log's own bytes"


def test_records_were_made_again_from_messages_where_no_kernel_is_compiled(stack, client, topic, request):
    stack.append(topic, 3)
    request.addfinalizer(functools.partial(loading.switch, loading.switch(loading.OFF)))
    assert [record.is_guarded for record in records(pull(client, topic).body)] == [True] * 3


def test_a_pull_at_the_end_is_answered_at_once_without_the_bit_to_wait(stack, client, topic):
    stack.append(topic, 2)
    answer = pull(client, topic, 2, suspendTimeoutMillis=20_000)
    assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
    assert offsets(answer) == [2, 0, 2, 0]


def test_a_pull_that_waits_is_answered_when_a_message_arrives(stack, client, topic):
    stack.append(topic)
    request = client.request(
        PULL, **pull_fields(topic, 1, sysFlag=HAS_SUBSCRIPTION | MAY_WAIT, suspendTimeoutMillis=20_000)
    )
    client.send(request)
    assert client.call(999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED  # others go on meanwhile
    receipt = stack.store.append(topic, b"later", queue_id=0)
    answer = client.receive()
    assert answer.opaque == request.opaque
    (record,) = records(answer.body)
    assert record.commit_log_offset == receipt.commit_log_offset


def test_a_pull_that_waits_ends_with_its_time(stack, client, topic):
    stack.append(topic)
    began = time.monotonic()
    answer = pull(client, topic, 1, sysFlag=HAS_SUBSCRIPTION | MAY_WAIT, suspendTimeoutMillis=200)
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert offsets(answer) == [1, 0, 1, 0]
    assert time.monotonic() - began >= 0.2


def test_a_position_outside_the_queue_is_moved(stack, client, topic):
    stack.append(topic, 2)
    answer = pull(client, topic, 7)
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY")
    assert offsets(answer) == [2, 0, 2, 0]


def test_a_filter_that_takes_nothing_sends_the_client_on(stack, client, topic):
    stack.append(topic, 3, tags="A")
    answer = pull(client, topic, subscription="B")
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert offsets(answer) == [3, 0, 3, 0]


@pytest.mark.parametrize(
    ("kind", "expression"), [("TAG", "B || C"), ("SQL92", "TAGS = 'B' OR TAGS = 'C'"), ("TAG", "B||C")]
)
def test_a_filter_brings_the_records_that_it_takes(stack, client, topic, kind, expression):
    for tag in "ABAC":
        stack.append(topic, tags=tag)
    found = records(pull(client, topic, subscription=expression, expressionType=kind).body)
    assert [record.tags for record in found] == ["B", "C"]
    assert all(record.is_guarded for record in found)


def test_what_cannot_be_pulled_is_refused_by_its_code(stack, client, topic):
    assert pull(client, "nowhere").code == ResponseCode.TOPIC_NOT_EXIST
    stack.append(topic)
    assert pull(client, topic, queueId=999).code == ResponseCode.INVALID_PARAMETER
    bad = pull(client, topic, subscription="a = ", expressionType="SQL92")
    assert bad.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    unknown = pull(client, topic, sysFlag=0, consumerGroup="nobody")
    assert (unknown.code, unknown.remark) == (
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        "the consumer's group info not exist",
    )


@pytest.mark.parametrize("topic", [HALF_TOPIC, "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_a_group_could_pull_what_the_broker_keeps_in_its_topics(client, topic):
    send_half(client, "of-halves")
    assert pull(client, topic, consumerGroup="pullers").code == ResponseCode.INVALID_PARAMETER
    if topic == HALF_TOPIC:  # mqadmin looks
        looked = wait_for(
            lambda: records(pull(client, topic, consumerGroup=TOOLS_GROUP).body) or None, "the half message"
        )
        assert looked[0].topic == HALF_TOPIC


@pytest.mark.parametrize("topic", ["DefaultCluster", "broker-a", "SELF_TEST_TOPIC"])  # nobody sends to them here
def test_a_topic_that_every_broker_has_could_not_be_pulled_before_its_first_message(client, topic):
    empty = pull(client, topic, consumerGroup="early")
    assert (empty.code, empty.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
    assert offsets(empty) == [0, 0, 0, 0]
    waited = time.monotonic()
    assert pull(client, topic, sysFlag=HAS_SUBSCRIPTION | MAY_WAIT, suspendTimeoutMillis=300).code == empty.code
    assert time.monotonic() - waited >= 0.3
    queue = {"topic": topic, "queueId": 0}
    assert client.call(RequestCode.GET_MAX_OFFSET, **queue).fields == {"offset": "0"}
    assert client.call(RequestCode.GET_MIN_OFFSET, **queue).fields == {"offset": "0"}
    assert client.call(RequestCode.GET_EARLIEST_MSG_STORETIME, **queue).fields == {"timestamp": "-1"}
    by_time = client.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=0, **queue)
    assert by_time.fields == {"offset": "0"}
    begin = client.call(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="early", **queue)
    assert begin.fields == {"offset": "0"}
    far = client.call(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=9_999)
    assert far.code == ResponseCode.TOPIC_NOT_EXIST


def test_an_end_of_a_connection_ends_the_pulls_that_wait(stack, client, topic):
    stack.append(topic)
    with_pull = stack.client()
    with_pull.send(
        with_pull.request(
            PULL, **pull_fields(topic, 1, sysFlag=HAS_SUBSCRIPTION | MAY_WAIT, suspendTimeoutMillis=20_000)
        )
    )
    with_pull.close()
    stack.store.append(topic, b"later", queue_id=0)
    assert [record.queue_offset for record in records(pull(client, topic, 0).body)][:1] == [0]
