"""Search beside a running stack: `reput search`, a cancel that reaches the shard's scan, processes that end with theirs."""

import json
import pathlib
import re
import subprocess
import time
from collections.abc import Iterator

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from services.status import from_rpc_error
from store.errors import InvalidArgumentError
from tests.support.command import run_command
from tests.support.processes import children_of
from tests.support.stack import Stack, new_message, running_stack

TOPIC = "Search"
COUNT = 3_000
TEN = "[1,2,3,4,5,6,7,8,9,10]"
# A text of 1,000 characters, eight times as long with each of eight steps: 16 GiB, if it could.
GREEDY = "size(" + "[" * 8 + f"'{'x' * 1000}'" + "].map(a, a + a + a + a + a + a + a + a)[0]" * 8 + ") < 0"
ENDLESS = "".join(f"{TEN}.all({name}, " for name in "abcdefghijkl") + "true" + ")" * 12


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("search") / "store", "--single-process") as running:
        for begin in range(0, COUNT, 500):
            messages = [
                new_message(
                    TOPIC,
                    b"body %d\xff" % number,
                    queue_id=number % 4,
                    tags="even" if number % 2 == 0 else "odd",
                    properties={"number": str(number)},
                )
                for number in range(begin, begin + 500)
            ]
            running.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=30)
        running.wait_until_built()
        yield running


def reput(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("search", "-t", TOPIC, *arguments, REPUT_ADDRESS=stack.addresses["gateway"])


def numbers(done: subprocess.CompletedProcess[str]) -> list[int]:
    return [int(json.loads(line)["properties"]["number"]) for line in done.stdout.splitlines()]


def in_queues(matching: Iterator[int] | range) -> list[int]:
    return sorted(matching, key=lambda number: (number % 4, number))


def test_the_command_finds_by_tag_property_body_and_expression(stack: Stack) -> None:
    found = reput(stack, "--tag", "even", "--text", "body 77", "-o", "jsonl")
    assert found.returncode == 0, found.stderr
    assert numbers(found) == in_queues(n for n in range(COUNT) if n % 2 == 0 and f"body {n}".startswith("body 77"))
    assert numbers(reput(stack, "--property", "number=1234", "-o", "jsonl")) == [1234]
    assert numbers(reput(stack, "--hex", b"body 2999\xff".hex(), "--newest", "-o", "jsonl")) == [2999]
    cel = "int(message.properties.number) >= 2990 && message.tags == 'odd' && message.queue_id == 1"
    assert numbers(reput(stack, "--cel", cel, "-o", "jsonl")) == [2993, 2997]
    shown = json.loads(reput(stack, "--cel", "int(message.properties.number) < 8", "--newest", "-o", "json").stdout)
    assert [int(each["properties"]["number"]) for each in shown["messages"]] == [4, 0, 5, 1, 6, 2, 7, 3]
    assert shown["order"] == "in the order of the queues, each newest first; not by time across queues"
    assert reput(stack, "--text", "nowhere").returncode == 1
    refused = reput(stack, "--cel", "message.tags ==")
    assert (refused.returncode, "line 1, column 16" in refused.stderr) == (2, True)


def test_a_search_goes_on_where_it_stopped(stack: Stack) -> None:
    collected: list[int] = []
    arguments = ["-i", "2", "--fromOffset", "10", "--toOffset", "700", "--tag", "even", "-m", "9000", "-o", "jsonl"]
    token: list[str] = []
    for _ in range(4):
        done = reput(stack, *arguments, "--maxRecords", "200", *token)
        collected += numbers(done)
        _, more, rest = done.stderr.partition("--pageToken ")
        token = ["--pageToken", rest.split()[0]] if more else []
    assert not token
    assert collected == [number for number in range(COUNT) if number % 4 == 2][10:700]


def test_an_expression_that_does_not_end_is_refused_and_others_are_answered(stack: Stack) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        stack.gateway.SearchMessages(pb.SearchMessagesRequest(topic=TOPIC, cel=ENDLESS), timeout=60)
    error = from_rpc_error(refused.value)
    assert isinstance(error, InvalidArgumentError)
    assert "does not end" in error.message
    answer = stack.gateway.SearchMessages(
        pb.SearchMessagesRequest(topic=TOPIC, cel="message.tags == 'odd'"), timeout=60
    )
    assert len(answer.messages) == 64


def test_an_expression_that_allocates_is_refused_and_the_gateway_stays_small(stack: Stack) -> None:
    gateway = stack.process.pid
    with pytest.raises(grpc.RpcError) as refused:
        stack.gateway.SearchMessages(pb.SearchMessagesRequest(topic=TOPIC, cel=GREEDY), timeout=60)
    error = from_rpc_error(refused.value)
    assert isinstance(error, InvalidArgumentError)
    assert "memory" in error.message
    peak = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{gateway}/status").read_text())
    assert peak is not None
    assert int(peak[1]) < 300 * 1024
    answer = stack.gateway.SearchMessages(
        pb.SearchMessagesRequest(topic=TOPIC, cel="message.tags == 'odd'"), timeout=60
    )
    assert len(answer.messages) == 64


def test_a_cancelled_evaluation_ends_its_process(stack: Stack) -> None:
    """Each message takes a while and none of them too long: alone, the search would go on for many seconds."""
    gateway = stack.process.pid
    slow = "".join(f"{TEN}.all({name}, " for name in "abcd") + "true" + ")" * 4 + " && message.queue_offset < 0"
    stack.gateway.SearchMessages(pb.SearchMessagesRequest(topic=TOPIC, cel="message.tags == ''"), timeout=60)
    (before,) = children_of(gateway)
    idle_ticks = _cpu_ticks(before)
    call = stack.gateway.SearchMessages.future(
        pb.SearchMessagesRequest(topic=TOPIC, cel=slow, max_millis=20_000), timeout=60
    )
    while _cpu_ticks(before) < idle_ticks + 20:  # so that the search has it
        assert not call.done()
    cancelled = time.monotonic()
    call.cancel()
    while pathlib.Path(f"/proc/{before}").exists():
        assert time.monotonic() < cancelled + 30
    print(f"ended {1000 * (time.monotonic() - cancelled):.0f} ms after the cancel")


def _cpu_ticks(pid: int) -> int:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
