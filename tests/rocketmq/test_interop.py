"""The real Apache RocketMQ is the judge: it opens our store and we open what it made of it."""

import pathlib
import re

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.gateway.rocketmq.test_official_client import send_by_official_client
from tests.pipeline.rebuild.rebuilding import assert_same_store, rebuild_here
from tests.rocketmq import real_broker
from tests.support.stack import hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

FILE_SIZES = {"mappedFileSizeCommitLog": 1048576, "mappedFileSizeConsumeQueue": 4000}
INDEX_SIZES = {"maxHashSlotNum": 500, "maxIndexNum": 1000}
OUR_SIZES = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": "1048576",
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000",
    "REPUT_INDEX_HASH_SLOT_COUNT": "500",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "1000",
}


def _fields(mqadmin_output: str) -> dict[str, str]:
    """The `Name: value` lines that mqadmin prints for one message."""
    return dict(re.findall(r"^([A-Z][A-Za-z ]+?):\s+(.*?)\s*$", mqadmin_output, re.MULTILINE))


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_a_real_broker_opens_our_store_and_mqadmin_finds_what_our_queries_find(
    tmp_path: pathlib.Path, version: str
) -> None:
    """Our store, their broker: all queries, by tags where the release has them; then their appends, our queries."""
    store = tmp_path / "store"
    broker = real_broker.RealRocketMQ(store, tmp_path / "rocketmq", version=version, **FILE_SIZES, **INDEX_SIZES)
    finds_tags = version == real_broker.VERSION
    settings = {
        **OUR_SIZES,
        "REPUT_STORE_HOST": f"127.0.0.1:{broker.broker_port}",
        "REPUT_INDEX_TAGS": "on" if finds_tags else "auto",
    }
    with hosted_stack(store, settings=settings) as stack:
        messages = [
            new_message("Orders", f"订单 {i}".encode() * 40, keys=[f"order-{i}", "shared"], tags="TagA")
            for i in range(3000)
        ]
        results = []
        for first in range(0, len(messages), 100):
            request = pb.AppendMessagesRequest(messages=messages[first : first + 100])
            results += stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX).results
        stack.wait_until_built()
        chosen = 1234
        receipt = results[chosen]
        ours = stack.gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic="Orders", key=f"order-{chosen}"), timeout=WAIT_SECONDS_MAX
        ).messages
        assert [receipt.offset_msg_id] == [message.offset_msg_id for message in ours]
        assert len(list((store / "commitlog").iterdir())) > 1, "the test wants a log of several files"

    broker.start()
    try:
        by_key = broker.mqadmin("queryMsgByKey", "-t", "Orders", "-k", f"order-{chosen}")
        assert re.search(
            rf"^{receipt.unique_key}\s+{receipt.queue_id}\s+{receipt.queue_offset}\s", by_key, re.MULTILINE
        )
        if finds_tags:
            by_tag = broker.mqadmin("queryMsgByKey", "-t", "Orders", "-k", "TagA", "-p", "T")
            assert set(re.findall(r"^([0-9A-F]{32})\s", by_tag, re.MULTILINE)) == {
                result.unique_key for result in results[-64:]
            }

        expected = {
            "Topic": "Orders",
            "Tags": "[TagA]",
            "Keys": f"[order-{chosen} shared]",
            "Queue ID": str(receipt.queue_id),
            "Queue Offset": str(receipt.queue_offset),
            "CommitLog Offset": str(receipt.commit_log_offset),
        }
        for query in (
            ("queryMsgById", "-t", "Orders", "-i", receipt.offset_msg_id),
            ("queryMsgByUniqueKey", "-t", "Orders", "-i", receipt.unique_key),
            *[
                (
                    "queryMsgByOffset",
                    "-t",
                    "Orders",
                    "-b",
                    "broker-a",
                    "-i",
                    str(receipt.queue_id),
                    "-o",
                    str(receipt.queue_offset),
                )
            ],
        ):
            found = _fields(broker.mqadmin(*query))
            assert expected == {name: found.get(name) for name in expected}, query
            assert messages[chosen].body == pathlib.Path(found["Message Body Path"]).read_bytes(), query

        theirs = broker.send("Orders", "java-", 50)
        assert len(theirs) == 50
    finally:
        broker.stop()

    with hosted_stack(store, settings=settings) as stack:
        stack.wait_until_built()
        for i, (unique_key, offset_msg_id, queue_id, queue_offset) in enumerate(theirs):
            by_key = stack.gateway.QueryMessageByKey(
                pb.QueryMessageByKeyRequest(topic="Orders", key=f"java-{i}"), timeout=WAIT_SECONDS_MAX
            ).messages
            by_id = stack.gateway.QueryMessageById(
                pb.QueryMessageByIdRequest(offset_msg_id=offset_msg_id), timeout=WAIT_SECONDS_MAX
            ).message
            by_unique_key = stack.gateway.QueryMessageByUniqueKey(
                pb.QueryMessageByUniqueKeyRequest(topic="Orders", unique_key=unique_key), timeout=WAIT_SECONDS_MAX
            ).messages
            by_offset = stack.gateway.QueryMessageByOffset(
                pb.QueryMessageByOffsetRequest(
                    topic="Orders", queue_id=queue_id, queue_offset=queue_offset, max_messages=1
                ),
                timeout=WAIT_SECONDS_MAX,
            ).messages
            assert f"java- body {i}".encode() == by_id.body
            assert [by_id] == list(by_key) == list(by_unique_key) == list(by_offset)
        if finds_tags:
            request = pb.QueryMessageByKeyRequest(topic="Orders", key="TagJ", key_type=pb.KEY_TYPE_TAGS)
            by_tag_here = stack.gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)
            assert [message.unique_key for message in by_tag_here.messages] == [row[0] for row in reversed(theirs)]
            assert by_tag_here.completeness == message_pb2.COMPLETENESS_COMPLETE
        again = stack.gateway.AppendMessages(
            pb.AppendMessagesRequest(messages=[new_message("Orders", b"after the broker", queue_id=theirs[-1][2])]),
            timeout=WAIT_SECONDS_MAX,
        ).results[0]
        assert again.queue_offset > theirs[-1][3], "queue offsets go on behind what the broker appended"
    # What both wrote is what a rebuild from the log gives, entries of tags included.
    report = rebuild_here(store, tmp_path / "rebuilt")
    assert_same_store(tmp_path / "rebuilt", store)
    assert any("tags" in note for note in report.notes) == finds_tags


