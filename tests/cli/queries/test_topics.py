"""`reput topics` over a whole installation: a row for each topic, RocketMQ's own apart."""

import csv
import io
import json
from collections.abc import Iterator

import pytest

from cli.queries.topics import is_rocketmqs_own
from reput_client import Queue, Topic
from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("topics") / "store") as stack:
        here = ("--address", stack.addresses["gateway"])
        for number in range(5):
            run_command("send", "-t", "Orders", "-b", f"hello {number}", "-k", f"order-{number}", *here)
        run_command("send", "-t", "%RETRY%billing", "-b", "again", *here)
        stack.wait_until_built()
        yield stack


def topics(stack: HostedStack, *arguments: str):
    return run_command("topics", *arguments, "--address", stack.addresses["gateway"])


def test_a_topic_is_one_row_with_its_messages_and_their_times(stack: HostedStack) -> None:
    found = topics(stack, "-o", "json")
    (orders,) = [row for row in json.loads(found.stdout)["topics"] if row["topic"] == "Orders"]
    queues = json.loads(topics(stack, "Orders", "--queues", "-o", "json").stdout)["queues"]
    messages = run_command("search", "-t", "Orders", "-o", "jsonl", "--address", stack.addresses["gateway"]).stdout
    times = sorted(json.loads(line)["store_time"] for line in messages.splitlines())

    assert found.returncode == 0
    assert orders["queues"] == len(queues)
    assert orders["messages"] == sum(row["max_offset"] - row["min_offset"] for row in queues) == 5
    assert (orders["first_time"], orders["last_time"]) == (times[0], times[-1])


def test_topics_of_rocketmq_are_hidden_until_they_are_asked_for(stack: HostedStack) -> None:
    """A real store has a thousand of them."""

    def names(*arguments: str) -> set[str]:
        found = topics(stack, *arguments, "-o", "csv")
        return {row["topic"] for row in csv.DictReader(io.StringIO(found.stdout))}

    assert names() == {"Orders"}
    assert {"Orders", "%RETRY%billing"} <= names("--all")
    assert names("%RETRY%") == {"%RETRY%billing"}
    assert json.loads(topics(stack, "-o", "json").stdout)["hidden_topic_count"] == len(names("-a")) - 1


def test_a_name_that_no_topic_has_is_said(stack: HostedStack) -> None:
    found = topics(stack, "nonesuch")

    assert (found.returncode, found.stdout, found.stderr) == (1, "", "no topic has 'nonesuch' in its name\n")


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        ("Orders", False),
        ("TopicTest", False),
        ("SCHEDULE_TOPIC_XXXX", True),
        ("RMQ_SYS_TRANS_HALF_TOPIC", True),
        ("rmq_sys_wheel_timer", True),
        ("%RETRY%g", True),
        ("%DLQ%g", True),
        ("DefaultCluster_REPLY_TOPIC", True),
        ("broker-a", True),
        ("broker-b", False),
    ],
)
def test_what_the_broker_makes_is_not_taken_for_a_topic_of_people(name: str, is_own: bool) -> None:
    assert is_rocketmqs_own(Topic(name, (Queue("broker-a", 0, 0, 1),))) is is_own
