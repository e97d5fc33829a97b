"""The administration of groups over the door; the answers are those that RocketMQ 5.5.0 was recorded with."""

import concurrent.futures
import contextlib
import json

import pytest

from consumer_svc.delivering.groups import Groups
from gateway.remoting import groups
from reput_client.errors import GroupNotFoundError, InvalidArgumentError, MemberNotFoundError, UnavailableError
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import loads
from store.format.record import decode_record
from tests.gateway.remoting.requests import heartbeat, pull_fields, records
from tests.gateway.remoting.test_members import beat
from tests.support.waiting import wait_until

SETTINGS = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupName": "g",
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 5,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}


def update(client, **values):
    return client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, json.dumps({**SETTINGS, **values}).encode())


def config(client, group):
    return loads(client.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=group).body)


def table_of(answer):
    assert answer.code == 0, answer.remark
    table = loads(answer.body)["offsetTable"]
    return {(key.members()["topic"], key.members()["queueId"]): row for key, row in table.items()}


@pytest.fixture(scope="module")
def moved(stack):
    """A group that has consumed the first of two messages: its name and topic, and the receipts."""
    receipts = stack.append("progress", 2, queue_id=1)
    client = stack.client()
    commit = {"consumerGroup": "behind", "topic": "progress", "queueId": 1, "commitOffset": 1}
    assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, **commit).code == 0
    client.close()
    return "behind", "progress", receipts


def test_a_group_is_made_changed_listed_and_forgotten(client):
    assert update(client, groupName="set").code == 0
    assert config(client, "set") == {**SETTINGS, "groupName": "set"}
    assert update(client, groupName="set", consumeEnable=False, consumeMessageOrderly=True, retryMaxTimes=0).code == 0
    row = {**SETTINGS, "groupName": "set", "consumeEnable": False, "consumeMessageOrderly": True, "retryMaxTimes": 0}
    assert config(client, "set") == row
    listed = client.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    document = loads(listed.body)
    assert document["subscriptionGroupTable"]["set"] == row
    assert (document["forbiddenTable"], listed.fields["totalGroupNum"]) == (
        {},
        str(len(document["subscriptionGroupTable"])),
    )
    forget = {"groupName": "set", "cleanOffset": "true"}
    assert client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, **forget).code == 0
    assert "set" not in loads(client.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)["subscriptionGroupTable"]
    assert client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, **forget).code == 0


def test_the_priority_factor_of_a_group_is_its_attribute_as_at_a_broker(client):
    assert update(client, groupName="factor", attributes={"+priority.factor": "0"}).code == 0
    assert config(client, "factor")["attributes"] == {"priority.factor": "0"}
    assert update(client, groupName="factor", retryMaxTimes=3).code == 0  # says nothing of it
    assert config(client, "factor")["attributes"] == {"priority.factor": "0"}
    for name, value in (("+", "101"), ("+", "-1"), ("+", "many"), ("", "5"), ("+-", "5")):
        refused = update(client, groupName="factor", attributes={f"{name}priority.factor": value})
        assert (refused.code, "priority" in refused.remark) == (ResponseCode.INVALID_PARAMETER, True)
    assert update(client, groupName="factor", attributes={"-priority.factor": ""}).code == 0
    assert config(client, "factor")["attributes"] == {}


def test_an_attribute_whose_name_is_an_object_failed_as_a_bug_of_the_door(client):
    """Found while fuzzing: fastjson's JSON has objects as keys."""
    refused = client.call(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body=b'{"groupName":"keys","attributes":{{"a":1}:"x"}}',
    )
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "attribute" in refused.remark


def test_a_group_is_bound_to_lite_topics_by_its_attributes_as_at_a_broker(client):
    lite = {"lite.bind.topic": "Chats", "lite.sub.model": "Exclusive", "lite.sub.client.quota": "7"}
    assert update(client, groupName="lite", attributes={f"+{name}": value for name, value in lite.items()}).code == 0
    assert config(client, "lite")["attributes"] == lite
    assert update(client, groupName="lite", retryMaxTimes=3, attributes={"-lite.sub.client.quota": ""}).code == 0
    del lite["lite.sub.client.quota"]
    assert config(client, "lite")["attributes"] == lite
    refused = update(client, groupName="lite", attributes={"+lite.sub.model": "Both"})
    assert (refused.code, "Shared or Exclusive" in refused.remark) == (ResponseCode.INVALID_PARAMETER, True)
    refused = update(client, groupName="lite", attributes={"-lite.bind.topic": ""})
    assert (refused.code, "bound to Chats" in refused.remark) == (ResponseCode.INVALID_PARAMETER, True)
    assert config(client, "lite")["attributes"] == lite


