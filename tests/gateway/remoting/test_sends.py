"""Sends over the door: answers, stored records and refusals as those of RocketMQ 5.5.0."""

import base64
import contextlib
import itertools
import threading
import time
import tracemalloc
import zlib
from unittest.mock import Mock, call

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.remoting import sends
from gateway.remoting.door import Ask, Door, RefusedError
from gateway.remoting.sends import _PartSender, _Repeated, _Sender
from gateway.remoting.topic_copy import Topic
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from services.rocketmq.address import Address
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import OK, ONEWAY, Command, FrameError, decode, encode
from services.status import to_status
from store.compiled import loading
from store.errors import DeadlineExceededError, InvalidMessageError, NotConfirmedError, NotLeaderError, StoreError
from store.format.client_batch import BatchEntry, decode_client_batch, encode_client_batch
from store.format.message_id import decode_offset_msg_id, encode_offset_msg_id
from tests.gateway.remoting.requests import BATCH, UNIQUE, V1, V2, properties, pull_fields, records, send_fields
from tests.gateway.remoting.test_members import beat
from tests.support.waiting import wait_for

_topics = itertools.count()


@pytest.fixture
def topic():
    """A new one for each test: they share a store."""
    return f"sent-{next(_topics)}"


def send(client, topic, body=b"hello", code=V2, **more):
    return client.call(code, body, **send_fields(topic, code, **more))


def pulled(stack, topic, queue_id=1, count=1):
    """The first records of a queue."""

    def look():
        with contextlib.closing(stack.client()) as client:
            found = records(client.call(RequestCode.PULL_MESSAGE, **pull_fields(topic, queueId=queue_id)).body)
        return found[:count] if len(found) >= count else None

    return wait_for(look, "messages of the queue")


def test_a_send_whose_answer_was_lost_is_stored_twice_with_one_unique_key(stack, client, topic):
    """As with RocketMQ; docs/remoting.md says so. A query by the key tells the program."""
    assert send(client, f"{topic}-made").code == 0  # the door is up for it
    lost = stack.client()
    lost.send(lost.request(V2, b"hello", **send_fields(topic, V2)))
    pulled(stack, topic)
    lost.close()  # between the send and its answer, as far as the program knows
    assert send(client, topic).fields["queueOffset"] == "1"
    first, second = pulled(stack, topic, count=2)
    assert dict(first.properties)["UNIQ_KEY"] == dict(second.properties)["UNIQ_KEY"] == UNIQUE


@pytest.mark.parametrize("code", [V1, V2])
def test_a_message_is_stored_as_its_client_sent_it(stack, client, topic, code):
    answer = send(client, topic, code=code)
    assert (answer.code, answer.remark) == (0, "")
    assert answer.fields["queueId"] == "1"
    assert answer.fields["queueOffset"] == "0"
    assert answer.fields["transactionId"] == UNIQUE
    assert answer.fields["MSG_REGION"] == "DefaultRegion"
    assert answer.fields["TRACE_ON"] == "true"
    (record,) = pulled(stack, topic)
    assert decode_offset_msg_id(answer.fields["msgId"])[1] == record.commit_log_offset
    assert (record.body, record.flag, record.born_time_millis) == (b"hello", 7, 1_700_000_000_123)
    assert record.born_host.ip == "127.0.0.1"
    assert record.born_host.port == client.socket.getsockname()[1]
    stored = dict(record.properties)
    del stored["__CRC32#"]
    assert stored == {
        "UNIQ_KEY": UNIQUE,
        "TAGS": "A",
        "KEYS": "k1 k2",
        "WAIT": "true",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }


def test_the_first_message_of_a_topic_makes_it_with_the_queues_of_its_request(client, topic):
    assert send(client, topic, queueId=3).code == 0
    refused = send(client, topic, queueId=4)
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "queueId[4] is illegal" in refused.remark
    assert send(client, topic + "-2", defaultTopicQueueNums=16, queueId=7).code == 0
    assert send(client, topic + "-2", queueId=8).code == ResponseCode.INVALID_PARAMETER
    absent = send(client, topic + "-3", defaultTopic="nowhere")
    assert (absent.code, absent.remark) == (
        ResponseCode.TOPIC_NOT_EXIST,
        f"topic[{topic}-3] not exist, apply first please!",
    )


def test_the_broker_picks_a_queue_where_the_client_does_not(client, topic):
    answers = [send(client, topic, queueId=-1) for _ in range(8)]
    assert {answer.fields["queueId"] for answer in answers} == {"0", "1", "2", "3"}


def test_a_compressed_body_is_stored_as_it_came(stack, client, topic):
    packed = zlib.compress(b"x" * 5_000)
    assert send(client, topic, packed, sysFlag=0x301).code == 0
    (record,) = pulled(stack, topic)
    assert (record.body, record.sys_flag) == (packed, 0x301)


