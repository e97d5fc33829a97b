"""POP over remoting: pops, acknowledgements, changed times, and what a client makes of an answer."""

import base64
import contextlib
import json
import time

import pytest

from gateway.remoting.pops import fields_of
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import loads
from store.format.delivery.receipt_handle import ExtraInfo, encode_check_point, topic_kind_of
from tests.gateway.remoting.conftest import BROKER
from tests.gateway.remoting.requests import heartbeat, properties, records, send_fields
from tests.support.waiting import wait_for, wait_until

INVISIBLE = 60_000


def pop_fields(topic, group="poppers", **more):
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": -1,
        "maxMsgNums": 32,
        "invisibleTime": INVISIBLE,
        "pollTime": 0,
        "bornTime": int(time.time() * 1000),
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    }
    return fields | more


def table_of(text):
    """As `ExtraInfoUtil` reads the fields of an answer."""
    rows = [row.split(" ") for row in text.split(";")]
    table = {(kind, key): value for kind, key, value in rows}
    assert len(table) == len(rows)  # a client refuses one that comes twice
    return table


def popped(answer):
    """The records of an answer, each with the POP_CK that a client makes of it (`processPopResponse`)."""
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    fields = answer.fields
    starts, offsets = table_of(fields["startOffsetInfo"]), table_of(fields["msgOffsetInfo"])
    found = []
    for record in records(answer.body):
        key = topic_kind_of(record.topic), str(record.queue_id)
        known = [int(offset) for offset in offsets[key].split(",")]
        mine = sorted(
            each.queue_offset
            for each in records(answer.body)
            if each.topic == record.topic and each.queue_id == record.queue_id
        )
        offset = known[mine.index(record.queue_offset)]
        assert offset == record.queue_offset
        times = (fields["popTime"], fields["invisibleTime"], fields["reviveQid"])
        found.append((record, " ".join((starts[key], *times, key[0], BROKER, key[1], str(offset)))))
    return found


def pop(client, topic, **more):
    return popped(client.call(RequestCode.POP_MESSAGE, **pop_fields(topic, **more)))


def topic_fields(topic):
    return {"topic": topic, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG"}


def about(record, check_point, group="poppers", **more):
    fields = {"consumerGroup": group, "topic": record.topic, "queueId": record.queue_id, "offset": record.queue_offset}
    return fields | {"extraInfo": check_point} | more


def ack(client, record, check_point, **more):
    return client.call(RequestCode.ACK_MESSAGE, **about(record, check_point, **more)).code


def code_of_pop(client, topic, **more):
    return client.call(RequestCode.POP_MESSAGE, **pop_fields(topic, **more)).code


def test_a_priority_chooses_the_queue_of_a_send_and_the_order_of_pops(stack, client):
    """5.5.0 answers a send to queue 0 with the queue of the priority."""
    topic = {**topic_fields("Urgent"), "readQueueNums": 4, "writeQueueNums": 4, "attributes": "+message.type=PRIORITY"}
    assert client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **topic).code == 0
    assert loads(client.call(RequestCode.GET_TOPIC_CONFIG, topic="Urgent").body)["attributes"] == {
        "message.type": "PRIORITY"
    }

    def send(key, priority):
        said = properties(UNIQ_KEY=key, _SYS_MSG_PRIORITY_=str(priority))
        answer = client.call(RequestCode.SEND_MESSAGE_V2, b"x", **send_fields("Urgent", queueId=0, properties=said))
        queue_id = int(answer.fields["queueId"])
        stack.wait_until_built("Urgent", queue_id, int(answer.fields["queueOffset"]))
        return queue_id

    assert [send(f"u{priority}", priority) for priority in (1, 9, 0, 2)] == [1, 3, 0, 2]
    ((highest, check_point),) = pop(client, "Urgent", maxMsgNums=1)
    assert highest.unique_key == "u9"
    changed = about(highest, check_point, invisibleTime=10)
    assert client.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **changed).code == 0
    stack.wait_until_built("%RETRY%poppers_Urgent", 3, 0)
    assert stack.topic_queue_count(client, "%RETRY%poppers_Urgent") == 4  # so a broker reads queue 3, too
    send("v9", 9)
    found = [(record.unique_key, record.reconsume_times) for record, _ in pop(client, "Urgent", maxMsgNums=2)]
    found += [(record.unique_key, record.reconsume_times) for record, _ in pop(client, "Urgent")]
    assert found == [("u9", 1), ("v9", 0), ("u2", 0), ("u1", 0), ("u0", 0)]