def test_groups_of_a_list_are_made_together(client):
    rows = [{**SETTINGS, "groupName": f"one-{number}"} for number in range(3)]
    body = json.dumps({"groupConfigList": rows}).encode()
    assert client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body).code == 0
    assert [config(client, f"one-{number}")["retryMaxTimes"] for number in range(3)] == [5, 5, 5]


def test_looking_at_a_group_that_is_absent_tells_the_defaults_and_does_not_make_it(client):
    assert config(client, "absent") == {**SETTINGS, "groupName": "absent", "retryMaxTimes": 16}
    groups = loads(client.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)["subscriptionGroupTable"]
    assert "absent" not in groups


def test_a_group_that_cannot_be_is_refused(client):
    assert update(client, groupName="a b").code == ResponseCode.INVALID_PARAMETER
    assert update(client, groupName=None).code == ResponseCode.INVALID_PARAMETER
    bad = client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b"no json")
    assert bad.code == ResponseCode.SYSTEM_ERROR


def test_the_progress_of_a_group_tells_every_queue_that_is_read(client, moved):
    group, topic, receipts = moved
    asked = {"consumerGroup": group}
    for more in ({"topic": ""}, {"topic": topic}, {"topicList": f"{topic};"}):
        table = table_of(client.call(RequestCode.GET_CONSUME_STATS, **asked, **more))
        assert len(table) == 8
        assert table[topic, 0] == {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0, "pullOffset": 0}
        millis = int(receipts[0].store_time.timestamp() * 1000)
        row = {"brokerOffset": 2, "consumerOffset": 1, "lastTimestamp": millis, "pullOffset": 1}
        assert table[topic, 1] == row
    assert table_of(client.call(RequestCode.GET_CONSUME_STATS, consumerGroup="nope", topic="")) == {}
    many = client.call(RequestCode.GET_CONSUME_STATS, **asked, topicList="x;" * 1_025)
    assert (many.code, "at most 1024" in many.remark) == (ResponseCode.INVALID_PARAMETER, True)


def test_queues_with_a_position_took_a_call_for_each_topic(stack, client, monkeypatch):
    """mqadmin's `consumerProgress` asks for the progress of every group in turn."""
    for queue_id in range(8):
        stack.append("known", queue_id=queue_id)
        fields = {"consumerGroup": "everywhere", "topic": "known", "queueId": queue_id, "commitOffset": 1}
        assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, **fields).code == 0
    monkeypatch.setattr(groups, "list_queues", None)
    table = table_of(client.call(RequestCode.GET_CONSUME_STATS, consumerGroup="everywhere", topic=""))
    assert {queue: (row["brokerOffset"], row["consumerOffset"]) for queue, row in table.items()} == {
        ("known", queue_id): (1, 1) for queue_id in range(8)
    }


def test_the_progress_of_all_groups_is_told(client, moved):
    group, _, _ = moved
    document = loads(client.call(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false").body)
    (stats,) = next(row[group] for row in document["consumeStatsList"] if group in row)
    assert len(stats["offsetTable"]) == 8
    assert document["totalDiff"] >= 1


def test_the_time_span_of_a_group_tells_how_late_it_is(client, moved):
    group, topic, receipts = moved
    first, last = (int(each.store_time.timestamp() * 1000) for each in receipts)
    spans = loads(client.call(RequestCode.QUERY_CONSUME_TIME_SPAN, group=group, topic=topic).body)["consumeTimeSpanSet"]
    span = next(each for each in spans if each["messageQueue"]["queueId"] == 1)
    assert (span["minTimeStamp"], span["maxTimeStamp"], span["consumeTimeStamp"]) == (first, last, first)
    assert span["delayTime"] > 0
    empty = next(each for each in spans if each["messageQueue"]["queueId"] == 0)
    assert (empty["minTimeStamp"], empty["maxTimeStamp"]) == (-1, -1)


def test_groups_of_a_topic_and_topics_of_a_group_are_told(client, moved):
    group, topic, _ = moved
    assert loads(client.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic=topic).body) == {"groupList": [group]}
    assert loads(client.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="nowhere").body) == {"groupList": []}
    assert loads(client.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, group=group).body)["topicList"] == [topic]
    assert loads(client.call(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="nope").body)["topicList"] == []