def test_a_batch_is_stored_message_by_message(stack, client, topic):
    entries = [BatchEntry(n, b"body-%d" % n, properties(UNIQ_KEY=f"{UNIQUE}-{n}", TAGS="T").encode()) for n in range(3)]
    answer = send(client, topic, encode_client_batch(entries), code=BATCH, batch="true")
    assert answer.code == 0
    assert answer.fields["queueOffset"] == "0"
    ids = [decode_offset_msg_id(each) for each in answer.fields["msgId"].split(",")]
    found = pulled(stack, topic, count=3)
    assert [record.commit_log_offset for record in found] == [offset for _, offset in ids]
    assert [(record.body, record.flag, record.unique_key) for record in found] == [
        (b"body-%d" % n, n, f"{UNIQUE}-{n}") for n in range(3)
    ]


def test_a_damaged_batch_is_refused(client, topic):
    assert send(client, topic, b"\0\0\0\7abc", code=BATCH, batch="true").code == ResponseCode.MESSAGE_ILLEGAL


def test_a_batch_is_refused_by_its_size_before_its_messages_are_made(client, topic):
    many = send(client, topic, encode_client_batch([BatchEntry(0, b"", b"")] * 65_537), code=BATCH, batch="true")
    assert (many.code, "more than 65536 messages" in many.remark) == (ResponseCode.MESSAGE_ILLEGAL, True)
    large = encode_client_batch([BatchEntry(0, bytes(1 << 20), b"")] * 5)
    refused = send(client, topic, large, code=BATCH, batch="true")
    assert (refused.code, "a batch of" in refused.remark) == (ResponseCode.MESSAGE_ILLEGAL, True)


def test_a_batch_of_more_messages_than_one_append_has_is_stored_in_order(stack, client, topic):
    """RocketMQ's own example of batches sends a megabyte of small messages at once."""
    count = 2_500
    entries = [BatchEntry(n, b"%d" % n, b"") for n in range(count)]
    answer = send(client, topic, encode_client_batch(entries), code=BATCH, batch="true")
    assert (answer.code, answer.fields["queueOffset"]) == (0, "0")
    ids = [decode_offset_msg_id(each)[1] for each in answer.fields["msgId"].split(",")]
    assert (len(ids), ids) == (count, sorted(ids))
    stack.wait_until_built(topic, 1, count - 1)
    last = client.call(RequestCode.PULL_MESSAGE, **pull_fields(topic, count - 1, queueId=1))
    assert [(record.body, record.commit_log_offset) for record in records(last.body)] == [
        (b"%d" % (count - 1), ids[-1])
    ]


def test_a_batch_that_fails_after_a_part_of_it_was_stored_is_not_sent_again():
    ask = Mock()
    first = gateway_pb.AppendMessagesResponse(results=[message_pb2.AppendResult(queue_id=1)] * 2).SerializeToString()
    sender = _PartSender(Mock(), _Sender(ask, Mock(is_batch=True)), [b"next"])
    ask.connection.is_closed = True
    assert not sender.is_active()
    sender.answer(first)
    assert sender.is_active()
    sender.fail(to_status(NotLeaderError("another one leads")))
    (refusal,) = ask.refuse.call_args.args
    assert refusal.code == ResponseCode.TRANSACTION_STATE_UNKNOWN
    assert "the first 2 messages of the batch are stored" in refusal.remark


def test_the_receipts_of_a_large_batch_are_read_as_they_come_and_told_together(monkeypatch):
    """One batch of 65,536 messages kept the thread of all answers for the receipts of all."""
    read_bytes = []
    response_type = gateway_pb.AppendMessagesResponse

    class Counting:
        @staticmethod
        def FromString(data):
            read_bytes.append(len(data))
            return response_type.FromString(data)

    parts = [
        response_type(
            results=[{"offset_msg_id": f"{part}-{n}", "queue_id": 1, "queue_offset": 4 * part + n} for n in range(4)]
        ).SerializeToString()
        for part in range(8)
    ]
    ask = Mock(lasting_fields={})
    sender = _PartSender(Mock(), _Sender(ask, Mock(is_batch=True)), [b"next"] * 7)
    monkeypatch.setattr(sends.gateway_pb, "AppendMessagesResponse", Counting)
    for part in parts:
        assert not ask.answer.mock_calls
        sender.answer(part)
    assert read_bytes == [len(part) for part in parts]
    ((fields,),) = [each.args for each in ask.answer.mock_calls]
    ids = ",".join(f"{part}-{n}" for part in range(8) for n in range(4))
    assert fields == {"msgId": ids, "queueId": "1", "queueOffset": "0"}


def test_a_batch_that_the_kernel_leaves_is_given_to_it_once(client, topic, monkeypatch):
    assert send(client, topic).code == 0
    asked = []
    encoded_parts = sends._encoded_parts
    monkeypatch.setattr(sends, "_encoded_parts", lambda *given: asked.append(1) or encoded_parts(*given))
    large = encode_client_batch([BatchEntry(n % 2, bytes(1_000), b"") for n in range(100)])
    assert send(client, topic, large, code=BATCH, batch="true").code == 0
    assert len(asked) == 1


