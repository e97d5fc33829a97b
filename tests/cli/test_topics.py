"""`reput topics` over a whole installation: a row for each topic, RocketMQ's own apart.

`reput topic` and mqadmin's verbs for topics, against a whole installation: what is printed, and what the shard has then.
"""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from cli.main import main
from cli.topics import is_rocketmqs_own
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import Queue, Topic
from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX


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


@pytest.fixture(scope="module")
def stack_of_topic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    store = tmp_path_factory.mktemp("topics") / "store"
    (store / "compaction/compactionLog/Compacted/0").mkdir(parents=True)
    with hosted_stack(store) as stack_of_topic:
        yield stack_of_topic


@pytest.fixture
def reput(stack_of_topic: HostedStack, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a verb; its exit code, and what it printed."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*arguments, "--address", stack_of_topic.addresses["gateway"]])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def table(stack_of_topic: HostedStack) -> dict[str, Any]:
    """The topics that a broker would find."""
    rows: dict[str, Any] = json.loads((stack_of_topic.store / "config" / "topics.json").read_text())["topicConfigTable"]
    return rows


def test_a_topic_is_created_changed_and_deleted_by_the_command(stack_of_topic: HostedStack, reput: Any) -> None:
    code, out, _ = reput("topic", "create", "Orders", "--queues", "4", "--type", "FIFO", "-O", "json")
    assert code == 0
    (row,) = json.loads(out)["topics"]
    assert {name: row[name] for name in row if name != "broker_name"} == {
        "topic": "Orders",
        "write_queue_count": 4,
        "read_queue_count": 4,
        "perm": 6,
        "message_type": "FIFO",
    }
    assert table(stack_of_topic)["Orders"]["attributes"] == {"message.type": "FIFO"}
    assert reput("topic", "create", "Orders", "--queues", "4")[0] == 0

    code, _, err = reput("topic", "create", "Orders", "--queues", "5")
    assert code == 2
    assert "TOPIC_EXISTS" in err
    assert "reput topic update" in err

    code, out, _ = reput("topic", "update", "Orders", "-w", "2", "--type", "UNSPECIFIED")
    assert code == 0
    assert "Orders" in out
    assert (table(stack_of_topic)["Orders"]["writeQueueNums"], table(stack_of_topic)["Orders"]["readQueueNums"]) == (
        2,
        4,
    )
    assert table(stack_of_topic)["Orders"]["attributes"] == {}
    listed = json.loads(reput("topic", "list", "-O", "json")[1])["topics"]
    assert [row for row in listed if row["topic"] == "Orders"] == [
        row | {"write_queue_count": 2, "message_type": "UNSPECIFIED"}
    ]

    code, out, _ = reput("topic", "delete", "Orders", "-O", "json")
    assert code == 0
    assert json.loads(out)["topics"] == [{"topic": "Orders", "broker_name": row["broker_name"]}]
    assert "Orders" not in table(stack_of_topic)
    assert reput("topic", "delete", "Orders")[0] == 1
    assert reput("topic", "update", "Orders", "-w", "2")[0] == 1


def test_messages_of_a_deleted_topic_are_found_and_a_send_makes_it_again(
    stack_of_topic: HostedStack, reput: Any
) -> None:
    messages = [new_message("Kept", b"still there", keys=["kept-key"])]
    stack_of_topic.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)
    stack_of_topic.wait_until_built()

    assert reput("topic", "delete", "Kept")[0] == 0

    assert "Kept" not in table(stack_of_topic)
    found = stack_of_topic.gateway.QueryMessageByKey(
        pb.QueryMessageByKeyRequest(topic="Kept", key="kept-key"), timeout=WAIT_SECONDS_MAX
    )
    assert [message.body for message in found.messages] == [b"still there"]
    listed = stack_of_topic.gateway.ListTopics(pb.ListTopicsRequest(topic="Kept"), timeout=WAIT_SECONDS_MAX).topics
    assert [(topic.topic, topic.queue_count) for topic in listed] == [("Kept", 1)]  # the queue that has a message
    assert list(listed[0].settings) == []
    assert reput("send", "-t", "Kept", "-b", "again")[0] == 0
    assert table(stack_of_topic)["Kept"]["writeQueueNums"] == 8


def test_what_was_deleted_with_its_topic_was_shown_as_if_groups_got_it(stack_of_topic: HostedStack, reput: Any) -> None:
    """The topic is made again; each verb says which of the messages lie before the deletion."""

    def send(body: bytes) -> Any:
        messages = [new_message("Gone", body, keys=["gone-key"])]
        response = stack_of_topic.gateway.AppendMessages(
            pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX
        )
        stack_of_topic.wait_until_built()
        return response.results[0]

    old = send(b"old")
    assert reput("topic", "delete", "Gone")[0] == 0
    new = send(b"new")

    for command in (
        ["find", "gone-key"],
        ["queryMsgByKey", "-t", "Gone", "-k", "gone-key"],
        ["queryMsgById", "-i", f"{old.offset_msg_id},{new.offset_msg_id}"],
    ):
        code, out, _ = reput(*command, "-O", "json")
        assert code == 0
        marks = {row["body"]: row.get("deleted_with_topic", False) for row in json.loads(out)["messages"]}
        assert marks == {"old": True, "new": False}, command
        code, out, err = reput(*command)
        assert "deleted with the topic, so no group gets them: 1 of 2 messages" in err, command
        assert old.offset_msg_id in err
    code, out, err = reput("queryMsgByUniqueKey", "-t", "Gone", "-i", old.unique_key)
    assert "deleted_with_topic" in out + err
    assert "1 of 1 messages" in err
    assert "deleted" not in "".join(reput("queryMsgByUniqueKey", "-t", "Gone", "-i", new.unique_key)[1:])


