"""Reput beside a real broker that is under load: every query equals the broker's log, and nothing of the broker is touched."""

import os
import pathlib
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.rocketmq import real_broker
from tests.support.fixture_stores import walk_frames
from tests.support.log_queries import check_queries, wait_until_shown
from tests.support.stack import Stack, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

SIZES = {"mappedFileSizeCommitLog": 131_072, "mappedFileSizeConsumeQueue": 4_000}
COUNT = 600
O_ACCMODE = os.O_RDONLY | os.O_WRONLY | os.O_RDWR


def files_open_for_writing(stack: Stack, root: pathlib.Path) -> list[str]:
    """What the services have open below a directory with the right to write."""
    found = []
    for pid in [stack.process.pid, *stack.children().values()]:
        for entry in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
            try:
                target = os.readlink(f"/proc/{pid}/fd/{entry.name}")
                flags = re.search(r"^flags:\s+(\d+)", entry.read_text(), re.MULTILINE)
            except FileNotFoundError:
                continue  # closed just now
            if flags and target.startswith(f"{root}/") and int(flags.group(1), 8) & O_ACCMODE != os.O_RDONLY:
                found.append(target)
    return found


@pytest.mark.parametrize("version", real_broker.STORE_VERSIONS)
def test_queries_beside_a_broker_under_load_equal_its_log(tmp_path: pathlib.Path, version: str) -> None:
    """Producers send while Reput follows; then the broker starts again, and goes on."""
    store, derived = tmp_path / "store", tmp_path / "derived"
    broker = real_broker.RealRocketMQ(store, tmp_path / "rocketmq", version=version, **SIZES)
    broker.start()
    try:
        broker.send("Orders", "before", 50)
        with (
            running_stack(store, "--follow", "--derived", str(derived)) as stack,
            ThreadPoolExecutor(2) as producers,
        ):
            sends = [producers.submit(broker.send, topic, topic.lower(), COUNT) for topic in ("Orders", "Payments")]
            receipts = [receipt for send in sends for receipt in send.result()]
            assert len(receipts) == 2 * COUNT
            for unique_key, offset_msg_id, _, _ in receipts[-5:]:
                wait_until(
                    lambda key=unique_key: (
                        stack.gateway.FindMessage(pb.FindMessageRequest(text=key), timeout=WAIT_SECONDS_MAX).matches
                    ),
                    f"{unique_key} is found",
                )
                by_id = stack.gateway.QueryMessageById(
                    pb.QueryMessageByIdRequest(offset_msg_id=offset_msg_id), timeout=WAIT_SECONDS_MAX
                )
                assert by_id.message.unique_key == unique_key
            broker.stop()
            broker.start()
            broker.send("Orders", "after", 100)
            frames = list(walk_frames(store))
            assert len(frames) >= 2 * COUNT + 150
            wait_until_shown(stack, frames[-1][0] + len(frames[-1][1]))
            check_queries(stack, frames)
            assert files_open_for_writing(stack, store) == []
            assert "log.damaged" not in stack.log()
            assert "log.changed_by_owner" not in stack.log()
        assert not (store / "reput").exists()
        assert len(list((store / "commitlog").iterdir())) > 2, "the test wants a log of several files"
    finally:
        broker.stop()