def test_a_large_batch_that_the_kernel_leaves_is_taken_apart_by_a_thread_and_not_in_the_loop(
    client, topic, monkeypatch
):
    assert send(client, topic).code == 0
    names = []

    def decode(*arguments):
        names.append(threading.current_thread().name)
        return decode_client_batch(*arguments)

    monkeypatch.setattr(sends, "decode_client_batch", decode)
    large = encode_client_batch([BatchEntry(n % 2, bytes(1_000), b"") for n in range(100)])
    assert send(client, topic, large, code=BATCH, batch="true").code == 0
    assert [name.split("_")[0] for name in names] == ["remoting-work"]


@pytest.mark.parametrize("mode", [loading.AUTO, loading.OFF])
def test_a_batch_waits_for_a_thread_only_where_no_kernel_takes_it(client, topic, mode, monkeypatch):
    assert send(client, topic).code == 0
    works = []
    work = Ask.work
    monkeypatch.setattr(Ask, "work", lambda ask, what: works.append(ask) or work(ask, what))
    before = loading.switch(mode)
    try:
        for size in (1_000, 10_000):
            large = encode_client_batch([BatchEntry(0, bytes(size), b"")] * 100)
            assert send(client, topic, large, code=BATCH, batch="true").code == 0
    finally:
        loading.switch(before)
    assert len(works) == (1 if mode == loading.AUTO and loading.load(sends.BATCH_KERNEL) is not None else 2)


def test_names_and_properties_that_are_too_long_are_refused_before_they_are_kept(client, topic):
    assert send(client, topic, producerGroup="g" * 256).code == ResponseCode.INVALID_PARAMETER
    assert send(client, topic, producerGroup="g" * 255).code == 0
    long = send(client, topic, properties=properties(a="x" * 32_767))
    assert (long.code, "characters" in long.remark) == (ResponseCode.MESSAGE_ILLEGAL, True)


def test_a_number_of_a_million_blanks_is_refused_and_not_kept():
    """The numbers of sends are remembered by their text."""
    fields = {name: str(value) for name, value in send_fields("T").items()}
    tracemalloc.start()
    try:
        for number in range(16):
            ask = Ask(Mock(), Mock(), Command(V2, fields | {"d": f"{'':{(1 << 20) - number}}4"}), Mock())
            with pytest.raises(RefusedError, match="<d> is no number"):
                sends.SendHeader.of(ask)
        assert tracemalloc.get_traced_memory()[0] < 4 << 20  # the last request is still there
    finally:
        tracemalloc.stop()


def test_sends_of_one_turn_are_one_append_and_answered_in_one_write():
    shard = Mock(cluster_name="c", broker_name="b", on_turn_ended=[], takers=[])
    shard.topics.find.return_value = Topic(topic="T", read_queue_count=4, write_queue_count=4)
    send = sends.handlers(shard)[V2]
    connection = Mock(peer=Address("10.0.0.1", 5))
    fields = {name: str(value) for name, value in send_fields("T").items()}
    asks = [
        Ask(Mock(), connection, Command(V2, fields, body, opaque), Mock()) for opaque, body in enumerate((b"1", b"2"))
    ]
    for ask in asks:
        send(ask)
    assert shard.forwarder.mock_calls == []

    (end_turn,) = shard.on_turn_ended
    end_turn()
    end_turn()

    ((broker_name, together),) = [call.args for call in shard.forwarder.append_small_to.mock_calls]
    made = [gateway_pb.AppendMessagesRequest.FromString(each.request).messages[0] for each in together]
    assert broker_name == "b"
    assert [(message.body, message.queue_id, message.born_host) for message in made] == [
        (b"1", 1, "10.0.0.1:5"),
        (b"2", 1, "10.0.0.1:5"),
    ]
    response = gateway_pb.AppendMessagesResponse(results=[{"queue_id": 1, "queue_offset": 7}]).SerializeToString()
    _Sender.answer_together([(each.caller, response) for each in together])
    ((answered,),) = [call.args for call in connection.answer_all.mock_calls]
    assert [(answer.opaque, answer.fields["queueOffset"]) for _, answer in answered] == [(0, "7"), (1, "7")]


def test_sends_that_are_answered_together_are_each_in_the_audit_log():
    connection, response = Mock(), gateway_pb.AppendMessagesResponse(results=[{"queue_id": 1}]).SerializeToString()
    asks = [Ask(Mock(), connection, Command(V2, {}, b"", opaque), Mock()) for opaque in range(3)]
    for ask in asks:
        ask.rights = Mock()
    _Sender.answer_together([(_Sender(ask, Mock(is_batch=False, topic="T")), response) for ask in asks])
    assert [ask.rights.answered.mock_calls for ask in asks] == [[call(OK)]] * 3
    ((answered,),) = [each.args for each in connection.answer_all.mock_calls]
    assert [answer.opaque for _, answer in answered] == [0, 1, 2]


def test_sends_that_cannot_be_appended_are_refused_each():
    shard = Mock(cluster_name="c", broker_name="b", on_turn_ended=[], takers=[])
    shard.topics.find.return_value = Topic(topic="T", read_queue_count=4, write_queue_count=4)
    shard.forwarder.append_small_to.side_effect = NotLeaderError("another replica leads")
    send = sends.handlers(shard)[V2]
    asks = [Mock(command=Command(V2, {name: str(value) for name, value in send_fields("T").items()})) for _ in range(2)]
    for ask in asks:
        ask.connection.peer = Address("10.0.0.1", 5)
        send(ask)
    shard.on_turn_ended[0]()
    assert [type(ask.refuse.call_args.args[0]) for ask in asks] == [NotLeaderError, NotLeaderError]


