"""What a member tells about itself as an answer of the contract; the document is one of a push consumer of 5.5.0, shortened."""

import json
import random

import pytest

from gateway.groups.asked_members import Told
from gateway.reput.running_info import (
    QUEUE_COUNT_MAX,
    REST_BYTES_MAX,
    STACK_CHARACTERS_MAX,
    info_of,
    keep_topics,
)
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import ServiceUnavailableError

DOCUMENT = (
    '{"jstack":"TID: 1\\n","mqPopTable":{},"mqTable":{{"brokerName":"broker-a","queueId":1,"topic":"Orders"}:{'
    '"cachedMsgCount":3,"cachedMsgMaxOffset":9,"cachedMsgMinOffset":7,"cachedMsgSizeInMiB":2,"commitOffset":7,"droped":true,'
    '"lastConsumeTimestamp":0,"lastLockTimestamp":1796000000000,"lastPullTimestamp":1796000000500,"locked":true,'
    '"transactionMsgCount":0,"tryUnlockTimes":0},{"brokerName":"broker-a","queueId":0,"topic":"Orders"}:{"commitOffset":4}},'
    '"properties":{"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY","consumeThreadMax":"20"},"statusTable":{"Orders":{'
    '"consumeFailedMsgs":5,"consumeFailedTPS":0.5,"consumeOKTPS":12.25,"consumeRT":3.5,"pullRT":1.5,"pullTPS":13.0}},'
    '"subscriptionSet":[{"expressionType":"TAG","subString":"*","topic":"%RETRY%billing"},'
    '{"expressionType":"TAG","subString":"a || b","topic":"Orders"},'
    '{"expressionType":"SQL92","subString":"a > 1","topic":"Sql"}],"userConsumerInfo":{}}'
)


def test_queues_rates_settings_and_stacks_of_a_member_are_told():
    info = info_of(Told(DOCUMENT.encode()))
    first, second = info.queues
    assert (first.queue_id, first.consumer_offset, first.HasField("last_pull_time")) == (0, 4, False)
    assert (second.topic, second.broker_name, second.queue_id, second.consumer_offset) == ("Orders", "broker-a", 1, 7)
    assert (second.cached_message_count, second.cached_mebibytes) == (3, 2)
    assert (second.cached_min_offset, second.cached_max_offset, second.locked, second.dropped) == (7, 9, True, True)
    assert second.last_pull_time.ToMilliseconds() == 1_796_000_000_500
    assert not second.HasField("last_consume_time")
    assert list(info.topics) == [
        pb.ConsumerRunningTopic(
            topic="Orders",
            pull_millis=1.5,
            pulled_per_second=13,
            consume_millis=3.5,
            consumed_per_second=12.25,
            failed_per_second=0.5,
            failed_count_in_hour=5,
        )
    ]
    assert {each.topic: (each.filter.tags, each.filter.sql) for each in info.subscriptions} == {
        "%RETRY%billing": ("", ""),
        "Orders": ("a || b", ""),
        "Sql": ("", "a > 1"),
    }
    assert info.properties == {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "consumeThreadMax": "20"}
    assert (info.stack_trace, info.told_by_gateway) == ("TID: 1\n", False)


@pytest.mark.parametrize("body", [b"", b"[]", b"no json", b"\xff\xfe", b"7"])
def test_what_is_no_running_information_is_not_told_as_a_member_without_queues(body):
    with pytest.raises(ServiceUnavailableError, match="no running information"):
        info_of(Told(body))


def test_values_of_any_kind_never_break_an_answer():
    dice = random.Random(307)
    odd = ["-1", "1e999", "null", "[]", "{}", '"x"', "true", str(1 << 80), "-1.5", '"\\ud800"', "[[]]", '{"a":{}}']
    for _ in range(500):
        parts = DOCUMENT.split(":")
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(1, len(parts))
            comma = parts[at].find(",")
            if comma > 0:
                parts[at] = dice.choice(odd) + parts[at][comma:]
        try:
            info = info_of(Told(":".join(parts).encode()))
        except ServiceUnavailableError:
            continue
        assert pb.GetConsumerRunningInfoResponse.FromString(info.SerializeToString()) == info


def test_an_answer_has_room_for_what_a_member_may_say():
    rows = ",".join(
        f'{{"brokerName":"b","queueId":{number},"topic":"{"t" * 100}"}}:{{"commitOffset":1}}'
        for number in range(QUEUE_COUNT_MAX + 10)
    )
    properties = json.dumps({f"p{number}": "x" * 2_000 for number in range(300)})
    info = info_of(Told(f'{{"mqTable":{{{rows}}}}}'.encode()))
    assert len(info.queues) == QUEUE_COUNT_MAX
    assert info.ByteSize() < 1 << 20
    # With objects as keys, which a text of more than 1 MiB may not have.
    stack = r"\tat \"main\"\n" + "s" * STACK_CHARACTERS_MAX
    body = f'{{"jstack" : "{stack}","mqTable":{{{rows[:10_000].rpartition(",{")[0]}}},"properties":{properties}}}'
    info = info_of(Told(body.encode()))
    assert info.stack_trace == json.loads(f'"{stack}"')[:STACK_CHARACTERS_MAX]
    assert len(info.queues) > 10
    assert info.ByteSize() < 2 << 20


def test_an_answer_of_a_hostile_member_is_not_read():
    with pytest.raises(ServiceUnavailableError, match=r"answered with 4,194,3\d\d bytes, and 4,194,304 are read"):
        info_of(Told(b'{"mqTable":[' + b"{}," * (REST_BYTES_MAX // 3) + b"{}]}"))


def test_rates_that_are_no_numbers_are_left_out():
    info = info_of(Told(b'{"statusTable":{"T":{"pullRT":NaN,"pullTPS":Infinity,"consumeRT":1e999,"consumeOKTPS":2}}}'))
    assert list(info.topics) == [pb.ConsumerRunningTopic(topic="T", consumed_per_second=2)]


def test_a_limited_caller_sees_what_is_of_its_topics():
    info = info_of(Told(DOCUMENT.encode()))
    keep_topics(info, {"Orders"})
    assert [[row.topic for row in rows] for rows in (info.subscriptions, info.queues, info.topics)] == [
        ["Orders"],
        ["Orders", "Orders"],
        ["Orders"],
    ]
    keep_topics(info, {"Sql"})
    assert (list(info.subscriptions), list(info.queues), list(info.topics)) == ([], [], [])