def test_a_group_without_members_is_not_online(client, moved):
    group, topic, _ = moved
    offline = client.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)
    assert (offline.code, offline.remark) == (206, f"the consumer group[{group}] not online")
    wanted = client.call(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group=group, topic=topic)
    assert loads(wanted.body) == {"group": group, "topic": topic}
    info = client.call(
        RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup=group, clientId="nope", jstackEnable="false"
    )
    assert (info.code, info.remark) == (1, f"The Consumer <{group}> <nope> not online")


def test_a_group_is_moved_to_a_time_a_position_and_the_end(stack, client):
    stack.append("reset", 2, queue_id=1)

    def reset(**fields):
        asked = {"topic": "reset", "group": "jumping", "isForce": "true", **fields}
        return table_of(client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **asked))

    def position():
        asked = {"consumerGroup": "jumping", "topic": "reset", "queueId": 1, "setZeroIfNotFound": "false"}
        return client.call(RequestCode.QUERY_CONSUMER_OFFSET, **asked).fields.get("offset")

    assert reset(timestamp=0)["reset", 1] == 0
    assert position() == "0"
    assert reset(timestamp=-1, queueId=-1, offset=-1)["reset", 1] == 2
    assert position() == "2"
    assert reset(timestamp=0, queueId=1, offset=1) == {("reset", 1): 1}
    assert position() == "1"
    absent = client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="nowhere", group="jumping", timestamp=-1)
    assert (absent.code, absent.remark) == (ResponseCode.TOPIC_NOT_EXIST, "Topic nowhere does not exist")


@pytest.fixture
def member(stack):
    """A client with a heartbeat: it consumes for the group `online` and sends for `makers`."""
    with contextlib.closing(stack.client(version=500)) as client:
        stack.append("wanted", queue_id=1)
        assert (
            beat(client, "c1@1", "online", topic="wanted", expression="A || B", version=5, producers=["makers"]).code
            == 0
        )
        yield client


WANTED = {
    "classFilterMode": False,
    "codeSet": [65, 66],
    "expressionType": "TAG",
    "subString": "A || B",
    "subVersion": 5,
    "tagsSet": ["A", "B"],
    "topic": "wanted",
}


def test_members_and_what_they_want_are_told(client, member):
    asked = client.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="online")
    document = loads(asked.body)
    (connection,) = document.pop("connectionSet")
    host, port = member.socket.getsockname()
    assert connection == {"clientAddr": f"{host}:{port}", "clientId": "c1@1", "language": "JAVA", "version": 500}
    assert document["subscriptionTable"]["wanted"] == WANTED
    assert (document["consumeType"], document["messageModel"], document["consumeFromWhere"]) == (
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
    )
    wanted = client.call(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="online", topic="wanted")
    assert loads(wanted.body) == {"group": "online", "subscriptionData": WANTED, "topic": "wanted"}
    assert loads(client.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="wanted").body) == {"groupList": ["online"]}


def test_members_are_told_without_the_ranges_of_queues(client, member, monkeypatch):
    fields = {"consumerGroup": "online", "topic": "wanted", "queueId": 1, "commitOffset": 0}
    assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, **fields).code == 0
    monkeypatch.setattr(Groups, "_add_range", None)
    assert client.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="online").code == 0
    assert client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="online").code == 0


def test_producers_with_a_connection_are_told(client, member):
    asked = client.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="makers")
    (connection,) = loads(asked.body)["connectionSet"]
    assert connection["clientId"] == "c1@1"
    (row,) = loads(client.call(RequestCode.GET_ALL_PRODUCER_INFO).body)["data"]["makers"]
    host, port = member.socket.getsockname()
    assert (row["remoteIP"], row["version"]) == (f"/{host}:{port}", 500)