def test_a_oneway_message_is_stored_and_not_answered(stack, client, topic):
    client.send(client.request(V2, b"quiet", ONEWAY, **send_fields(topic)))
    assert client.call(999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    (record,) = pulled(stack, topic)
    assert record.body == b"quiet"


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION),
        ("SELF_TEST_TOPIC", ResponseCode.NO_PERMISSION),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION),
        ("no/topic", ResponseCode.INVALID_PARAMETER),
        ("t" * 128, ResponseCode.INVALID_PARAMETER),
        ("RMQ_SYS_TRACE_TOPIC", 0),
        ("TBW102", 0),
    ],
)
def test_system_topics_take_what_those_of_a_broker_take(client, topic, code):
    assert send(client, topic, queueId=0).code == code


def test_a_body_that_is_too_large_is_illegal(client, topic):
    refused = send(client, topic, b"x" * ((4 << 20) + 1))
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL


def send_back(client, offset, group, **more):
    fields = {"offset": offset, "group": group, "delayLevel": 0, "originTopic": "t", "unitMode": "false"} | more
    return client.call(RequestCode.CONSUMER_SEND_MSG_BACK, **fields)


def test_a_message_that_is_sent_back_comes_in_the_retry_topic(stack, client, topic):
    group = f"back-{topic}"
    beat(client, "c1", group, topic=topic)
    send(client, topic)
    (record,) = pulled(stack, topic)
    assert send_back(client, record.commit_log_offset, group, delayLevel=1).code == 0
    (again,) = pulled(stack, f"%RETRY%{group}", queue_id=0)
    assert (again.body, again.reconsume_times) == (b"hello", 1)
    assert again.properties["RETRY_TOPIC"] == topic
    assert again.properties["ORIGIN_MESSAGE_ID"] == encode_offset_msg_id(record.store_host, record.commit_log_offset)


@pytest.mark.parametrize("how", [{"delayLevel": -1}, {"maxReconsumeTimes": 0}])
def test_a_message_after_its_last_attempt_is_a_dead_letter(stack, client, topic, how):
    group = f"dead-{topic}"
    beat(client, "c1", group, topic=topic)
    send(client, topic)
    (record,) = pulled(stack, topic)
    assert send_back(client, record.commit_log_offset, group, **how).code == 0
    (letter,) = pulled(stack, f"%DLQ%{group}", queue_id=0)
    assert letter.body == b"hello"


def test_what_is_not_in_the_log_cannot_be_sent_back(client):
    answer = send_back(client, 1 << 40, "g")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {1 << 40}")


def test_a_consumer_may_send_to_its_retry_topic_by_itself(stack, client, topic):
    group = f"self-{topic}"
    beat(client, "c1", group, topic=topic)
    retry = f"%RETRY%{group}"
    delayed = properties(UNIQ_KEY=UNIQUE, RETRY_TOPIC=topic, DELAY="1")
    assert send(client, retry, queueId=0, reconsumeTimes=2, maxReconsumeTimes=16, properties=delayed).code == 0
    (again,) = pulled(stack, retry, queue_id=0)
    assert again.reconsume_times == 2
    over = properties(UNIQ_KEY=UNIQUE, RETRY_TOPIC=topic, DELAY="3")
    assert send(client, retry, queueId=0, reconsumeTimes=17, maxReconsumeTimes=16, properties=over).code == 0
    (letter,) = pulled(stack, f"%DLQ%{group}", queue_id=0)
    assert letter.reconsume_times == 17


def test_a_reply_goes_to_the_client_that_asked_and_is_stored(stack, client, topic):
    reply_topic = "DefaultCluster_REPLY_TOPIC"
    text = properties(UNIQ_KEY=UNIQUE, MSG_TYPE="reply", REPLY_TO_CLIENT="asker", CORRELATION_ID=topic, TTL="3000")
    fields = send_fields(reply_topic, queueId=0, properties=text)
    absent = client.call(RequestCode.SEND_REPLY_MESSAGE_V2, b"nobody", **fields)
    assert (absent.code, absent.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "push reply message fail, channel of <asker> not found.",
    )
    with contextlib.closing(stack.client()) as asker:
        beat(asker, "asker", producers=("pg",))
        request = client.request(RequestCode.SEND_REPLY_MESSAGE_V2, b"the reply", **fields)
        client.send(request)
        pushed = asker.next_told()
        assert (pushed.code, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"the reply")
        assert pushed.fields["topic"] == reply_topic
        assert f"CORRELATION_ID\x01{topic}\x02" in pushed.fields["properties"]
        asker.send(pushed.answer())
        answer = client.receive()
    assert (answer.code, answer.opaque) == (0, request.opaque)
    stored = pulled(stack, reply_topic, queue_id=0, count=2)
    assert [record.body for record in stored] == [b"nobody", b"the reply"]


