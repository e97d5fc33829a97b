"""Traces of RocketMQ's clients over a real stack: what TrackMessage, `reput track` and the client library say of them."""

import json
import pathlib
from collections.abc import Iterator

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import QueryClient, TraceKind, TraceOutcome
from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX

RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "fixtures" / "traces.json").read_text())["4.9.8"]
KEYS = RECORDED["messages"]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    """The messages of the recorded clients, and a message that no client told of; the traces on two topics."""
    messages = [new_message("Orders", name.encode(), unique_key=key) for name, key in KEYS.items()]
    messages.append(new_message("Orders", b"untold", unique_key="untold", keys=["untold-1"]))
    for topic in ("RMQ_SYS_TRACE_TOPIC", "OwnTraces"):
        messages += [new_message(topic, bytes.fromhex(body), keys=list(KEYS.values())) for body in RECORDED["bodies"]]
    with hosted_stack(tmp_path_factory.mktemp("traced") / "store") as stack:
        stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
        stack.wait_until_built()
        yield stack


def events(stack: HostedStack, unique_key: str, **asked: object) -> list[tuple[str, str]]:
    request = pb.TrackMessageRequest(topic="Orders", unique_key=unique_key, with_traces=True, **asked)
    found = stack.gateway.TrackMessage(request, timeout=WAIT_SECONDS_MAX).traces
    assert (found.damaged_count, found.has_more, found.problem) == (0, False, "")
    return [(pb.TraceKind.Name(each.kind)[11:], pb.TraceOutcome.Name(each.outcome)[14:]) for each in found.events]


def test_a_message_is_tracked_with_what_its_clients_told(traced: HostedStack) -> None:
    send, consumed, again = ("SEND", "SUCCESS"), ("CONSUME", "SUCCESS"), ("CONSUME", "FAILED")
    assert events(traced, KEYS["plain"], trace_topic="OwnTraces") == [send, again, consumed]
    assert events(traced, KEYS["committed"], trace_topic="OwnTraces") == [
        send,
        ("END_TRANSACTION", "UNSPECIFIED"),
        consumed,
    ]
    assert events(traced, KEYS["rolled-back"]) == [send, ("END_TRANSACTION", "UNSPECIFIED")]


def test_traces_are_told_only_where_they_are_asked_for_and_on_the_first_page(traced: HostedStack) -> None:
    unasked = pb.TrackMessageRequest(topic="Orders", unique_key=KEYS["plain"])
    assert not traced.gateway.TrackMessage(unasked, timeout=WAIT_SECONDS_MAX).HasField("traces")


def test_a_message_of_which_no_client_told_has_no_traces_and_no_problem(traced: HostedStack) -> None:
    assert events(traced, "untold") == []
    assert events(traced, KEYS["plain"], trace_topic="Absent") == []


def test_the_client_library_has_the_same_events_with_their_times(traced: HostedStack) -> None:
    with QueryClient(traced.addresses["gateway"]) as client:
        answer = client.track(topic="Orders", unique_key=KEYS["plain"], with_traces=True)
        assert client.track(topic="Orders", unique_key=KEYS["plain"]).traces is None
    assert answer.traces is not None
    sent, *consumed = answer.traces.events
    assert (sent.kind, sent.outcome, sent.group) == (TraceKind.SEND, TraceOutcome.SUCCESS, "J498-group-senders")
    assert {(each.kind, each.group) for each in consumed} == {(TraceKind.CONSUME, "J498-group")}
    for each in consumed:
        assert each.begin_time
        assert each.end_time
        assert each.begin_time <= each.end_time


def test_the_command_prints_the_events_below_the_groups(traced: HostedStack) -> None:
    at = ("--address", traced.addresses["gateway"])
    told = run_command("track", "-t", "Orders", "-i", KEYS["committed"], "--trace-topic", "OwnTraces", *at)
    assert told.returncode == 0
    below = told.stdout.partition("told by clients with tracing on\n")[2].splitlines()
    assert [line.split()[1:4] for line in below[2:]] == [
        ["SEND", "SUCCESS", "J498-group-verdicts"],
        ["END_TRANSACTION", "COMMIT_MESSAGE", "J498-group-verdicts"],
        ["CONSUME", "SUCCESS", "J498-group"],
    ]
    assert "no trace" not in told.stderr

    untold = run_command("track", "untold-1", *at)
    assert (untold.returncode, "told by" in untold.stdout) == (0, False)
    assert "no trace of it was sent to RMQ_SYS_TRACE_TOPIC" in untold.stderr
    assert "no trace" not in run_command("track", "untold-1", "--no-traces", *at).stderr
    document = json.loads(run_command("track", "untold-1", "-o", "json", *at).stdout)
    assert document["traces"] == {
        **{"events": [], "topic": "RMQ_SYS_TRACE_TOPIC"},
        **{"damaged_count": 0, "has_more": False, "problem": ""},
    }


@pytest.mark.parametrize("name", KEYS)
def test_the_verb_of_mqadmin_prints_what_mqadmin_prints(traced: HostedStack, name: str) -> None:
    printed = run_command("queryMsgTraceById", "-i", KEYS[name], "--address", traced.addresses["gateway"])
    assert (printed.returncode, printed.stderr) == (0, "")
    assert [line for line in printed.stdout.splitlines() if line] == RECORDED["mqadmin"][name]


def test_the_verb_of_mqadmin_tells_where_it_found_nothing(traced: HostedStack) -> None:
    at = ("--address", traced.addresses["gateway"])
    untold = run_command("queryMsgTraceById", "-i", "untold", *at)
    assert (untold.returncode, untold.stdout) == (1, "")
    assert untold.stderr == "no trace found: that says nothing of consumers\n"
    absent = run_command("queryMsgTraceById", "-i", KEYS["plain"], "-t", "Absent", *at)
    assert (absent.returncode, absent.stdout) == (1, "")
    assert "no trace was sent there" in absent.stderr


def test_the_verb_of_mqadmin_has_verdicts_in_its_documents(traced: HostedStack) -> None:
    at = ("-o", "json", "--address", traced.addresses["gateway"])
    document = json.loads(run_command("queryMsgTraceById", "-i", KEYS["rolled-back"], *at).stdout)
    assert [(row["type"], row["verdict"]) for row in document["traces"]] == [
        ("Pub", ""),
        ("EndTransaction", "ROLLBACK_MESSAGE"),
    ]
    assert document["damaged_count"] == 0
