"""The administration of topics over the door; the answers are those that RocketMQ 5.5.0 was recorded with."""

import json
from unittest.mock import Mock

import pytest

from gateway.remoting.topic_copy import TopicCopy
from gateway.remoting.topics import config_of, configs_of
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import Key, loads

BROKER = "broker-a"
VALUES = {
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
}


def update(client, topic, **values):
    return client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic=topic, **{**VALUES, **values})


def config(client, topic):
    return loads(client.call(RequestCode.GET_TOPIC_CONFIG, topic=topic, lo="true").body)


def test_a_topic_is_made_changed_listed_and_deleted(client):
    assert update(client, "made", attributes="+message.type=FIFO").code == 0
    row = {
        "attributes": {"message.type": "FIFO"},
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "made",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }
    assert config(client, "made") == row
    assert update(client, "made", writeQueueNums=3, perm=4).code == 0
    row |= {"writeQueueNums": 3, "perm": 4}
    assert config(client, "made") == row
    listed = client.call(RequestCode.GET_ALL_TOPIC_CONFIG)
    document = loads(listed.body)
    assert document["topicConfigTable"]["made"] == row
    assert listed.fields["totalTopicNum"] == str(len(document["topicConfigTable"]))
    assert document["topicConfigTable"]["TBW102"]["perm"] == 7
    assert set(document) == {
        "dataVersion",
        "mappingDataVersion",
        "topicConfigTable",
        "topicQueueMappingDetailMap",
        "topicQueueMappingInfoMap",
    }
    assert client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="made").code == 0
    gone = client.call(RequestCode.GET_TOPIC_CONFIG, topic="made")
    assert (gone.code, gone.remark) == (ResponseCode.TOPIC_NOT_EXIST, "No topic in this broker. topic: made")
    assert client.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="made").code == 0


def test_topics_of_a_list_are_made_together(client):
    rows = [
        {"topicName": f"listed-{number}", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "attributes": None}
        for number in range(3)
    ]
    body = json.dumps({"topicConfigList": rows}).encode()
    assert client.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body).code == 0
    assert [config(client, f"listed-{number}")["readQueueNums"] for number in range(3)] == [2, 2, 2]
    bad = client.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, b'{"topicConfigList":[{}]}')
    assert bad.code == ResponseCode.INVALID_PARAMETER


def test_a_topic_of_lite_topics_has_an_expiration(client):
    def attributes():
        return config(client, "chats")["attributes"]

    assert update(client, "chats", attributes="+message.type=LITE,+lite.topic.expiration=60").code == 0
    assert attributes() == {"message.type": "LITE", "lite.topic.expiration": "60"}
    assert update(client, "chats").code == 0
    assert attributes() == {"message.type": "LITE", "lite.topic.expiration": "60"}
    assert update(client, "chats", attributes="+lite.topic.expiration=-1").code == 0
    assert attributes() == {"message.type": "LITE"}
    assert update(client, "chats", attributes="+lite.topic.expiration=20").code == 0
    assert update(client, "chats", attributes="-lite.topic.expiration").code == 0
    assert attributes() == {"message.type": "LITE"}


@pytest.mark.parametrize(
    ("topic", "values", "code", "remark"),
    [
        ("a b", {}, ResponseCode.INVALID_PARAMETER, "a b"),
        ("TBW102", {}, ResponseCode.INVALID_PARAMETER, "The topic[TBW102] is conflict with system topic."),
        (BROKER, {}, ResponseCode.INVALID_PARAMETER, f"The topic[{BROKER}] is conflict with system topic."),
        (
            "t",
            {"attributes": "+message.type=MIXED"},
            ResponseCode.INVALID_PARAMETER,
            "MIXED message type is not supported.",
        ),
        ("t", {"attributes": "+x.y=1"}, ResponseCode.SYSTEM_ERROR, "unsupported key: x.y"),
        ("t", {"attributes": "+lite.topic.expiration=43201"}, ResponseCode.INVALID_PARAMETER, "'43201'"),
        ("t", {"attributes": "+lite.topic.expiration=-2"}, ResponseCode.INVALID_PARAMETER, "'-2'"),
        ("t", {"attributes": "+lite.topic.expiration=x"}, ResponseCode.INVALID_PARAMETER, "'x'"),
        ("t", {"attributes": "+queue.type=BatchCQ"}, ResponseCode.INVALID_PARAMETER, "queue.type"),
        ("t", {"readQueueNums": 0}, ResponseCode.INVALID_PARAMETER, "queue"),
        ("t", {"perm": 9}, ResponseCode.INVALID_PARAMETER, "perm"),
    ],
)
def test_a_topic_that_cannot_be_made_is_refused_by_what_is_wrong(client, topic, values, code, remark):
    answer = update(client, topic, **values)
    assert (answer.code, remark in answer.remark) == (code, True), answer.remark
    assert client.call(RequestCode.GET_TOPIC_CONFIG, topic="t").code == ResponseCode.TOPIC_NOT_EXIST


def test_the_figures_of_a_topic_tell_each_queue(stack, client):
    assert update(client, "figures").code == 0
    _, last = stack.append("figures", 2, queue_id=1)

    document = loads(client.call(RequestCode.GET_TOPIC_STATS_INFO, topic="figures").body)
    rows = {key.members()["queueId"]: row for key, row in document["offsetTable"].items()}
    assert isinstance(next(iter(document["offsetTable"])), Key)
    assert rows.keys() == {0, 1, 2, 3}
    assert rows[0] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    millis = int(last.store_time.timestamp() * 1000)
    assert rows[1] == {"lastUpdateTimestamp": millis, "maxOffset": 2, "minOffset": 0}
    absent = client.call(RequestCode.GET_TOPIC_STATS_INFO, topic="nowhere")
    assert (absent.code, absent.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[nowhere] not exist")


def test_the_topics_of_the_broker_are_told_by_name(client):
    names = loads(client.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body)["topicList"]
    assert {"TBW102", "SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", BROKER} <= set(names)


def test_names_that_are_not_known_are_asked_for_once_however_many_they_are():
    """A list of 2,000 names took a call to the commit log for each, in one of the four threads of administration."""
    asked = Mock(return_value=log_pb.ListTopicsResponse(version=1, topics=[{"topic": "T", "read_queue_count": 3}]))
    shard = Mock(topics=TopicCopy(lambda: Mock(call=asked)), cluster_name="c", broker_name="b")
    found = configs_of(shard, [f"x{number}" for number in range(2_000)] + ["T", "b", "T"])
    assert (list(found), found["T"].read_queue_count, asked.call_count) == (["T", "b"], 3, 1)
    assert list(configs_of(shard, ["T"])) == ["T"]
    assert asked.call_count == 1
    assert config_of(shard, "x1") is None