def test_mqadmin_finds_what_an_official_client_sent_to_our_gateway(tmp_path: pathlib.Path) -> None:
    """RocketMQ's own gRPC contract: their client, our gateway, their broker on our store."""
    store = tmp_path / "store"
    broker = real_broker.RealRocketMQ(store, tmp_path / "rocketmq", **FILE_SIZES, **INDEX_SIZES)
    settings = {**OUR_SIZES, "REPUT_STORE_HOST": f"127.0.0.1:{broker.broker_port}"}
    with hosted_stack(store, settings=settings) as stack:
        receipts = send_by_official_client(stack.addresses["gateway"], "Official", 4)
        stack.wait_until_built()
    broker.start()
    try:
        for number, receipt in enumerate(receipts):
            by_key = broker.mqadmin("queryMsgByKey", "-t", "Official", "-k", f"key-{number}")
            index_key = rf"\d+@Official@K@key-{number}@{receipt['message_id']}@\d+"
            row = rf"^{receipt['message_id']}\s+\d+\s+{receipt['offset']}\s+{index_key}\s*$"
            assert re.search(row, by_key, re.MULTILINE), by_key
        found = _fields(broker.mqadmin("queryMsgByUniqueKey", "-t", "Official", "-i", str(receipts[0]["message_id"])))
        assert pathlib.Path(found["Message Body Path"]).read_bytes() == "body 0 你好".encode()
        assert found["Tags"] == "[TagA]"
    finally:
        broker.stop()
