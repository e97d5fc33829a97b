"""Texts of a status that programs look for, as RocketMQ's proxy writes them: clients show no name of a code beside them."""

import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq.receiving import PollLimits, invisible_of
from gateway.rocketmq.status import status_of
from store.errors import InvalidMessageError
from tests.gateway.delivery.memory_delivery import MemoryDelivering
from tests.gateway.rocketmq.consumers import TOPIC, serving


@pytest.fixture
def shard():
    return MemoryDelivering()


@pytest.fixture
def gateway(shard):
    with serving(shard) as one:
        yield one


@pytest.mark.parametrize(
    ("millis", "text"), [(9_999, "the invisibleTime is too small"), (43_200_001, "the invisibleTime is too large")]
)
def test_an_invisible_time_outside_the_limits_is_too_small_or_too_large(gateway, millis, text):
    consumer = gateway.consumer()
    request = v2.ReceiveMessageRequest(group=consumer.group, message_queue=v2.MessageQueue(topic=consumer.topic))
    request.invisible_duration.FromMilliseconds(millis)
    refusal = next(iter(consumer.call("ReceiveMessage", request)))
    assert refusal.status.code == v2.ILLEGAL_INVISIBLE_TIME
    assert text in refusal.status.message


def test_smaller_limits_of_polls_can_be_set_as_in_rocketmq_s_proxy(shard):
    """Its own tests run with `minInvisibleTimeMillsForRecv=3`, polls of a second and near deadlines."""
    shard.store(TOPIC, b"x")
    with serving(shard, limits=PollLimits(invisible_millis_min=3, poll_seconds_min=0.0)) as gateway:
        consumer = gateway.consumer()
        code, (message,) = consumer.receive(invisible=3, seconds=1, timeout=2)
        assert (code, message.body) == (v2.OK, b"x")
        assert consumer.receive(invisible=3, seconds=1, timeout=1.5) == (v2.MESSAGE_NOT_FOUND, [])


def test_a_changed_invisible_time_above_the_limit_is_too_large(shard, gateway):
    shard.store(TOPIC, b"x")
    consumer = gateway.consumer()
    _, (message,) = consumer.receive()
    answer = consumer.change(message.system_properties.receipt_handle, 12 * 3600 + 1)
    assert "the invisibleTime is too large" in answer.status.message


def test_the_milliseconds_of_an_invisible_time_are_kept():
    """10.569 s and others are no sum of a float's seconds and nanoseconds."""
    durations = [Duration(seconds=millis // 1000, nanos=millis % 1000 * 1_000_000) for millis in range(10_000, 12_000)]
    assert [invisible_of(each, 10_000) for each in durations] == durations


@pytest.mark.parametrize(
    ("live_count", "strange", "name"),
    [(0, ["nonsense"], "INVALID_RECEIPT_HANDLE"), (2, [], "OK"), (1, ["nonsense"], "MULTIPLE_RESULTS")],
)
def test_the_whole_answer_to_acknowledgements_names_its_code(shard, gateway, live_count, strange, name):
    """Official clients throw with the text of the whole answer, not with those of its entries."""
    consumer = gateway.consumer()
    handles = []
    for _ in range(live_count):
        shard.store(TOPIC, b"x")
        _, (message,) = consumer.receive()
        handles.append(message.system_properties.receipt_handle)
    status = consumer.ack(*handles, *strange).status
    assert (v2.Code.Name(status.code), status.message) == (name, name)


@pytest.mark.parametrize(
    ("field", "metadata", "code"),
    [
        ("delivery_time", {"delaySecondsMax": 259_200}, v2.ILLEGAL_DELIVERY_TIME),
        ("properties", {"sizeBytes": 40_080, "sizeBytesMax": 32_511}, v2.MESSAGE_PROPERTIES_TOO_LARGE),
        ("properties", {"property": "REAL_TOPIC"}, v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ],
)
def test_what_the_commit_log_refuses_of_a_message_that_waits_has_the_code_of_its_cause(field, metadata, code):
    assert status_of(InvalidMessageError("refused", field=field, **metadata)).code == code