def test_messages_are_popped_acknowledged_and_not_handed_out_again(stack, client):
    stack.append("Popped", 3)
    found = pop(client, "Popped")
    assert [record.queue_offset for record, _ in found] == [0, 1, 2]
    assert code_of_pop(client, "Popped") == ResponseCode.POLLING_TIMEOUT
    assert [ack(client, *each) for each in found] == [0, 0, 0]
    assert ack(client, *found[0]) == 0  # as by a broker: nothing is left to do
    stack.append("Popped")
    assert [record.queue_offset for record, _ in pop(client, "Popped")] == [3]


def test_an_answer_without_messages_has_the_fields_that_clients_need(stack, client):
    stack.append("Empty")
    ack(client, *pop(client, "Empty")[0])
    answer = client.call(RequestCode.POP_MESSAGE, **pop_fields("Empty"))
    assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert {"popTime", "invisibleTime", "reviveQid", "restNum"} <= answer.fields.keys()
    assert answer.fields["invisibleTime"] == str(INVISIBLE)


def test_a_pop_waits_for_the_next_message_without_a_thread(stack, client):
    stack.append("Awaited")
    ack(client, *pop(client, "Awaited")[0])
    request = client.request(RequestCode.POP_MESSAGE, **pop_fields("Awaited", pollTime=30_000))
    client.send(request)
    with contextlib.closing(stack.client()) as other:

        def waits():
            fields = {"consumerGroup": "poppers", "topic": "Awaited", "queueId": -1}
            return other.call(RequestCode.POLLING_INFO, **fields).fields["pollingNum"] == "1"

        wait_until(waits, "the pop waits")
    stack.append("Awaited")
    answer = client.receive()
    assert answer.opaque == request.opaque
    assert [record.queue_offset for record, _ in popped(answer)] == [1]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "NoSuchTopic"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"maxMsgNums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": 999}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": 0}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": -5}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": 1 << 62}, ResponseCode.INVALID_PARAMETER),
        ({"attemptId": "a" * 1_025}, ResponseCode.INVALID_PARAMETER),
        ({"exp": "a >", "expType": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"topic": "rmq_sys_wheel_timer"}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_a_pop_that_cannot_be_is_refused_with_the_code_of_rocketmq(stack, client, fields, code):
    stack.append("Refused")
    assert code_of_pop(client, fields.pop("topic", "Refused"), group="refused", **fields) == code


def test_filters_by_tag_and_by_sql_choose_what_is_popped(stack, client):
    for tag, number in (("A", 1), ("B", 5), ("A", 9)):
        text = properties(TAGS=tag, n=number)
        assert (
            client.call(RequestCode.SEND_MESSAGE_V2, b"x", **send_fields("Chosen", queueId=0, properties=text)).code
            == 0
        )
    stack.wait_until_built("Chosen", 0, 2)
    by_tag = pop(client, "Chosen", group="by-tag", exp="A")
    assert [record.queue_offset for record, _ in by_tag] == [0, 2]
    by_sql = pop(client, "Chosen", group="by-sql", exp="n > 4", expType="SQL92")
    assert [record.queue_offset for record, _ in by_sql] == [1, 2]


@pytest.mark.parametrize("part", range(1, 8))  # the first is only RocketMQ's place of the message in its check point
def test_a_handle_of_which_any_part_was_altered_is_refused_and_the_message_stays_in_flight(stack, client, part):
    topic, group = f"Forged{part}", f"forgers{part}"
    stack.append(topic, 2)
    (record, check_point), _ = pop(client, topic, group=group)
    parts = check_point.split(" ")
    parts[part] = {4: "1", 5: "another"}.get(part, str(int(parts[part]) + 1 if parts[part].isdigit() else 0))
    forged = " ".join(parts)
    fields = about(record, forged, group)
    for code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
        answer = client.call(code, **fields, invisibleTime=1)
        assert answer.code in (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_MESSAGE)
    cut = about(record, check_point.rpartition(" ")[0], group)
    assert client.call(RequestCode.ACK_MESSAGE, **cut).code == ResponseCode.MESSAGE_ILLEGAL
    foreign = about(record, check_point, "another-group")
    assert client.call(RequestCode.ACK_MESSAGE, **foreign).code == ResponseCode.NO_MESSAGE
    assert ack(client, record, check_point, group=group) == 0


def test_a_changed_time_gives_a_new_handle_and_the_old_one_is_refused(stack, client):
    stack.append("Renewed")
    ((record, check_point),) = pop(client, "Renewed")
    answer = client.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **about(record, check_point, invisibleTime=120_000))
    assert (answer.code, answer.fields["invisibleTime"]) == (0, "120000")
    assert ack(client, record, check_point) == ResponseCode.NO_MESSAGE
    # As `MQClientAPIImpl.changeInvisibleTimeAsync` makes it.
    times = (answer.fields["popTime"], answer.fields["invisibleTime"], answer.fields["reviveQid"])
    renewed = " ".join((str(record.queue_offset), *times, "0", BROKER, str(record.queue_id), str(record.queue_offset)))
    assert ack(client, record, renewed) == 0


