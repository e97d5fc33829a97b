"""Lite topics for administrators over the door, beside clients over gRPC."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import loads
from tests.gateway.remoting.requests import DoorClient
from tests.gateway.rocketmq.test_lite_consuming import lite_consumer, make, receive, send
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    directory: pathlib.Path = tmp_path_factory.mktemp("store")
    with hosted_stack(directory, nameserver_port=0, remoting_port=0) as running:
        yield running


@pytest.fixture
def door(stack: HostedStack) -> Iterator[DoorClient]:
    with contextlib.closing(DoorClient(stack.addresses["remoting"])) as client:
        yield client


def asked(door: DoorClient, code: RequestCode, **fields: object) -> dict[str, Any]:
    answer = door.call(code, **fields)
    assert answer.code == 0, answer.remark
    return dict(loads(answer.body))


def test_an_operator_sees_topics_groups_subscribers_and_lag(stack: HostedStack, door: DoorClient) -> None:
    group = make(stack, "Chats")
    consumer = lite_consumer(stack, group, "Chats", "a", "b")
    for lite_topic in ("a", "b", "c"):
        send(consumer, lite_topic, "0", "1")
    receive(consumer, 4)
    send(consumer, "b", "2", "3")

    def lag_of_b() -> object:
        return asked(door, RequestCode.GET_LITE_GROUP_INFO, group=group, liteTopic="b", topK=0)["totalLagCount"]

    wait_until(lambda: lag_of_b() == 2, lambda: f"the lag is {lag_of_b()}")
    broker = asked(door, RequestCode.GET_BROKER_LITE_INFO)
    assert (broker["topicMeta"], broker["groupMeta"]) == ({"Chats": -1}, {"Chats": [group]})
    assert (broker["currentLmqNum"], broker["liteSubscriptionCount"]) == (3, 2)
    parent = asked(door, RequestCode.GET_PARENT_TOPIC_INFO, topic="Chats")
    assert parent == {"groups": [group], "liteTopicCount": 3, "lmqNum": 3, "topic": "Chats", "ttl": -1}
    one = asked(door, RequestCode.GET_LITE_TOPIC_INFO, parentTopic="Chats", liteTopic="a")
    assert one["subscriber"] == [{"clientId": "client-1", "group": group}]
    assert (one["shardingToBroker"], one["topicOffset"]["maxOffset"]) == (True, 2)
    none = asked(door, RequestCode.GET_LITE_TOPIC_INFO, parentTopic="Chats", liteTopic="zzz")
    assert (none["shardingToBroker"], none["subscriber"]) == (False, [])
    about = {"parentTopic": "Chats", "group": group}
    client = asked(door, RequestCode.GET_LITE_CLIENT_INFO, **about, clientId="client-1", maxCount=10)
    assert (client["liteTopicCount"], client["liteTopicSet"]) == (2, ["a", "b"])
    client = asked(door, RequestCode.GET_LITE_CLIENT_INFO, **about, clientId="client-1", maxCount=1)
    assert (client["liteTopicCount"], client["liteTopicSet"]) == (2, ["a"])
    absent = asked(door, RequestCode.GET_LITE_CLIENT_INFO, **about, clientId="nobody", maxCount=10)
    assert (absent["liteTopicCount"], absent["liteTopicSet"]) == (-1, [])
    whole = asked(door, RequestCode.GET_LITE_GROUP_INFO, group=group, topK=5)
    assert (whole["parentTopic"], whole["totalLagCount"]) == ("Chats", 2)
    assert [(row["liteTopic"], row["lagCount"]) for row in whole["lagCountTopK"]] == [("b", 2)]
    assert door.call(RequestCode.TRIGGER_LITE_DISPATCH, group=group).code == 0


def test_what_is_no_lite_topic_or_group_is_refused_as_by_a_broker(stack: HostedStack, door: DoorClient) -> None:
    group = make(stack, "Bound")
    plain = {"topicFilterType": "SINGLE_TAG", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    assert door.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic="Plain", **plain).code == 0
    for topic, code in (("Absent", ResponseCode.TOPIC_NOT_EXIST), ("Plain", ResponseCode.INVALID_PARAMETER)):
        assert door.call(RequestCode.GET_PARENT_TOPIC_INFO, topic=topic).code == code
        assert door.call(RequestCode.GET_LITE_TOPIC_INFO, parentTopic=topic, liteTopic="a").code == code
    for name, code in (("absent", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST), (group, 0)):
        assert door.call(RequestCode.GET_LITE_GROUP_INFO, group=name, topK=1).code == code
        assert door.call(RequestCode.TRIGGER_LITE_DISPATCH, group=name).code == code
    make(stack, "Other")
    about = {"parentTopic": "Other", "group": group, "clientId": "c", "maxCount": 1}
    assert door.call(RequestCode.GET_LITE_CLIENT_INFO, **about).code == ResponseCode.INVALID_PARAMETER
