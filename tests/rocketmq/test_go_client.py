"""The official RocketMQ client for Go, unmodified, sends to a running gateway; every query finds what it sent.

Needs Go; the modules come from the module proxy once, pinned by go.sum, and the program is kept in `.tools` of the project.
"""

import os
import pathlib
import shutil
import subprocess

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.rocketmq import real_broker
from tests.support.stack import hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("go") is None, reason="needs Go"),
]

SOURCES = pathlib.Path(__file__).parent / "go"
PROGRAM = real_broker.TOOLS.with_name("official-client-go") / "official-client"
BUILD_SECONDS_MAX = 600
TOPIC = "OfficialGo"
COUNT = 6


def built_program() -> pathlib.Path:
    """The client, built when it is not there or older than its source."""
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    if not PROGRAM.exists() or PROGRAM.stat().st_mtime < newest:
        PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        command = ["go", "build", "-mod=readonly", "-o", str(PROGRAM), "."]
        done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX)
        assert done.returncode == 0, done.stderr[-3000:]
    return PROGRAM


def test_what_the_official_go_client_sends_every_query_finds(tmp_path: pathlib.Path) -> None:
    program = built_program()
    with hosted_stack(tmp_path / "store") as stack:
        done = subprocess.run(
            [str(program), stack.addresses["gateway"], TOPIC, str(COUNT)],
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS_MAX,
            env={**os.environ, "HOME": str(tmp_path)},  # it writes its logs there
        )
        assert done.returncode == 0, done.stderr[-3000:]
        receipts = [line.split("\t")[1:] for line in done.stdout.splitlines() if line.startswith("RECEIPT\t")]
        assert [int(number) for _, number in receipts] == list(range(COUNT))
        stack.wait_until_built()
        for message_id, number in receipts:
            by_unique_key = stack.gateway.QueryMessageByUniqueKey(
                pb.QueryMessageByUniqueKeyRequest(topic=TOPIC, unique_key=message_id), timeout=WAIT_SECONDS_MAX
            ).messages
            (message,) = by_unique_key
            assert message.body == f"body {number} 你好".encode()
            assert (message.tags, sorted(message.keys)) == ("TagA", ["all", f"key-{number}"])
            assert message.properties["colour"] == "red"
            by_key = stack.gateway.QueryMessageByKey(
                pb.QueryMessageByKeyRequest(topic=TOPIC, key=f"key-{number}"), timeout=WAIT_SECONDS_MAX
            )
            by_id = stack.gateway.QueryMessageById(
                pb.QueryMessageByIdRequest(offset_msg_id=message.offset_msg_id), timeout=WAIT_SECONDS_MAX
            )
            by_offset = stack.gateway.QueryMessageByOffset(
                pb.QueryMessageByOffsetRequest(
                    topic=TOPIC, queue_id=message.queue_id, queue_offset=message.queue_offset, max_messages=1
                ),
                timeout=WAIT_SECONDS_MAX,
            )
            assert [message] == list(by_key.messages) == [by_id.message] == list(by_offset.messages)
        everything = stack.gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic=TOPIC, key="all"), timeout=WAIT_SECONDS_MAX
        )
        groups = {}
        for message in everything.messages:
            group = message.properties.get("__SHARDINGKEY", "")
            groups.setdefault(group, set()).add(message.queue_id)
        assert len(everything.messages) == COUNT
        assert all(len(queues) == 1 for group, queues in groups.items() if group), "a group stays in one queue"
        assert len(groups) > 1
