"""The official RocketMQ clients, unmodified, send to a running gateway; every query finds what they sent."""

import json
import pathlib
import subprocess
import sys

import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.rocketmq import real_broker
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX

JAVA_SOURCES = pathlib.Path(__file__).with_name("java")
CLIENT = pathlib.Path(__file__).with_name("official_client.py")
TOPIC = "Official"
COUNT = 6


def send_by_official_client(gateway: str, topic: str, count: int) -> list[dict[str, object]]:
    """The receipts, in the order of sending; bodies, keys and groups as official_client.py makes them."""
    done = subprocess.run(
        [sys.executable, str(CLIENT), gateway, topic, str(count)],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    receipts: list[dict[str, object]] = json.loads(done.stdout)
    return receipts


def check(stack: HostedStack, number: int, message_id: str, queue_offset: int | None = None) -> None:
    gateway = stack.gateway
    by_unique_key = gateway.QueryMessageByUniqueKey(
        pb.QueryMessageByUniqueKeyRequest(topic=TOPIC, unique_key=message_id), timeout=WAIT_SECONDS_MAX
    ).messages
    assert len(by_unique_key) == 1
    message = by_unique_key[0]
    assert message.body == f"body {number} 你好".encode()
    assert (message.tags, sorted(message.keys)) == ("TagA", ["all", f"key-{number}"])
    assert message.properties["colour"] == "red"
    assert queue_offset in (None, message.queue_offset)
    by_key = gateway.QueryMessageByKey(
        pb.QueryMessageByKeyRequest(topic=TOPIC, key=f"key-{number}"), timeout=WAIT_SECONDS_MAX
    )
    by_id = gateway.QueryMessageById(
        pb.QueryMessageByIdRequest(offset_msg_id=message.offset_msg_id), timeout=WAIT_SECONDS_MAX
    )
    by_offset = gateway.QueryMessageByOffset(
        pb.QueryMessageByOffsetRequest(
            topic=TOPIC, queue_id=message.queue_id, queue_offset=message.queue_offset, max_messages=1
        ),
        timeout=WAIT_SECONDS_MAX,
    )
    assert [message] == list(by_key.messages) == [by_id.message] == list(by_offset.messages)


def test_what_the_official_client_sends_every_query_finds(tmp_path: pathlib.Path) -> None:
    with hosted_stack(tmp_path / "store") as stack:
        receipts = send_by_official_client(stack.addresses["gateway"], TOPIC, COUNT)
        assert len(receipts) == COUNT
        stack.wait_until_built()
        for number, receipt in enumerate(receipts):
            check(stack, number, str(receipt["message_id"]), int(str(receipt["offset"])))

        admin = v2_grpc.AdminStub(stack.channel)
        topic = v2.Resource(name=TOPIC)
        found = admin.QueryMessage(v2.ListMessageRequest(topic=topic, message_key="all"), timeout=WAIT_SECONDS_MAX)
        assert found.status.code == v2.OK
        assert {m.system_properties.message_id for m in found.messages} == {r["message_id"] for r in receipts}
        spans = admin.QueryTimeSpan(
            v2.QueryTimeSpanRequest(topics=[topic]), timeout=WAIT_SECONDS_MAX
        ).queue_time_span_list
        times = [m.system_properties.store_timestamp.ToMilliseconds() for m in found.messages]
        assert min(span.min_timestamp for span in spans if span.min_timestamp) == min(times)
        assert max(span.max_timestamp for span in spans) == max(times)

        same_group = [
            m.system_properties.queue_id for m in found.messages if m.system_properties.message_group == "group-1"
        ]
        assert len(set(same_group)) == 1, "a group stays in one queue"


@pytest.mark.rocketmq
@pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable()))
def test_what_the_official_java_client_sends_every_query_finds(tmp_path: pathlib.Path) -> None:
    classpath = real_broker.build_classpath(JAVA_SOURCES, real_broker.TOOLS.with_name("official-client"))
    with hosted_stack(tmp_path / "store") as stack:
        java = ["java", "-Dfile.encoding=UTF-8", f"-Duser.home={tmp_path}", "-cp", classpath, "OfficialClient"]
        done = subprocess.run(
            [*java, stack.addresses["gateway"], TOPIC, str(COUNT)],
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS_MAX,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        lines = [line.split("\t") for line in done.stdout.splitlines() if line.startswith("RECEIPT\t")]
        assert len(lines) == COUNT
        stack.wait_until_built()
        for _, message_id, number in lines:
            check(stack, int(number), message_id)
