"""`reput tail` and searches over all topics, on a whole installation."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.tail import Filters
from reput.message.v1 import message_pb2
from reput_client.querying.message import message_of
from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("tail") / "store") as stack:
        for number in range(30):
            tag = "odd" if number % 2 else "even"
            send(stack, "Orders", f"Body {number} Straße", "--tag", tag, "-k", f"order-{number}")
        send(stack, "Logs", "nothing but STRASSE and straße", "-k", "line-1")
        send(stack, "%RETRY%g", "straße again")
        stack.wait_until_built()
        yield stack


def send(stack: HostedStack, topic: str, text: str, *more: str) -> None:
    assert reput(stack, "send", "-t", topic, "-b", text, *more).returncode == 0


def reput(stack: HostedStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, "--address", stack.addresses["gateway"])


def numbers(shown: str) -> list[int]:
    return [int(number) for number in re.findall(r"Body (\d+)", shown)]


def test_the_last_messages_of_all_queues_come_in_the_order_of_their_store_times(stack: HostedStack) -> None:
    assert numbers(reput(stack, "tail", "Orders").stdout) == list(range(20, 30))
    assert numbers(reput(stack, "tail", "Orders", "-n", "3", "--format", r"%b\n").stdout) == [27, 28, 29]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--tag", "odd"], [25, 27, 29]),
        (["--tag", "odd", "--tag", "even"], [27, 28, 29]),
        (["--key", "order-7"], [7]),
        (["--text", "body 1", "--ignore-case"], [17, 18, 19]),
        (["--text", "straße"], []),
        (["--property", "KEYS=order-11"], [11]),
        (["--tag", "even", "--text", "Body 1"], [14, 16, 18]),
    ],
)
def test_the_last_messages_that_pass_the_filters_are_found_before_others(stack: HostedStack, filters, expected) -> None:
    found = reput(stack, "tail", "Orders", "-n", "3", *filters)

    assert numbers(found.stdout) == expected, found.stderr
    assert found.returncode == (0 if expected else 1)
    assert ("no message" in found.stderr) == (not expected)


def test_what_comes_is_followed_and_filtered(stack: HostedStack, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    command = [sys.executable, "-m", "cli.main", "tail", "-f", "Orders", "-n", "1", "--tag", "odd", "--text", "BODY"]
    with shown.open("wb") as out:
        running = subprocess.Popen(
            [*command, "--ignore-case", "--address", stack.addresses["gateway"]], cwd=ROOT, stdout=out
        )
    try:
        wait_until(lambda: numbers(shown.read_text()) == [29], "the last message")
        for number, tag, text in ((100, "even", "Body"), (101, "odd", "else"), (103, "odd", "Body")):
            send(stack, "Orders", f"{text} {number}", "--tag", tag)
        wait_until(lambda: 103 in numbers(shown.read_text()), "what came")
        assert numbers(shown.read_text()) == [29, 103]
    finally:
        running.kill()
        running.wait(WAIT_SECONDS_MAX)


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        (Filters(), True),
        (Filters(tags=("a", "b")), True),
        (Filters(tags=("b",)), False),
        (Filters(keys=("k1", "k2")), True),
        (Filters(keys=("k1", "k3")), False),
        (Filters(properties=(("p", None), ("q", "1"))), True),
        (Filters(properties=(("q", "2"),)), False),
        (Filters(properties=(("none", None),)), False),
        (Filters(text="Hello"), True),
        (Filters(text="hello"), False),
        (Filters(text="HELLO.", ignore_case=True), False),
        (Filters(text="hELLO", ignore_case=True), True),
    ],
)
def test_a_message_that_comes_is_filtered_as_one_that_is_there(filters: Filters, passes: bool) -> None:
    stored = message_pb2.StoredMessage(tags="a", keys=["k1", "k2"], body=b"Hello there", properties={"p": "", "q": "1"})
    assert filters.passes(message_of(stored)) is passes


def test_a_search_without_a_topic_looks_into_all_that_people_send_to(stack: HostedStack) -> None:
    found = reput(stack, "search", "--text", "straße", "--ignore-case", "-m", "100", "--format", r"%t %k\n")
    rows = found.stdout.splitlines()

    assert sorted({row.split()[0] for row in rows}) == ["Logs", "Orders"]
    assert len([row for row in rows if row.startswith("Orders order-")]) == 30
    assert reput(stack, "search", "--text", "straße", "--format", r"%t\n").stdout == "Logs\n"
    table = reput(stack, "search", "--text", "but STRASSE", "-o", "wide").stdout
    assert table.split()[0] == "topic"


def test_a_search_that_stops_before_the_last_topic_is_not_called_complete(stack: HostedStack) -> None:
    found = reput(stack, "search", "--text", "straße", "-m", "1", "-o", "json")

    assert '"completeness": "TRUNCATED"' in found.stdout
    assert "1 topics behind Logs were not searched" in found.stderr


@pytest.mark.parametrize("flags", [["--ignore-case"], ["--pageToken", "x"], ["--queueId", "1"]])
def test_flags_of_a_search_that_need_another_are_refused(stack: HostedStack, flags) -> None:
    assert reput(stack, "search", *flags).returncode == 2