def test_a_message_that_is_not_acknowledged_comes_again_as_a_retry_with_its_count(stack, client):
    stack.append("Retried")
    ((record, check_point),) = pop(client, "Retried", invisibleTime=1_000)
    assert record.reconsume_times == 0
    fields = pop_fields("Retried", pollTime=20_000, queueId=0)
    ((again, handle),) = popped(client.call(RequestCode.POP_MESSAGE, **fields))
    assert (again.topic, again.reconsume_times, handle.split(" ")[4]) == ("%RETRY%poppers_Retried", 1, "1")
    assert ack(client, record, check_point) == ResponseCode.NO_MESSAGE
    assert ack(client, again, handle) == 0


def test_pops_in_order_wait_for_the_messages_before_them_and_tell_how_often_they_came(stack, client):
    stack.append("InOrder", 3)
    ask = {"group": "in-order", "order": "true", "maxMsgNums": 2}
    first = pop(client, "InOrder", **ask, attemptId="a")
    assert [record.queue_offset for record, _ in first] == [0, 1]
    assert code_of_pop(client, "InOrder", **ask, attemptId="b") == ResponseCode.POLLING_TIMEOUT
    again = pop(client, "InOrder", **ask, attemptId="a")  # its answer was lost
    assert [record.queue_offset for record, _ in again] == [0, 1]
    assert [ack(client, *each, group="in-order") for each in again] == [0, 0]
    assert [record.queue_offset for record, _ in pop(client, "InOrder", **ask)] == [2]


def test_a_batch_of_acknowledgements_ends_the_messages_of_its_bits(stack, client):
    stack.append("Batch", 12)
    found = pop(client, "Batch")
    start, popped_at, invisible, mark, kind, _, queue_id, _ = found[0][1].split(" ")
    row = {"c": "poppers", "t": "Batch", "r": kind, "so": int(start), "q": int(queue_id), "rq": int(mark)}
    row |= {"pt": int(popped_at), "it": int(invisible), "b": base64.b64encode(bytes((0b10000001, 0b100))).decode()}

    def acknowledge(row):
        body = json.dumps({"brokerName": BROKER, "acks": [row]}).encode()
        return client.call(RequestCode.BATCH_ACK_MESSAGE, body).code

    assert acknowledge(row | {"rq": int(mark) ^ 1}) == ResponseCode.NO_MESSAGE
    assert acknowledge(row) == 0
    assert acknowledge(row | {"r": "x"}) == ResponseCode.MESSAGE_ILLEGAL
    assert client.call(RequestCode.BATCH_ACK_MESSAGE, b'{"acks":[]}').code == ResponseCode.NO_MESSAGE
    position = {"consumerGroup": "poppers", "topic": "Batch", "queueId": 0}
    assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, **position).fields["offset"] == "1"
    for number in range(1, 7):
        assert ack(client, *found[number]) == 0
    assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, **position).fields["offset"] == "8"


