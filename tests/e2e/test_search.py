"""Search beside a running stack: `reput search`, a cancel that reaches the shard's scan, processes that end with theirs."""

import json
import pathlib
import re
import subprocess
from collections.abc import Iterator

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from services.status import from_rpc_error
from store.errors import InvalidArgumentError, ResourceBusyError, StoreError
from tests.support.command import run_command
from tests.support.processes import children_of
from tests.support.stack import Stack, new_message, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for, wait_until

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
            running.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
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


def refusal(stack: Stack, cel: str) -> StoreError:
    """Why an expression is refused; where it gets no processor time, the answer is to ask again."""
    while True:
        with pytest.raises(grpc.RpcError) as refused:
            stack.gateway.SearchMessages(pb.SearchMessagesRequest(topic=TOPIC, cel=cel), timeout=60)
        error = from_rpc_error(refused.value)
        if not isinstance(error, ResourceBusyError):
            return error


def odd_count(stack: Stack) -> int:
    """Messages that one call or more find: on a busy machine the time of one may be over before it has found any."""
    count, token = 0, ""
    while True:
        request = pb.SearchMessagesRequest(topic=TOPIC, cel="message.tags == 'odd'", page_token=token)
        answer = stack.gateway.SearchMessages(request, timeout=60)
        count, token = count + len(answer.messages), answer.next_page_token
        if count >= 64 or not token:
            return count


def test_an_expression_that_does_not_end_is_refused_and_others_are_answered(stack: Stack) -> None:
    error = refusal(stack, ENDLESS)
    assert isinstance(error, InvalidArgumentError)
    assert "does not end" in error.message
    assert odd_count(stack) >= 64


def test_an_expression_that_allocates_is_refused_and_the_gateway_stays_small(stack: Stack) -> None:
    gateway = stack.process.pid
    error = refusal(stack, GREEDY)
    assert isinstance(error, InvalidArgumentError)
    assert "memory" in error.message
    peak = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{gateway}/status").read_text())
    assert peak is not None
    assert int(peak[1]) < 300 * 1024
    assert odd_count(stack) >= 64


def test_a_cancelled_evaluation_ends_its_process(stack: Stack) -> None:
    """Each message takes a while and none of them too long: alone, the search would go on for many seconds."""
    gateway = stack.process.pid
    slow = "".join(f"{TEN}.all({name}, " for name in "abcd") + "true" + ")" * 4 + " && message.queue_offset < 0"

    def evaluator() -> int | None:
        stack.gateway.SearchMessages(pb.SearchMessagesRequest(topic=TOPIC, cel="message.tags == ''"), timeout=60)
        return next(iter(children_of(gateway)), None)  # it is gone when it got no processor time

    before = wait_for(evaluator)
    idle_ticks = _cpu_ticks(before)
    call = stack.gateway.SearchMessages.future(
        pb.SearchMessagesRequest(topic=TOPIC, cel=slow, max_millis=20_000), timeout=60
    )

    def has_the_search() -> bool:
        assert not call.done()
        return _cpu_ticks(before) >= idle_ticks + 20

    wait_until(has_the_search)
    call.cancel()
    wait_until(lambda: not pathlib.Path(f"/proc/{before}").exists())


def _cpu_ticks(pid: int) -> int:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
