"""Positions of groups and queues over the door, with the answers of RocketMQ 5.5.0."""

import pytest

from services.rocketmq.codes import RequestCode, ResponseCode

TOPIC = "positions"


def ask(client, code, topic=TOPIC, **fields):
    return client.call(code, topic=topic, **{"queueId": 0, **fields})


def test_a_queue_tells_its_ends_and_the_position_of_a_time(stack, client):
    first, *_ = stack.append("ends", 3)

    assert ask(client, RequestCode.GET_MIN_OFFSET, "ends").fields == {"offset": "0"}
    assert ask(client, RequestCode.GET_MAX_OFFSET, "ends").fields == {"offset": "3"}
    millis = int(first.store_time.timestamp() * 1000)
    assert ask(client, RequestCode.GET_EARLIEST_MSG_STORETIME, "ends").fields == {"timestamp": str(millis)}
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert ask(client, search, "ends", timestamp=0).fields == {"offset": "0"}
    assert ask(client, search, "ends", timestamp=(1 << 63) - 1).fields == {"offset": "3"}
    assert ask(client, search, "ends", timestamp=(1 << 63) - 1, boundaryType="UPPER").fields == {"offset": "2"}


def test_a_position_is_what_was_committed(stack, client):
    stack.append(TOPIC)
    group = {"consumerGroup": "committing"}

    young = ask(client, RequestCode.QUERY_CONSUMER_OFFSET, **group)
    assert (young.code, young.fields) == (0, {"offset": "0"})
    none = ask(client, RequestCode.QUERY_CONSUMER_OFFSET, setZeroIfNotFound="false", **group)
    assert none.code == ResponseCode.QUERY_NOT_FOUND
    assert ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=1, **group).code == 0
    assert ask(client, RequestCode.QUERY_CONSUMER_OFFSET, **group).fields == {"offset": "1"}


def test_an_empty_queue_begins_and_ends_at_zero(stack, client):
    stack.append("empty", queue_id=1)

    assert ask(client, RequestCode.GET_MAX_OFFSET, "empty").fields == {"offset": "0"}
    assert ask(client, RequestCode.GET_EARLIEST_MSG_STORETIME, "empty").fields == {"timestamp": "-1"}
    of_group = {"consumerGroup": "new"}
    none = ask(client, RequestCode.QUERY_CONSUMER_OFFSET, "empty", setZeroIfNotFound="false", **of_group)
    assert none.code == ResponseCode.QUERY_NOT_FOUND
    assert ask(client, RequestCode.QUERY_CONSUMER_OFFSET, "empty", **of_group).fields == {"offset": "0"}


def test_a_message_between_two_questions_of_a_new_group_was_skipped(stack, client):
    """A client that begins at the end asks for the group's position first, and for the end where there is none."""
    stack.append("soon", queue_id=1)  # makes the topic; queue 0 is empty
    begin = ask(client, RequestCode.QUERY_CONSUMER_OFFSET, "soon", consumerGroup="new")
    stack.append("soon", queue_id=0)
    if begin.code == ResponseCode.QUERY_NOT_FOUND:
        begin = ask(client, RequestCode.GET_MAX_OFFSET, "soon")
    assert begin.fields == {"offset": "0"}


def test_a_group_consumes_the_system_topics_that_a_broker_opens(stack, client):
    group = {"consumerGroup": "tracing"}
    for topic in ("RMQ_SYS_TRACE_TOPIC", "BenchmarkTest"):
        stack.append(topic)
        commit = ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, topic, commitOffset=1, **group)
        assert commit.code == 0
    closed = ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, "SCHEDULE_TOPIC_XXXX", commitOffset=1, **group)
    assert closed.code == ResponseCode.INVALID_PARAMETER


def test_an_unknown_topic_is_refused_and_told(client):
    assert ask(client, RequestCode.GET_MAX_OFFSET, "nowhere").code == ResponseCode.TOPIC_NOT_EXIST
    commit = {"consumerGroup": "g", "commitOffset": 1}
    assert ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, "nowhere", **commit).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("queue_id", [1 << 31, 1 << 40, -(1 << 40)])
def test_a_queue_that_is_no_int_of_java_is_refused_as_no_number(stack, client, queue_id):
    stack.append(TOPIC)
    commit = {"consumerGroup": "g", "commitOffset": 1}
    for code in (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.GET_MIN_OFFSET):
        answer = ask(client, code, queueId=queue_id, **commit)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            f"the custom field <queueId> is no number: '{queue_id}'",
        )