@pytest.mark.parametrize(("init_mode", "begin"), [(0, 0), (1, 0)])
def test_a_new_group_begins_at_the_first_message_of_a_young_queue(stack, client, init_mode, begin):
    stack.append(f"Young{init_mode}", 2)
    found = pop(client, f"Young{init_mode}", group="new", initMode=init_mode)
    assert [record.queue_offset for record, _ in found] == [begin, begin + 1]


def test_a_new_group_begins_at_the_last_message_of_an_old_queue(stack, client, monkeypatch):
    monkeypatch.setattr("gateway.remoting.positions.IN_MEMORY_BYTES", -1)
    stack.append("Old", 3)
    assert [record.queue_offset for record, _ in pop(client, "Old", group="new", initMode=1)] == [2]
    assert [record.queue_offset for record, _ in pop(client, "Old", group="first", initMode=0)] == [0, 1, 2]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_group_that_was_deleted_began_anew_where_its_client_did_not_say(stack, client, monkeypatch, is_made_again):
    topic, group = f"Again{is_made_again}", f"deleted-{is_made_again}".lower()
    stack.append(topic, 3)
    assert len(pop(client, topic, group=group)) == 3
    assert client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=group).code == 0
    if is_made_again:
        body = json.dumps({"groupName": group}).encode()
        assert client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body).code == 0
    monkeypatch.setattr("gateway.remoting.positions.IN_MEMORY_BYTES", -1)
    assert [record.queue_offset for record, _ in pop(client, topic, group=group, initMode=1)] == [2]


def test_a_pop_that_waits_goes_on_when_its_group_is_deleted(stack, client):
    stack.append("Waits", 2)
    for record, check_point in pop(client, "Waits", group="waiting"):
        assert ack(client, record, check_point, group="waiting") == 0
    client.send(client.request(RequestCode.POP_MESSAGE, **pop_fields("Waits", "waiting", pollTime=20_000)))
    wait_for(lambda: waiting_count(client, "Waits", "waiting") == 1, "it waits")
    other = stack.client()
    assert other.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="waiting").code == 0
    assert [record.queue_offset for record, _ in popped(client.receive())] == [0, 1]


def waiting_count(client, topic, group):
    fields = {"consumerGroup": group, "topic": topic, "queueId": -1}
    return int(client.call(RequestCode.POLLING_INFO, **fields).fields["pollingNum"])


def test_a_group_that_found_a_queue_empty_gets_what_comes_there_later(stack, client, monkeypatch):
    assert client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **topic_fields("Later")).code == 0
    assert code_of_pop(client, "Later", initMode=1) == ResponseCode.POLLING_TIMEOUT
    stack.append("Later", 3)
    monkeypatch.setattr("gateway.remoting.positions.IN_MEMORY_BYTES", -1)
    position = {"consumerGroup": "poppers", "topic": "Later", "queueId": 0}
    assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, **position).fields["offset"] == "0"
    assert [record.queue_offset for record, _ in pop(client, "Later", initMode=1)] == [0, 1, 2]