def told(member, code):
    """The next request of the server with a code."""
    while (command := member.next_told()).code != code:
        pass
    return command


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
def test_members_with_a_position_of_their_own_undid_a_reset(gateways, stack, code):
    """Lite pull consumers, and all at another gateway, did not hear of a reset, and stored the position that they had."""
    near, far = gateways
    topic, group = f"moved-back-{code}", f"moved-{code}"
    stack.append(topic, 4)
    for gateway in (near, far):
        with contextlib.closing(near.client()) as tool, contextlib.closing(gateway.client()) as member:

            def pull(at, wait_millis=0, member=member):
                fields = {
                    "consumerGroup": group,
                    "suspendTimeoutMillis": wait_millis,
                    "sysFlag": 4 | 2 * (wait_millis > 0),
                }
                return member.request(code, **pull_fields(topic, at, **fields))

            def answer(request, member=member):
                member.send(request)
                while not (received := member.receive()).is_answer:
                    pass  # notices of members
                return received

            def store(at, member=member):
                fields = {"consumerGroup": group, "topic": topic, "queueId": 0}
                assert member.call(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=at, **fields).code == 0
                return member.call(RequestCode.QUERY_CONSUMER_OFFSET, **fields).fields["offset"]

            said = heartbeat("lite", group, topic=topic).replace(b"CONSUME_PASSIVELY", b"CONSUME_ACTIVELY")
            assert member.call(RequestCode.HEART_BEAT, said).code == 0
            assert answer(pull(0)).fields["nextBeginOffset"] == "4"
            assert store(4) == "4"
            member.send(pull(4, wait_millis=20_000))
            asked = {"topic": topic, "group": group, "timestamp": 0, "isForce": "true"}
            assert tool.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **asked).code == 0
            while not (moved := member.receive()).is_answer:  # the pull that waited
                pass
            assert (moved.code, moved.fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
            assert store(4) == "0", "it has not followed yet"
            assert store(1, member=tool) == "1", "it is no member's"
            assert store(4) == "1"
            assert answer(pull(4)).fields["nextBeginOffset"] == "1"
            assert len(records(answer(pull(1)).body)) == 3
            assert store(2) == "2"


def test_a_member_is_asked_what_it_alone_knows_and_its_answer_is_passed_on(client, member):
    fields = {"consumerGroup": "online", "clientId": "c1@1", "jstackEnable": "false"}
    client.send(client.request(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields))
    command = told(member, RequestCode.GET_CONSUMER_RUNNING_INFO)
    assert command.fields == fields
    member.send(command.answer(0, "", {}, b'{"properties":{}}'))
    answer = client.receive()
    assert (answer.code, answer.body) == (0, b'{"properties":{}}')


def test_a_member_over_remoting_is_asked_for_people_too(stack, member):
    with concurrent.futures.ThreadPoolExecutor(1) as caller:
        asked = caller.submit(stack.store.consumer_running_info, "online", "c1@1", with_stack_trace=True)
        command = told(member, RequestCode.GET_CONSUMER_RUNNING_INFO)
        assert command.fields == {"consumerGroup": "online", "clientId": "c1@1", "jstackEnable": "true"}
        member.send(command.answer(0, "", {}, b'{"jstack":"main","properties":{"a":"b"}}'))
        info = asked.result(20)
        assert (info.properties, info.stack_trace, info.told_by_gateway) == ({"a": "b"}, "main", False)

        asked = caller.submit(stack.store.consumer_running_info, "online", "c1@1")
        command = told(member, RequestCode.GET_CONSUMER_RUNNING_INFO)
        member.send(command.answer(1, "not now"))
        with pytest.raises(UnavailableError, match="c1@1 of online refuses: not now"):
            asked.result(20)

        asked = caller.submit(stack.store.consumer_running_info, "online", "c1@1")
        told(member, RequestCode.GET_CONSUMER_RUNNING_INFO)
        member.close()
        with pytest.raises(UnavailableError, match="did not answer"):
            asked.result(20)


def test_groups_and_members_that_there_are_not_are_told(stack, member):
    with pytest.raises(MemberNotFoundError, match="online has no member 'nobody'"):
        stack.store.consumer_running_info("online", "nobody")
    with pytest.raises(GroupNotFoundError):
        stack.store.consumer_running_info("no-such-group", "nobody")
    with pytest.raises(InvalidArgumentError, match="consumer_group is empty"):
        stack.store.consumer_running_info("", "nobody")


def test_a_member_over_grpc_is_told_by_the_gateway_prints_its_stacks_and_refuses_to_consume(stack, client):
    (receipt,) = stack.append("over-grpc")
    group = "of-grpc"
    with stack.store.consume("over-grpc", group) as consumer:
        assert consumer.take() is not None  # it begins with the first one

        def members():
            return [each.client_id for each in stack.store.consumer_group(group).members]

        wait_until(members, "it is a member")
        (client_id,) = members()
        info = stack.store.consumer_running_info(group, client_id)
        assert (info.told_by_gateway, info.queues, info.topics) == (True, (), ())
        assert info.subscriptions == (("over-grpc", "*"),)
        fields = {"consumerGroup": group, "clientId": client_id}
        answer = client.call(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields, jstackEnable="false")
        assert loads(answer.body)["properties"] == info.properties
        assert loads(answer.body)["mqTable"] == {}
        answer = client.call(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields, jstackEnable="true")
        assert "MainThread\n" in loads(answer.body)["jstack"]
        info = stack.store.consumer_running_info(group, client_id, with_stack_trace=True)
        assert "in test_a_member_over_grpc_is_told_by_the_gateway_prints" in info.stack_trace
        fields |= {"msgId": receipt.offset_msg_id, "brokerName": "broker-a"}
        refused = client.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, **fields)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "takes its messages itself" in refused.remark