def test_a_delayed_message_comes_when_it_is_due(stack, client, topic):
    waiting = properties(UNIQ_KEY=UNIQUE, DELAY="1")
    answer = send(client, topic, properties=waiting)
    assert (answer.code, answer.fields["queueId"]) == (0, "1")
    (record,) = pulled(stack, topic)
    assert record.unique_key == UNIQUE
    assert "DELAY" not in record.properties


def recall(client, topic, handle):
    return client.call(RequestCode.RECALL_MESSAGE, topic=topic, recallHandle=handle, producerGroup="pg")


def test_a_message_that_waits_is_recalled_by_the_handle_of_its_answer_once(stack, client, topic):
    due = int(time.time() * 1000) + 600_000
    answer = send(client, topic, properties=properties(UNIQ_KEY=UNIQUE, TIMER_DELIVER_MS=due))
    handle = answer.fields["recallHandle"]
    kind, of_topic, broker, due_millis, unique_key = base64.urlsafe_b64decode(handle).decode().split(" ")
    assert (kind, of_topic, broker, unique_key) == ("v1", topic, "broker-a", UNIQUE)
    assert abs(int(due_millis) - due) < 1_000  # a timer's precision
    recalled = wait_for(lambda: (found := recall(client, topic, handle)).code == 0 and found, "it is known to wait")
    assert recalled.fields == {"MSG_REGION": "DefaultRegion", "msgId": UNIQUE}
    again = recall(client, topic, handle)
    assert (again.code, again.fields) == (ResponseCode.ILLEGAL_OPERATION, {"MSG_REGION": "DefaultRegion"})


@pytest.mark.parametrize("handle", ["", "none", base64.urlsafe_b64encode(b"v1 other broker-a 1 K").decode()])
def test_a_recall_by_a_handle_that_is_none_or_of_another_topic_is_refused(stack, client, topic, handle):
    send(client, topic)
    answer = recall(client, topic, handle)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert answer.remark.startswith("recall failed, ")
    assert recall(client, "NoSuchTopic", handle).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("error", [NotConfirmedError("on one log"), DeadlineExceededError("late")])
def test_a_message_that_may_be_stored_is_answered_with_a_code_on_which_clients_do_not_send_it_again(error):
    ask = Mock(lasting_fields={})
    _Sender(ask, Mock()).fail(to_status(error))
    (refused,) = ask.refuse.call_args.args
    # DefaultMQProducer's retryResponseCodes
    assert refused.code not in {1, 2, 14, 16, 17, 204, 205}
    assert refused.code == ResponseCode.TRANSACTION_STATE_UNKNOWN
    assert error.message in refused.remark


def test_a_message_that_is_surely_not_stored_is_answered_with_a_code_on_which_clients_send_it_again():
    ask = Mock(lasting_fields={})
    _Sender(ask, Mock()).fail(to_status(NotLeaderError("elsewhere")))
    (refused,) = ask.refuse.call_args.args
    assert isinstance(refused, NotLeaderError)


def test_a_light_queue_that_a_client_names_is_not_stored(stack, client, topic):
    named = properties(UNIQ_KEY=UNIQUE, INNER_MULTI_DISPATCH="%LMQ%a,b", INNER_MULTI_QUEUE_OFFSET="7,8", a="5")
    assert send(client, topic, properties=named).code == 0
    (record,) = pulled(stack, topic)
    assert record.properties["a"] == "5"
    assert not {"INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"} & set(record.properties)


def test_a_queue_that_is_only_read_still_takes_what_clients_with_an_old_route_send(stack, client, topic):
    changed = {"topic": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    assert client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **changed).code == 0
    shrunk = changed | {"writeQueueNums": 2}
    assert client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **shrunk).code == 0
    assert send(client, topic, queueId=3).code == 0
    assert pulled(stack, topic, queue_id=3)[0].queue_id == 3
    assert send(client, topic, queueId=4).code == ResponseCode.INVALID_PARAMETER


class Frames:
    """Sends of a door without a shard; they come as frames."""

    def __init__(self, cluster_name="c"):
        self.shard = Mock(cluster_name=cluster_name, broker_name="b", on_turn_ended=[], takers=[])
        self.shard.topics.find.return_value = Topic(topic="T", read_queue_count=4, write_queue_count=4)
        self._handlers = sends.handlers(self.shard)
        self.connection = Mock(peer=Address("10.0.0.1", 5), is_closed=False)
        self.taken_count = 0

    def come(self, body=b"hello", opaque=1, code=V2, flag=0, *, is_decoded=False, **fields):
        """A send comes; the first two with a header are decoded, and those that shall be."""
        texts = {name: str(value) for name, value in send_fields("T", code, **fields).items()}
        frame = encode(Command(code, texts, body, opaque, flag))[4:]
        (take,) = self.shard.takers
        begin = None if is_decoded else take(self.connection, frame, self._ask_of)
        if begin is None:
            self._handlers[code](self._ask_of(self.connection, frame))
        else:
            self.taken_count += 1
            begin()

    def ends(self):
        """The requests of a turn that ends."""
        self.shard.forwarder.append_small_to.reset_mock()
        self.shard.on_turn_ended[0]()
        return [each for call in self.shard.forwarder.append_small_to.call_args_list for each in call.args[1]]

    def answers(self):
        """What the connection was given, as bytes."""
        given = []
        for name, args, _ in self.connection.mock_calls:
            if name == "answer_encoded":
                given += args[2]
            elif name == "answer":
                given.append(encode(args[1]))
            elif name == "answer_all":
                given += [encode(answer) for _, answer in args[0]]
        return given

    @staticmethod
    def _ask_of(connection, frame):
        return Ask(Mock(), connection, decode(frame), Mock())


