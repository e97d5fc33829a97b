"""Traces on a topic of the clients' own, in stores that another program writes: followed, mirrored, copied, read-only."""

import json
import pathlib
import shutil
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.support.command import run_command
from tests.support.ports import free_port
from tests.support.stack import Stack, hosted_stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for, wait_until

pytestmark = pytest.mark.life

RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "fixtures" / "traces.json").read_text())["5.5.0"]
KEY = RECORDED["messages"]["plain"]
TRACES = "OwnTraces"
OWN = {"REPUT_GATEWAY_TRACE_TOPIC": TRACES}
EVENTS = [(pb.TRACE_KIND_SEND, pb.TRACE_OUTCOME_SUCCESS)] + [
    (pb.TRACE_KIND_CONSUME, outcome) for outcome in (pb.TRACE_OUTCOME_FAILED, pb.TRACE_OUTCOME_SUCCESS)
]


def messages() -> list:
    """The message that clients of 5.5.0 sent, and their traces on a topic of their own."""
    traces = [new_message(TRACES, bytes.fromhex(body), keys=[KEY]) for body in RECORDED["bodies"]]
    return [new_message("Orders", b"plain", unique_key=KEY, keys=["order-1"]), *traces]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Its program has ended."""
    root = tmp_path_factory.mktemp("traced") / "store"
    with hosted_stack(root) as stack:
        stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages()), timeout=WAIT_SECONDS_MAX)
        stack.wait_until_built()
    return root


def traces_of_page(address: str) -> dict[str, Any]:
    """A page has a deadline: on a busy machine it says that it has passed, and is loaded again."""

    def load() -> dict[str, Any] | None:
        with urllib.request.urlopen(address, timeout=WAIT_SECONDS_MAX) as shown:
            page: dict[str, Any] = json.load(shown)
        traces: dict[str, Any] | None = page.get("tracks", {}).get("traces")
        return None if traces is None or "deadline" in traces.get("problem", "") else traces

    return wait_for(load, "the page tells the traces")


def check(stack: Stack) -> None:
    """The RPC, the command and the console's page tell the same, also when the request names another topic."""
    request = pb.TrackMessageRequest(topic="Orders", unique_key=KEY, with_traces=True)
    answer = stack.gateway.TrackMessage(request, timeout=WAIT_SECONDS_MAX)
    assert (answer.traces.topic, answer.traces.problem) == (TRACES, "")
    assert [(each.kind, each.outcome) for each in answer.traces.events] == EVENTS
    request.trace_topic = "RMQ_SYS_TRACE_TOPIC"
    other = stack.gateway.TrackMessage(request, timeout=WAIT_SECONDS_MAX).traces
    assert (other.topic, len(other.events)) == ("RMQ_SYS_TRACE_TOPIC", 0)

    told = run_command("track", "order-1", "--address", stack.addresses["gateway"])
    assert [line.split()[1:3] for line in told.stdout.partition("tracing on\n")[2].splitlines()[2:]] == [
        *(["SEND", "SUCCESS"], ["CONSUME", "FAILED"], ["CONSUME", "SUCCESS"])
    ]
    page = f"http://{stack.addresses['console']}/messages/{answer.message.offset_msg_id}?format=json"
    for query, count in (("", 3), ("&trace_topic=RMQ_SYS_TRACE_TOPIC", 0), (f"&trace_topic={TRACES}", 3)):
        assert len(traces_of_page(page + query).get("events", [])) == count


@pytest.mark.parametrize("kind", ["follow", "read-only", "copy"])
def test_traces_are_told_of_a_store_that_another_program_has_written(
    store: pathlib.Path, tmp_path: pathlib.Path, kind: str
) -> None:
    flags: tuple[str, ...] = (f"--{kind}",)
    if kind == "follow":
        flags += ("--derived", str(tmp_path / "derived"))
    if kind == "copy":
        store, flags = pathlib.Path(shutil.copytree(store, tmp_path / "copy")), ()
    with running_stack(store, *flags, settings=OWN) as stack:
        stack.wait_until_built()
        check(stack)


@pytest.fixture
def leader(tmp_path: pathlib.Path) -> Iterator[tuple[Stack, int]]:
    """What a mirror copies, and its port."""
    port = free_port()
    settings = {"REPUT_COMMITLOG_ROCKETMQ_HA_ADDRESS": f"127.0.0.1:{port}"}
    with running_stack(tmp_path / "leader", settings=settings) as stack:
        yield stack, port


def test_traces_are_told_of_a_mirror(leader: tuple[Stack, int], tmp_path: pathlib.Path) -> None:
    written, port = leader
    answer = written.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages()), timeout=WAIT_SECONDS_MAX)
    last = max(each.commit_log_offset for each in answer.results)
    with running_stack(tmp_path / "mirror", "--mirror", f"rocketmq://127.0.0.1:{port}", settings=OWN) as mirror:

        def has_all() -> bool:
            services = mirror.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
            return any(each.service == "commitlog" and each.log_end_offset > last for each in services)

        wait_until(has_all, mirror.log)
        mirror.wait_until_built()
        check(mirror)
