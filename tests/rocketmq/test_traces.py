"""Traces that unmodified Java clients of three releases send to a real broker: Reput tells what the real mqadmin tells."""

import pathlib
import subprocess

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.rocketmq import real_broker, remoting_programs
from tests.support.failures import watch_log
from tests.support.stack import hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

TOPIC, GROUP, TRACES = "Traced", "handlers", "OwnTraces"


def sent_by(version: str, namesrv: str, home: pathlib.Path) -> dict[str, str]:
    """The unique keys of the messages of a client with tracing on, by name."""
    *java, _ = remoting_programs.built(f"java-{version}")
    home.mkdir()
    flags = (f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}")
    command = [java[0], *flags, *java[1:], "TracedClient", namesrv, TOPIC, GROUP, TRACES]
    watch_log(home)
    done = subprocess.run(command, capture_output=True, text=True, cwd=home, timeout=remoting_programs.RUN_SECONDS_MAX)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {row[1]: row[2] for row in rows if row[0] == "MESSAGE"}


def told_by_mqadmin(printed: str) -> list[tuple[str, str, str]]:
    """Group, cost and status of each line, in any order."""
    rows = [line.split() for line in printed.splitlines() if line.startswith(("Pub", "Sub"))]
    return sorted((row[1], row[-2], row[-1]) for row in rows)


@pytest.mark.parametrize(
    "version", ["5.5.0", *(pytest.param(each, marks=pytest.mark.release) for each in ("4.9.8", "5.3.3"))]
)
def test_a_track_tells_what_a_real_client_sent_to_a_real_broker(tmp_path: pathlib.Path, version: str) -> None:
    store = tmp_path / "store"
    sizes = {"mappedFileSizeCommitLog": 8_000_000, "mappedFileSizeConsumeQueue": 4_000}
    with real_broker.real_rocketmq(store, tmp_path / "rocketmq", **sizes) as broker:
        keys = sent_by(version, broker.namesrv, tmp_path / "client")
        printed: dict[str, list[tuple[str, str, str]]] = {}
        for name, key in keys.items():

            def is_told(name: str = name, key: str = key) -> bool:
                # On a busy machine it gives up after three seconds, with a text and no status.
                printed[name] = told_by_mqadmin(broker.mqadmin("queryMsgTraceById", "-i", key, "-t", TRACES))
                return bool(printed[name])

            wait_until(is_told, f"mqadmin tells of {name}")
    assert len(printed["plain"]) == 3, "sent once, handled twice"
    with hosted_stack(store, read_only=True) as stack:
        stack.wait_until_built()
        for name, key in keys.items():
            request = pb.TrackMessageRequest(topic=TOPIC, unique_key=key, with_traces=True, trace_topic=TRACES)
            traces = stack.gateway.TrackMessage(request, timeout=WAIT_SECONDS_MAX).traces
            assert (traces.damaged_count, traces.has_more, traces.problem) == (0, False, "")
            told = [each for each in traces.events if each.kind in (pb.TRACE_KIND_SEND, pb.TRACE_KIND_CONSUME)]
            statuses = ("success" if each.outcome == pb.TRACE_OUTCOME_SUCCESS else "failed" for each in told)
            shown = [
                (each.group, f"{each.cost.ToMilliseconds()}ms", status)
                for each, status in zip(told, statuses, strict=True)
            ]
            assert sorted(shown) == printed[name]
            verdicts = [each.verdict for each in traces.events if each.kind == pb.TRACE_KIND_END_TRANSACTION]
            assert verdicts == {"committed": ["COMMIT_MESSAGE"], "rolled-back": ["ROLLBACK_MESSAGE"]}.get(name, [])
