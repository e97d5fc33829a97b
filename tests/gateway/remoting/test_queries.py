"""Messages by key, unique key and byte of the log over the door, with the answers of RocketMQ 5.5.0."""

import contextlib

import pytest

from gateway.remoting import queries
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import loads
from store.format.java_text import java_string_hash
from store.format.message_id import decode_offset_msg_id
from store.format.record import decode_record
from tests.support.waiting import wait_until

ALWAYS = {"beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}
TOPIC = "asked"


@pytest.fixture(scope="module")
def receipts(stack):
    """Those of messages that are in the index, too."""
    receipts = [
        *stack.append(TOPIC, keys=["k1", "k2"], tags="A", properties={"p": "q"}),
        *stack.append(TOPIC, keys=["k2"]),
        *stack.append(TOPIC, keys=["k2"]),
    ]
    with contextlib.closing(stack.client()) as client:
        wait_until(lambda: indexed_until(client) > receipts[-1].commit_log_offset, "the index is built")
    return receipts


def indexed_until(client):
    return int(by_key(client, "k2").fields.get("indexLastUpdatePhyoffset", "-1"))


def by_key(client, key, topic=TOPIC, count=10, **more):
    return client.call(RequestCode.QUERY_MESSAGE, topic=topic, key=key, maxNum=count, **{**ALWAYS, **more})


def records_of(answer):
    data, records = answer.body, []
    while data:
        size = int.from_bytes(data[:4], "big")
        records.append(decode_record(data[:size]))
        data = data[size:]
    return records


def test_messages_of_a_key_come_in_the_order_of_the_log_and_the_newest_count(client, receipts):
    first, second, third = (each.commit_log_offset for each in receipts)

    found = by_key(client, "k2")
    assert [record.commit_log_offset for record in records_of(found)] == [first, second, third]
    assert int(found.fields["indexLastUpdatePhyoffset"]) > third
    assert int(found.fields["indexLastUpdateTimestamp"]) > 1_700_000_000_000
    assert [record.commit_log_offset for record in records_of(by_key(client, "k2", count=2))] == [second, third]
    (only,) = records_of(by_key(client, "k1"))
    assert (only.topic, only.body, only.keys, only.tags) == (TOPIC, b"x", ("k1", "k2"), "A")
    assert only.properties["p"] == "q"


def test_messages_that_are_longer_than_a_frame_together_are_cut_to_the_newest(client, receipts, monkeypatch):
    whole = by_key(client, "k2")
    second, third = (record.store_size_bytes for record in records_of(whole)[1:])
    monkeypatch.setattr(queries, "ANSWER_BYTES_MAX", second + third, raising=False)
    assert [record.commit_log_offset for record in records_of(by_key(client, "k2"))] == [
        receipt.commit_log_offset for receipt in receipts[1:]
    ]
    monkeypatch.setattr(queries, "ANSWER_BYTES_MAX", 1)
    assert len(records_of(by_key(client, "k2"))) == 1


def test_a_unique_key_is_found_with_its_flag_and_without(client, receipts):
    key = receipts[1].unique_key

    for more in ({"_UNIQUE_KEY_QUERY": "true"}, {}):
        (record,) = records_of(by_key(client, key, **more))
        assert record.commit_log_offset == receipts[1].commit_log_offset


def test_what_is_not_found_is_told_as_rocketmq_tells_it(client, receipts):
    for topic, key, more in (
        (TOPIC, "k3", {}),
        ("nowhere", "k1", {}),
        (TOPIC, "k1", {"endTimestamp": 1}),
    ):
        answer = by_key(client, key, topic, **more)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.remark == "can not find message, maybe time range not correct"
        assert answer.fields == {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}


def test_a_message_is_seen_by_the_byte_that_its_id_names(client, receipts):
    _, offset = decode_offset_msg_id(receipts[0].offset_msg_id)

    (record,) = records_of(client.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset))
    assert (record.commit_log_offset, record.body) == (receipts[0].commit_log_offset, b"x")
    absent = client.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=99_999_999)
    assert absent.code == ResponseCode.SYSTEM_ERROR
    assert absent.remark.startswith("can not find message by the offset, 99999999")


def test_a_message_that_was_just_sent_is_found_by_its_key(client, stack):
    for number in range(5):
        stack.store.append("fresh", b"x", keys=[f"now-{number}"])
        assert len(records_of(by_key(client, f"now-{number}", "fresh"))) == 1


def test_a_query_by_tags_of_an_index_without_entries_of_tags_is_refused_by_name(client, receipts):
    refused = by_key(client, "A", indexType="T")
    assert refused.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
    assert "no entries of tags: set REPUT_INDEX_TAGS=on" in refused.remark


def test_the_units_of_a_queue_are_told_with_its_range(client, receipts):
    fields = {"topic": TOPIC, "queueId": 0, "index": 0, "count": 2, "consumerGroup": "nobody"}
    told = loads(client.call(RequestCode.QUERY_CONSUME_QUEUE, **fields).body)
    units = told.pop("queueData")
    assert told == {"filterData": f"nobody@{TOPIC} is not online!", "maxQueueIndex": 3, "minQueueIndex": 0}
    assert [unit["physicOffset"] for unit in units] == [receipt.commit_log_offset for receipt in receipts[:2]]
    assert units[0]["tagsCode"] == java_string_hash("A")
    behind = client.call(RequestCode.QUERY_CONSUME_QUEUE, **{**fields, "index": 3})
    assert (behind.code, behind.body, behind.remark) == (0, b"", f"Index 3 of 0@{TOPIC} is not exist!")
    absent = client.call(RequestCode.QUERY_CONSUME_QUEUE, **{**fields, "topic": "nowhere"})
    assert (absent.code, absent.remark) == (ResponseCode.SYSTEM_ERROR, "0@nowhere is not exist!")