def test_a_member_with_no_connection_to_this_door_is_not_told_as_absent(gateways, stack):
    near, far = gateways
    stack.append("elsewhere")
    with contextlib.closing(near.client()) as tool, contextlib.closing(far.client()) as member:
        assert beat(member, "c2@1", "distant", topic="elsewhere").code == 0
        host, port = member.socket.getsockname()
        for client_id, told in (
            ("c2@1", f"it is a push consumer at ipv4:{host}:{port}"),
            ("c3@1", "<c3@1> not online"),
        ):
            fields = {"consumerGroup": "distant", "clientId": client_id, "jstackEnable": "false"}
            answer = tool.call(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert told in answer.remark


def test_members_tell_where_they_are_in_the_queues_of_a_topic(client, member):
    fields = {"topic": "wanted", "group": "online", "clientAddr": ""}
    client.send(client.request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **fields))
    command = told(member, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
    assert command.fields == {"topic": "wanted", "group": "online"}
    place = b'{{"brokerName":"broker-a","queueId":1,"topic":"wanted"}:7}'
    member.send(command.answer(0, "", {}, b'{"messageQueueTable":' + place + b"}"))
    answer = client.receive()
    assert (answer.code, answer.body) == (0, b'{"consumerTable":{"c1@1":' + place + b'},"messageQueueTable":{}}')
    nobody = client.call(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **{**fields, "group": "nobody"})
    assert nobody.remark == "No Any Consumer online in the consumer group: [nobody]"


def test_a_group_gets_the_positions_of_another_one(client, moved):
    group, topic, _ = moved
    fields = {"srcGroup": group, "destGroup": "cloned", "topic": topic, "offline": "false"}
    assert client.call(RequestCode.CLONE_GROUP_OFFSET, **fields).code == 0
    asked = client.call(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="cloned", topic=topic, queueId=1)
    assert asked.fields["offset"] == "1"
    assert client.call(RequestCode.CLONE_GROUP_OFFSET, **{**fields, "srcGroup": "nobody"}).code == 0


def test_a_member_consumes_one_message_when_it_is_asked_to(stack, client, member):
    (receipt,) = stack.append("wanted", queue_id=1, tags="A")
    fields = {"consumerGroup": "online", "clientId": "c1@1", "msgId": receipt.offset_msg_id, "brokerName": "broker-a"}
    client.send(client.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, **fields))
    command = told(member, RequestCode.CONSUME_MESSAGE_DIRECTLY)
    record = decode_record(command.body)
    assert (record.commit_log_offset, record.tags, record.body) == (receipt.commit_log_offset, "A", b"x")
    member.send(command.answer(0, "", {}, b'{"consumeResult":"CR_SUCCESS"}'))
    assert client.receive().body == b'{"consumeResult":"CR_SUCCESS"}'


def test_a_member_that_goes_before_it_answers_is_told_as_a_client_without_answer(client, member):
    fields = {"consumerGroup": "online", "clientId": "c1@1", "jstackEnable": "false"}
    client.send(client.request(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields))
    told(member, RequestCode.GET_CONSUMER_RUNNING_INFO)
    member.close()
    assert client.receive().code == ResponseCode.CONSUME_MSG_TIMEOUT