def test_a_pop_over_an_older_consumer_service_was_not_answered(stack, client, monkeypatch):
    """Such a service makes receipt handles for gRPC clients, whatever it is asked for."""
    with monkeypatch.context() as older:
        handles = "consumer_svc.delivering.receipt_handle.ReceiptHandles"
        older.setattr(f"{handles}.make_check_point", lambda self, handle, *_: self.make(handle))
        stack.append("OfOlder")
        refused = client.call(RequestCode.POP_MESSAGE, **pop_fields("OfOlder"))
        assert (refused.code, "upgrade" in refused.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
        asked = {"consumerGroup": "poppers", "topic": "OfOlder", "queueId": -1}
        assert client.call(RequestCode.POLLING_INFO, **asked).fields["pollingNum"] == "0"
    (again, _) = wait_for(lambda: again_of(client, "OfOlder"), "it was given back")
    assert (again.queue_offset, again.reconsume_times) == (0, 0)


def again_of(client, topic):
    answer = client.call(RequestCode.POP_MESSAGE, **pop_fields(topic))
    return popped(answer)[0] if answer.code == ResponseCode.SUCCESS else None


def test_a_look_and_a_notification_hand_nothing_out(stack, client):
    stack.append("Looked", 2)
    fields = {"consumerGroup": "lookers", "topic": "Looked", "queueId": -1}
    answer = client.call(RequestCode.PEEK_MESSAGE, **fields, maxMsgNums=1)
    assert (answer.code, answer.fields["restNum"]) == (0, "2")
    assert [record.queue_offset for record in records(answer.body)] == [0]
    ask = fields | {"pollTime": 0, "bornTime": 0}
    assert client.call(RequestCode.NOTIFICATION, **ask).fields == {"hasMsg": "true", "pollingFull": "false"}
    found = pop(client, "Looked", group="lookers")
    assert [record.queue_offset for record, _ in found] == [0, 1]
    assert client.call(RequestCode.NOTIFICATION, **ask).fields["hasMsg"] == "false"
    assert client.call(RequestCode.PEEK_MESSAGE, **fields, maxMsgNums=1).code == ResponseCode.PULL_NOT_FOUND
    request = client.request(RequestCode.NOTIFICATION, **{**ask, "pollTime": 30_000})
    client.send(request)
    stack.append("Looked")
    assert client.receive().fields["hasMsg"] == "true"


def test_a_connection_that_ends_while_its_pop_waits_leaves_nothing_behind(stack, client):
    stack.append("Left")
    ack(client, *pop(client, "Left")[0])
    gone = stack.client()
    gone.send(gone.request(RequestCode.POP_MESSAGE, **pop_fields("Left", pollTime=30_000)))
    fields = {"consumerGroup": "poppers", "topic": "Left", "queueId": -1}

    def waiting():
        return client.call(RequestCode.POLLING_INFO, **fields).fields["pollingNum"]

    wait_until(lambda: waiting() == "1", "the pop waits")
    gone.close()
    wait_until(lambda: waiting() == "0", "the pop has ended")
    stack.append("Left")
    assert [record.queue_offset for record, _ in pop(client, "Left")] == [1]


def test_a_grpc_group_and_a_remoting_one_are_the_same_group(stack, client):
    """What one door has handed out is in flight for the other, too: one state of the group."""
    stack.append("Shared", 2)
    ((record, check_point),) = pop(client, "Shared", maxMsgNums=1)
    body = client.call(RequestCode.HEART_BEAT, heartbeat("c1", "poppers", topic="Shared")).code
    assert body == 0
    wait_for(lambda: client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="poppers").code == 0, "member")
    assert [each.queue_offset for each, _ in pop(client, "Shared")] == [1]
    assert ack(client, record, check_point) == 0


def test_the_fields_of_an_answer_name_each_kind_of_topic_and_queue_once():
    def delivery(topic, queue_id, offset, start, attempt=1):
        info = ExtraInfo(start, 7, 8, 9, topic_kind_of(topic), BROKER, queue_id, offset)
        return pb.Delivery(receipt_handle=encode_check_point(topic, info), delivery_attempt=attempt)

    deliveries = [
        *(delivery("t", 1, 5, 4), delivery("t", 1, 4, 4), delivery("t", 0, 3, 3, 2)),
        *(delivery("%RETRY%g_t", 0, 0, 0, 2), delivery("%RETRY%g+t", 0, 8, 8, 3)),
    ]
    fields = fields_of(deliveries, in_order=True)
    assert fields == {
        "popTime": "7",
        "invisibleTime": "8",
        "reviveQid": "9",
        "restNum": "0",
        "startOffsetInfo": "0 1 4;0 0 3;1 0 0;2 0 8",
        "msgOffsetInfo": "0 1 4,5;0 0 3;1 0 0;2 0 8",
        "orderCountInfo": "0 qo0%3 1;1 qo0%0 1;2 qo0%8 2;0 1 0;0 0 0;1 0 0;2 0 0",
    }
