"""A builder that cannot write turns NOT_SERVING, answers what it knows as partial, and resumes alone."""

import json
import pathlib

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.support.stack import Stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

SECONDS_MAX = 60


def state_of(stack: Stack, service: str) -> str:
    answer = stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)
    return next(str(row.state) for row in answer.services if row.service == service)


def append(stack: Stack, topic: str, count: int) -> None:
    messages = [new_message(topic, b"body", keys=["k"]) for _ in range(count)]
    stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)


def test_a_queue_folder_that_cannot_be_made_stops_queues_alone_until_it_can(tmp_path: pathlib.Path) -> None:
    """A folder in /proc stands for a disk that refuses: it does so for root too."""
    store = tmp_path / "store"
    with running_stack(store, "--single-process") as stack:
        append(stack, "before", 5)
        stack.wait_until_built()
        (store / "consumequeue" / "blocked").symlink_to("/proc/sys/fs")
        append(stack, "blocked", 5)
        wait_until(lambda: "retrying" in state_of(stack, "consumequeue"), "it failed")

        by_key = stack.gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic="blocked", key="k"), timeout=WAIT_SECONDS_MAX
        )
        by_offset = stack.gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(topic="before", queue_id=0, queue_offset=0, max_messages=9),
            timeout=WAIT_SECONDS_MAX,
        )
        append(stack, "after", 5)

        (store / "consumequeue" / "blocked").unlink()
        stack.wait_until_built()
        wait_until(lambda: "retrying" not in state_of(stack, "consumequeue"), "it resumed")
        topics = stack.gateway.ListTopics(pb.ListTopicsRequest(), timeout=WAIT_SECONDS_MAX)

    assert len(by_key.messages) == 5
    assert by_offset.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert {row.topic for row in topics.topics} >= {"before", "blocked", "after"}
    rows = {row.topic: sum(queue.max_offset for queue in row.queues) for row in topics.topics}
    assert [rows[topic] for topic in ("before", "blocked", "after")] == [5, 5, 5]
    failures = [line for line in stack.log().splitlines() if "builder.failed" in line]
    assert len(failures) == 1, json.dumps(failures, indent=1)
