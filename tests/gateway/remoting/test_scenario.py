"""A scenario whose answers were recorded of RocketMQ 5.5.0, and where the door's differ on purpose."""

import contextlib
import json

from tests.gateway.remoting.conftest import DoorStack
from tests.gateway.remoting.scenario import ANSWERS, DIFFERENT, play


def test_a_scenario_is_answered_as_by_rocketmq(tmp_path):
    with contextlib.closing(DoorStack(tmp_path)) as stack, contextlib.closing(stack.client()) as client:
        rows = play(client)
    expected = [json.loads(line) for line in ANSWERS.read_text().splitlines()]
    differing = [
        ours["step"] for ours, theirs in zip(json.loads(json.dumps(rows)), expected, strict=True) if ours != theirs
    ]
    assert differing == list(DIFFERENT)
