"""Topics by command, here and by the real mqadmin: both write the same table, and each goes on from the other's."""

import json
import pathlib
from typing import Any

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.rocketmq import real_broker
from tests.support.stack import hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

FILE_SIZES = {"mappedFileSizeCommitLog": 1048576, "mappedFileSizeConsumeQueue": 4000}
OUR_SIZES = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": "1048576", "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000"}


def table(store: pathlib.Path) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = json.loads((store / "config" / "topics.json").read_text())["topicConfigTable"]
    return rows


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_topics_of_mqadmin_and_of_our_commands_are_written_alike(tmp_path: pathlib.Path, version: str) -> None:
    store = tmp_path / "store"
    broker = real_broker.RealRocketMQ(store, tmp_path / "rocketmq", version=version, **FILE_SIZES)

    def update_topic(topic: str, count: int, *flags: str) -> str:
        counts = ("-r", str(count), "-w", str(count))
        return broker.mqadmin("updateTopic", "-b", f"127.0.0.1:{broker.broker_port}", "-t", topic, *counts, *flags)

    broker.start()
    try:
        assert "success" in update_topic("Theirs", 4, "-a", "+message.type=FIFO")
        assert "success" in update_topic("Plain", 3, "-p", "4")
        assert "conflict with system topic" in update_topic("rmq_sys_any", 1)
    finally:
        broker.stop()
    theirs = table(store)
    assert theirs["Theirs"]["attributes"] == {"message.type": "FIFO"}

    with hosted_stack(store, settings={**OUR_SIZES, "REPUT_STORE_HOST": f"127.0.0.1:{broker.broker_port}"}) as stack:
        stack.gateway.CreateTopic(
            pb.CreateTopicRequest(topic="Ours", queue_count=4, message_type=message_pb2.MESSAGE_TYPE_FIFO),
            timeout=WAIT_SECONDS_MAX,
        )
        stack.gateway.CreateTopic(
            pb.CreateTopicRequest(topic="OursPlain", queue_count=3, perm=4), timeout=WAIT_SECONDS_MAX
        )
        stack.gateway.CreateTopic(pb.CreateTopicRequest(topic="Theirs", queue_count=4), timeout=WAIT_SECONDS_MAX)
        stack.gateway.AppendMessages(
            pb.AppendMessagesRequest(messages=[new_message("Gone", b"still there", keys=["k"])]),
            timeout=WAIT_SECONDS_MAX,
        )
        stack.wait_until_built()
        assert list(
            stack.gateway.DeleteTopic(pb.DeleteTopicRequest(topic="Gone"), timeout=WAIT_SECONDS_MAX).broker_names
        )
        updated = stack.gateway.UpdateTopic(
            pb.UpdateTopicRequest(topic="Plain", message_type=message_pb2.MESSAGE_TYPE_DELAY), timeout=WAIT_SECONDS_MAX
        ).topics[0]
        assert (updated.write_queue_count, updated.perm) == (3, 4)
    ours = table(store)
    assert ours["Ours"] == theirs["Theirs"] | {"topicName": "Ours"}
    assert ours["OursPlain"] == theirs["Plain"] | {"topicName": "OursPlain"}
    assert ours["Plain"] == theirs["Plain"] | {"attributes": {"message.type": "DELAY"}}
    assert ours["Theirs"] == theirs["Theirs"]
    assert "Gone" not in ours

    broker.start()
    try:
        route = broker.mqadmin("topicRoute", "-t", "Ours")
        assert '"writeQueueNums":4' in route.replace(" ", ""), route
        assert "success" in update_topic("Ours", 4, "-a", "+message.type=NORMAL")
        assert "still there" not in broker.mqadmin("topicRoute", "-t", "Gone")
    finally:
        broker.stop()
    assert table(store)["Ours"]["attributes"] == {"message.type": "NORMAL"}
    assert "Gone" not in table(store)