@pytest.fixture
def frames():
    """A header was seen twice: the next send with it is not decoded."""
    frames = Frames()
    for opaque in range(2):
        frames.come(opaque=opaque)
    assert frames.taken_count == 0
    frames.ends()
    return frames


@pytest.mark.parametrize("code", [V1, V2])
@pytest.mark.parametrize("handle", ["", "recall"])
def test_a_send_that_is_not_decoded_is_appended_and_answered_as_one_that_is(code, handle):
    frames = Frames()
    for opaque in range(2):
        frames.come(opaque=opaque, code=code)
    said = {"bornTimestamp": 1_700_000_000_456, "properties": properties(UNIQ_KEY="K", POP_CK="1 2", KEYS="%d", A="b")}
    frames.come(b"again", 3, code, **said)
    assert frames.taken_count == 1
    frames.come(b"again", 3, code, is_decoded=True, **said)
    *_, taken, decoded = frames.ends()
    assert taken.request == decoded.request
    assert taken.flush == decoded.flush
    result = {
        "offset_msg_id": "7F" * 16,
        "queue_id": 1,
        "queue_offset": 7,
        "unique_key": 'K"é%',
        "recall_handle": handle,
    }
    response = gateway_pb.AppendMessagesResponse(results=[result]).SerializeToString()
    for each in (taken, decoded):
        each.caller.answer_together([(each.caller, response)])
        each.caller.answer(response)
    answers = frames.answers()
    assert len(answers) == 4
    assert len(set(answers)) == 1


def test_the_properties_of_the_first_send_with_a_header_are_not_kept():
    frames = Frames()
    for opaque in range(2):
        frames.come(opaque=opaque, properties=properties(KEYS="k" * 30_000))
    (take,) = frames.shard.takers
    (known,) = take.__self__._repeated.kept.values()
    assert (known.header.properties, known.header.topic) == ("", "T")


def test_sends_that_are_not_decoded_are_answered_in_one_write_and_count_with_their_frames(frames):
    for opaque in (5, 6):
        frames.come(opaque=opaque)
    together = frames.ends()
    response = gateway_pb.AppendMessagesResponse(results=[{"queue_id": 1}]).SerializeToString()
    _Repeated.answer_together([(each.caller, response) for each in together])
    ((count, frame_bytes, pieces),) = [each.args for each in frames.connection.answer_encoded.mock_calls]
    assert [decode(piece[4:]).opaque for piece in pieces] == [5, 6]
    texts = {name: str(value) for name, value in send_fields("T").items()}
    assert (count, frame_bytes) == (2, 2 * (len(encode(Command(V2, texts, b"hello", 5))) - 4))


@pytest.mark.parametrize(
    "fields",
    [
        {"properties": properties(UNIQ_KEY=UNIQUE, WAIT="false")},
        {"properties": properties(KEYS='a"b')},
        {"properties": properties(KEYS="é")},
        {"properties": properties(KEYS="x" * 32_767)},
        {"queueId": 2},
        {"defaultTopic": "another"},
        {"bornTimestamp": -1},
        {"producerGroup": "another"},
        {"batch": "true"},
        {"reconsumeTimes": 3},
    ],
)
def test_a_send_that_differs_in_more_than_its_time_and_properties_is_decoded(frames, fields):
    with contextlib.suppress(RefusedError, StoreError):
        frames.come(**fields)
    assert frames.taken_count == 0


@pytest.mark.parametrize("options", [{"flag": ONEWAY}, {"body": bytes(64 << 10)}])
def test_a_send_without_an_answer_or_with_a_large_body_is_decoded(frames, options):
    for _ in range(3):
        frames.come(**options)
    assert frames.taken_count == 0


def test_a_topic_that_has_gone_or_has_fewer_queues_is_seen_by_sends_that_are_not_decoded(frames):
    frames.shard.topics.find.return_value = Topic(topic="T", read_queue_count=2, write_queue_count=2)
    frames.come()
    assert frames.taken_count == 1
    frames.shard.topics.find.return_value = Topic(topic="T", read_queue_count=1, write_queue_count=1)
    with pytest.raises(RefusedError, match=r"queueId\[1\] is illegal"):
        frames.come()
    frames.shard.topics.find.return_value = None
    frames.come()
    assert frames.taken_count == 1


def test_a_send_that_is_not_decoded_and_cannot_be_appended_is_refused_by_its_number(frames):
    frames.shard.forwarder.append_small_to.side_effect = NotLeaderError("another replica leads")
    frames.come(opaque=77)
    frames.ends()
    (refused,) = [decode(each[4:]) for each in frames.answers()]
    assert (refused.opaque, refused.code) == (77, ResponseCode.SERVICE_NOT_AVAILABLE)
    assert refused.fields["MSG_REGION"] == "DefaultRegion"
    assert "another replica leads" in refused.remark


