"""Real services with ConsumeQueueExt: consumers filter by its tags codes, after a kill and after each switch."""

import pathlib

import pytest

from cli.main import main
from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.support.stack import HostedStack, Stack, hosted_stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX

pytestmark = pytest.mark.life

SIZES = {"REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "400"}
EXT = {"REPUT_CONSUMEQUEUE_EXT": "true", "REPUT_CONSUMEQUEUE_EXT_FILE_SIZE_BYTES": "512"}


def append(stack: HostedStack | Stack, first: int, count: int) -> None:
    messages = [
        new_message("T", b"body %d" % n, keys=[f"k{n}"], tags=f"Tag{n % 3}", properties={"n": str(n)}, queue_id=0)
        for n in range(first, first + count)
    ]
    stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
    stack.wait_until_built()


def pulled(stack: HostedStack | Stack, wanted: pb.MessageFilter) -> list[int]:
    answers = stack.gateway.PullMessages(
        pb.PullMessagesRequest(topic="T", max_messages=500, filter=wanted), timeout=WAIT_SECONDS_MAX
    )
    return [int(message.properties["n"]) for answer in answers for message in answer.messages]


def check_filters(stack: HostedStack | Stack, count: int) -> None:
    assert pulled(stack, pb.MessageFilter(tags="Tag1 || Tag2")) == [n for n in range(count) if n % 3]
    assert pulled(stack, pb.MessageFilter(sql="n > 20 AND TAGS = 'Tag0'")) == list(range(21, count, 3))


def test_filters_are_right_with_ext_units_and_when_they_are_switched(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    folder = store / "consumequeue_ext/T/0"
    with hosted_stack(store, settings=SIZES) as stack:
        append(stack, 0, 60)
        check_filters(stack, 60)
    assert not folder.exists()
    with running_stack(store, settings=SIZES | EXT) as stack:
        stack.wait_until_built()
        check_filters(stack, 60)
        append(stack, 60, 60)
        check_filters(stack, 120)
        stack.kill()
    assert len(list(folder.iterdir())) == 5  # of 25 units each
    with hosted_stack(store, settings=SIZES | EXT) as stack:
        stack.wait_until_built()
        append(stack, 120, 30)
        check_filters(stack, 150)
    assert main(["fsck", str(store)]) == 0, capsys.readouterr().out
    with hosted_stack(store, settings=SIZES) as stack:
        stack.wait_until_built()
        check_filters(stack, 150)
    assert list(folder.iterdir()) == []