def test_a_topic_of_lite_topics_is_made_with_an_expiration(stack_of_topic: HostedStack, reput: Any) -> None:
    def row_of(*arguments: str) -> dict[str, Any]:
        code, out, _ = reput(*arguments, "-O", "json")
        assert code == 0
        (row,) = json.loads(out)["topics"]
        return dict(row)

    made = row_of("topic", "create", "Chats", "--type", "LITE", "--lite-expiration-minutes", "60")
    assert (made["message_type"], made["lite_expiration_minutes"]) == ("LITE", 60)
    assert row_of("topic", "update", "Chats", "--lite-expiration-minutes", "20")["lite_expiration_minutes"] == 20
    assert "lite_expiration_minutes" not in row_of("updateTopic", "-t", "Chats", "-a", "+lite.topic.expiration=-1")
    assert row_of("updateTopic", "-t", "Chats", "-a", "+lite.topic.expiration=30")["lite_expiration_minutes"] == 30
    assert table(stack_of_topic)["Chats"]["attributes"] == {"message.type": "LITE", "lite.topic.expiration": "30"}


def test_mqadmins_verbs_create_change_and_delete_with_its_flags(stack_of_topic: HostedStack, reput: Any) -> None:
    flags = ["-n", "127.0.0.1:9876", "-c", "DefaultCluster"]
    code, _, err = reput(
        "updateTopic", "-t", "Admin", "-r", "6", "-w", "4", "-p", "4", "-a", "+message.type=DELAY", *flags
    )
    assert code == 0
    assert "-n is ignored" in err
    row = table(stack_of_topic)["Admin"]
    assert (row["readQueueNums"], row["writeQueueNums"], row["perm"]) == (6, 4, 4)
    assert row["attributes"] == {"message.type": "DELAY"}

    assert reput("updateTopic", "-t", "Admin", "-a", "-message.type")[0] == 0
    assert table(stack_of_topic)["Admin"] == row | {"attributes": {}}
    assert reput("deleteTopic", "-t", "Admin", *flags)[0] == 0
    assert "Admin" not in table(stack_of_topic)


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create", "a b"],
        ["topic", "create", "TBW102"],
        ["topic", "create", "Bad", "--queues", "65537"],
        ["topic", "create", "Bad", "--perm", "5"],
        ["topic", "create", "Bad", "--type", "LIGHT"],
        ["topic", "create", "Bad", "--type", "LITE", "--lite-expiration-minutes", "43201"],
        ["topic", "create"],
        ["updateTopic", "-t", "Bad", "-a", "message.type=FIFO"],
        ["updateTopic", "-t", "Bad", "-a", "+message.type=LIGHT"],
        ["updateTopic", "-t", "Bad", "-a", "+lite.topic.expiration=43201"],
        ["updateTopic", "-t", "Bad", "-a", "+lite.topic.expiration=soon"],
        ["updateTopic", "-t", "Bad", "-a", "+message.type"],
        ["updateTopic", "-t", "Bad", "-a", "+queue.type=BatchCQ"],
        ["updateTopic", "-t", "Bad", "-p", "3"],
        ["deleteTopic", "-t", "SCHEDULE_TOPIC_XXXX"],
    ],
)
def test_what_is_not_allowed_ends_with_2_and_makes_no_topic(
    reput: Any, stack_of_topic: HostedStack, arguments: list[str]
) -> None:
    code, _, err = reput(*arguments)

    assert code == 2
    assert err
    path = stack_of_topic.store / "config" / "topics.json"
    assert not path.exists() or "Bad" not in table(stack_of_topic)


def test_an_unknown_shard_is_named(reput: Any) -> None:
    code, _, err = reput("topic", "create", "Elsewhere", "-b", "no-such-shard")

    assert code == 1
    assert "BROKER_NOT_FOUND" in err


def test_a_query_of_a_compacted_topic_was_complete_without_what_only_the_broker_has(
    stack_of_topic: HostedStack, reput: Any
) -> None:
    for topic in ("Compacted", "NotCompacted"):
        assert reput("topic", "create", topic)[0] in (0, 2)  # a compacted topic takes no messages
    commands = {
        "by key": ["queryMsgByKey", "-k", "k", "-t"],
        "by unique key": ["queryMsgByUniqueKey", "-i", "0102FC0000000126AB0B15C0DB00000001", "-t"],
        "find": ["find", "k", "--topic"],
        "search": ["search", "-t"],
    }
    for name, command in commands.items():
        code, out, err = reput(*command, "Compacted")
        assert (code, "uses compacted topics" in err) == (3, True), (name, out, err)
        code, out, err = reput(*command, "NotCompacted")
        assert (code in (0, 1), "compacted" in err) == (True, False), (name, out, err)