def test_the_caller_of_a_send_that_is_not_decoded_is_that_of_its_connection(frames):
    frames.come()
    (each,) = frames.ends()
    assert each.caller.is_active()
    assert each.caller.time_remaining() is None
    frames.connection.is_closed = True
    assert not each.caller.is_active()


class FramesOfClients(Frames):
    """The same, with a door that decodes what is not taken."""

    def __init__(self):
        super().__init__()
        self.door = Door(self._handlers, Mock())

    def outcome(self, frame, *, is_decoded):
        """What becomes of a frame: how its connection ends, or its appends with the answers to a success and a failure."""
        (take,) = self.shard.takers
        begin = None if is_decoded else take(self.connection, frame, self.door.ask_of)
        if begin is not None:
            self.taken_count += 1
            begin()
        else:
            try:
                command = decode(frame)
            except FrameError:
                return "the connection ends"
            self.door.on_command(self.connection, command)
        appends = self.ends()
        for each in appends:
            each.caller.answer_together([(each.caller, self._response)])
            each.caller.fail(to_status(InvalidMessageError("INNER_NUM is not for clients")))
        return [(each.request, each.flush) for each in appends], self.answers()

    _response = gateway_pb.AppendMessagesResponse(
        results=[{"offset_msg_id": "7F", "queue_id": 1, "queue_offset": 7, "unique_key": UNIQUE}]
    ).SerializeToString()


_VALUE_PIECES = (
    *(r"\u0001", r"\u0002", "UNIQ_KEY", "KEYS", "WAIT", "false", "INNER_NUM", "1", "a b", "", "0017", "9" * 9, "-"),
    *(r"\n", r"\"", "\\", '"', "é", "\x00", '","i":"', '","opaque":5,"x":"', "}", "\x7f", r"\ud800"),
)
_values = st.lists(st.sampled_from(_VALUE_PIECES), max_size=6).map("".join)


def test_a_frame_that_someone_changed_means_what_it_means_when_it_is_decoded(monkeypatch):
    monkeypatch.setattr(sends, "UniqueKeyGenerator", lambda *_, **__: Mock(create=lambda: UNIQUE))
    fields = {name: str(value) for name, value in send_fields("T", properties="@P@", bornTimestamp="@B@").items()}
    template = encode(Command(V2, fields, b"", 123_454_321))[8:].decode()
    taken_count = 0

    @settings(max_examples=150)  # few of them are taken
    @given(
        st.integers(0, 10**18).map(str) | _values,
        st.just(r"UNIQ_KEY\u0001K\u0002KEYS\u0001k\u0002") | _values,
        st.integers(0, 10**10).map(str) | _values,
        st.binary(max_size=80),
        st.just(0) | st.integers(-600, 600),
        st.lists(st.tuples(st.integers(0, 600), st.integers(0, 3), st.binary(max_size=3)), max_size=2),
    )
    @example("1700000000000", r"INNER_NUM\u00011\u0002", "99", b"", 50, [])
    @example("1700000000000", r"UNIQ_KEY\u0001K\u0002", "99", b"body", 2, [])
    @example("1700000000000", r"UNIQ_KEY\u0001K\u0002", "99", b"body", 4, [])
    @example("1700000000000", r"UNIQ_KEY\u0001K\u0002", "99", b"", -1, [])
    def check(born, said, opaque, body, more_bytes, changes):
        nonlocal taken_count
        header = template.replace("@P@", said).replace("@B@", born).replace("123454321", opaque).encode()
        frame = max(len(header) + more_bytes, 0).to_bytes(4, "big") + header + body
        for at, length, instead in changes:
            frame = frame[:at] + instead + frame[at + length :]
        if len(frame) < 4:  # it is no frame for the server
            return
        outcomes = []
        for is_decoded in (False, True):
            frames = FramesOfClients()
            for number in range(2):
                frames.come(opaque=number)
            frames.ends()
            frames.connection.reset_mock()
            outcomes.append(frames.outcome(frame, is_decoded=is_decoded))
            taken_count += frames.taken_count
        assert outcomes[0] == outcomes[1]

    check()
    assert taken_count > 5  # of about forty; what is drawn differs


def test_a_frame_whose_header_is_longer_than_it_ends_its_connection_and_no_other_send_waits(stack, client, topic):
    """Two such frames stopped all small appends of a shard."""

    def frame_of(opaque, more_bytes=0, body=b"hello", **said):
        request = Command(V2, texts | said, body, opaque, language="JAVA", version=479)
        frame = encode(request)
        header_bytes = int.from_bytes(frame[4:8], "big") + more_bytes
        return frame[:4] + header_bytes.to_bytes(4, "big") + frame[8:]

    assert send(client, topic).code == 0
    texts = {name: str(value) for name, value in send_fields(topic).items()}
    for _ in range(3):
        with contextlib.closing(stack.client()) as hostile:
            for opaque in range(2):
                hostile.socket.sendall(frame_of(opaque))
                assert hostile.receive().code == 0
            bad = frame_of(9, 50, b"", i=properties(INNER_NUM="1"))
            assert decode_fails(bad[4:])
            client.send(*[client.request(V2, b"good", **send_fields(topic)) for _ in range(3)])
            hostile.socket.sendall(b"".join((*map(frame_of, (5, 6)), bad, frame_of(10))))
            assert [client.receive().code for _ in range(3)] == [0, 0, 0]
            with pytest.raises(ConnectionError):
                while True:
                    assert hostile.receive().opaque in (5, 6)
        last = send(client, topic)
        assert last.code == 0
    stored = pulled(stack, topic, count=int(last.fields["queueOffset"]) + 1)
    assert {record.body for record in stored} == {b"hello", b"good"}


def decode_fails(frame):
    with contextlib.suppress(FrameError):
        decode(frame)
        return False
    return True


def test_a_send_that_is_too_large_with_what_is_added_to_it_and_cannot_be_appended_is_refused():
    """Its connection ended without an answer."""
    frames = Frames("c" * 500)
    for opaque in range(2):
        frames.come(opaque=opaque)
    frames.shard.forwarder.append_to.side_effect = NotLeaderError("another replica leads")
    frames.come(bytes(65_000), opaque=77)
    assert frames.taken_count == 1
    (refused,) = [decode(each[4:]) for each in frames.answers()]
    assert (refused.opaque, refused.code) == (77, ResponseCode.SERVICE_NOT_AVAILABLE)


@pytest.mark.parametrize("is_decoded", [False, True])
def test_an_answer_that_cannot_be_read_costs_no_other_send_of_its_turn_the_answer(frames, is_decoded):
    for opaque in (5, 6, 7):
        frames.come(opaque=opaque, is_decoded=is_decoded)
    together = frames.ends()
    good = gateway_pb.AppendMessagesResponse(results=[{"queue_id": 1}]).SerializeToString()
    responses = [good, b"", good]
    together[0].caller.answer_together([(each.caller, r) for each, r in zip(together, responses, strict=True)])
    codes = {answer.opaque: answer.code for answer in (decode(each[4:]) for each in frames.answers())}
    assert codes == {5: OK, 6: codes[6], 7: OK}
    assert codes[6] != OK


@pytest.mark.parametrize("is_decoded", [False, True])
def test_a_connection_that_fails_costs_no_other_the_answers_to_its_sends(frames, is_decoded):
    first, frames.connection = frames.connection, Mock(peer=Address("10.0.0.2", 5), is_closed=False)
    first.answer_all.side_effect = first.answer_encoded.side_effect = ValueError("a bug")
    second, frames.connection = frames.connection, first
    frames.come(opaque=5, is_decoded=is_decoded)
    frames.connection = second
    frames.come(opaque=6, is_decoded=is_decoded)
    together = frames.ends()
    response = gateway_pb.AppendMessagesResponse(results=[{"queue_id": 1}]).SerializeToString()
    together[0].caller.answer_together([(each.caller, response) for each in together])
    assert [decode(each[4:]).opaque for each in frames.answers()] == [6]


def test_sends_of_a_program_are_answered_in_order_whether_decoded_or_not(stack, client, topic):
    answers = [send(client, topic, b"%d" % n, properties=properties(UNIQ_KEY=f"K{n}")) for n in range(6)]
    assert [answer.fields["queueOffset"] for answer in answers] == [str(n) for n in range(6)]
    assert [answer.fields["transactionId"] for answer in answers] == [f"K{n}" for n in range(6)]
    assert [record.body for record in pulled(stack, topic, count=6)] == [b"%d" % n for n in range(6)]


@pytest.mark.parametrize("flags", [[0] * 5, [3, 3, -4, 3, 3]])
@pytest.mark.parametrize("wait", ["true", "false"])
def test_a_batch_is_appended_alike_with_and_without_the_kernel(flags, wait, monkeypatch):
    monkeypatch.setattr(sends, "MESSAGE_COUNT_MAX", 2)
    entries = [BatchEntry(flag, b"%d" % n * n, b"KEYS\x01k\x02" * n) for n, flag in enumerate(flags)]
    sent = []
    for mode in (loading.AUTO, loading.OFF):
        before = loading.switch(mode)
        try:
            frames = Frames()
            header = properties(WAIT=wait)
            frames.come(encode_client_batch(entries), code=BATCH, properties=header, batch="true")
        finally:
            loading.switch(before)
        ((_, request, sender),) = [call.args for call in frames.shard.forwarder.append_to.mock_calls]
        sent.append([request, *reversed(sender._parts)])
    assert sent[0] == sent[1]
    assert [len(gateway_pb.AppendMessagesRequest.FromString(part).messages) for part in sent[0]] == [2, 2, 1]


def test_a_batch_that_the_kernel_cannot_take_apart_is_refused_by_its_byte():
    cut = encode_client_batch([BatchEntry(0, b"a", b""), BatchEntry(0, b"b", b"")])[:-1]
    with pytest.raises(InvalidMessageError, match="The message at byte 23 of the batch cannot be read"):
        Frames().come(cut, code=BATCH, batch="true")
