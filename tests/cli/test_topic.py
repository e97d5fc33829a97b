"""`reput topic` and mqadmin's verbs for topics, against a whole installation: what is printed, and what the shard has then."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cli.main import main
from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.support.stack import HostedStack, hosted_stack, new_message


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    store = tmp_path_factory.mktemp("topics") / "store"
    (store / "compaction/compactionLog/Compacted/0").mkdir(parents=True)
    with hosted_stack(store) as stack:
        yield stack


@pytest.fixture
def reput(stack: HostedStack, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a verb; its exit code, and what it printed."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*arguments, "--address", stack.addresses["gateway"]])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def table(stack: HostedStack) -> dict[str, Any]:
    """The topics that a broker would find."""
    rows: dict[str, Any] = json.loads((stack.store / "config" / "topics.json").read_text())["topicConfigTable"]
    return rows


def test_a_topic_is_created_changed_and_deleted_by_the_command(stack: HostedStack, reput: Any) -> None:
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
    assert table(stack)["Orders"]["attributes"] == {"message.type": "FIFO"}
    assert reput("topic", "create", "Orders", "--queues", "4")[0] == 0

    code, _, err = reput("topic", "create", "Orders", "--queues", "5")
    assert code == 2
    assert "TOPIC_EXISTS" in err
    assert "reput topic update" in err

    code, out, _ = reput("topic", "update", "Orders", "-w", "2", "--type", "UNSPECIFIED")
    assert code == 0
    assert "Orders" in out
    assert (table(stack)["Orders"]["writeQueueNums"], table(stack)["Orders"]["readQueueNums"]) == (2, 4)
    assert table(stack)["Orders"]["attributes"] == {}
    listed = json.loads(reput("topic", "list", "-O", "json")[1])["topics"]
    assert [row for row in listed if row["topic"] == "Orders"] == [
        row | {"write_queue_count": 2, "message_type": "UNSPECIFIED"}
    ]

    code, out, _ = reput("topic", "delete", "Orders", "-O", "json")
    assert code == 0
    assert json.loads(out)["topics"] == [{"topic": "Orders", "broker_name": row["broker_name"]}]
    assert "Orders" not in table(stack)
    assert reput("topic", "delete", "Orders")[0] == 1
    assert reput("topic", "update", "Orders", "-w", "2")[0] == 1


def test_messages_of_a_deleted_topic_are_found_and_a_send_makes_it_again(stack: HostedStack, reput: Any) -> None:
    messages = [new_message("Kept", b"still there", keys=["kept-key"])]
    stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=10)
    stack.wait_until_built()

    assert reput("topic", "delete", "Kept")[0] == 0

    assert "Kept" not in table(stack)
    found = stack.gateway.QueryMessageByKey(pb.QueryMessageByKeyRequest(topic="Kept", key="kept-key"), timeout=10)
    assert [message.body for message in found.messages] == [b"still there"]
    listed = stack.gateway.ListTopics(pb.ListTopicsRequest(topic="Kept"), timeout=10).topics
    assert [(topic.topic, topic.queue_count) for topic in listed] == [("Kept", 1)]  # the queue that has a message
    assert list(listed[0].settings) == []
    assert reput("send", "-t", "Kept", "-b", "again")[0] == 0
    assert table(stack)["Kept"]["writeQueueNums"] == 8


def test_what_was_deleted_with_its_topic_was_shown_as_if_groups_got_it(stack: HostedStack, reput: Any) -> None:
    """The topic is made again; each verb says which of the messages lie before the deletion."""

    def send(body: bytes) -> Any:
        messages = [new_message("Gone", body, keys=["gone-key"])]
        response = stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=10)
        stack.wait_until_built()
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


def test_mqadmins_verbs_create_change_and_delete_with_its_flags(stack: HostedStack, reput: Any) -> None:
    flags = ["-n", "127.0.0.1:9876", "-c", "DefaultCluster"]
    code, _, err = reput(
        "updateTopic", "-t", "Admin", "-r", "6", "-w", "4", "-p", "4", "-a", "+message.type=DELAY", *flags
    )
    assert code == 0
    assert "-n is ignored" in err
    row = table(stack)["Admin"]
    assert (row["readQueueNums"], row["writeQueueNums"], row["perm"]) == (6, 4, 4)
    assert row["attributes"] == {"message.type": "DELAY"}

    assert reput("updateTopic", "-t", "Admin", "-a", "-message.type")[0] == 0
    assert table(stack)["Admin"] == row | {"attributes": {}}
    assert reput("deleteTopic", "-t", "Admin", *flags)[0] == 0
    assert "Admin" not in table(stack)


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create", "a b"],
        ["topic", "create", "TBW102"],
        ["topic", "create", "Bad", "--queues", "65537"],
        ["topic", "create", "Bad", "--perm", "5"],
        ["topic", "create", "Bad", "--type", "LITE"],
        ["topic", "create"],
        ["updateTopic", "-t", "Bad", "-a", "message.type=FIFO"],
        ["updateTopic", "-t", "Bad", "-a", "+message.type=LITE"],
        ["updateTopic", "-t", "Bad", "-a", "+message.type"],
        ["updateTopic", "-t", "Bad", "-a", "+queue.type=BatchCQ"],
        ["updateTopic", "-t", "Bad", "-p", "3"],
        ["deleteTopic", "-t", "SCHEDULE_TOPIC_XXXX"],
    ],
)
def test_what_is_not_allowed_ends_with_2_and_makes_no_topic(
    reput: Any, stack: HostedStack, arguments: list[str]
) -> None:
    code, _, err = reput(*arguments)

    assert code == 2
    assert err
    path = stack.store / "config" / "topics.json"
    assert not path.exists() or "Bad" not in table(stack)


def test_an_unknown_shard_is_named(reput: Any) -> None:
    code, _, err = reput("topic", "create", "Elsewhere", "-b", "no-such-shard")

    assert code == 1
    assert "BROKER_NOT_FOUND" in err


def test_a_query_of_a_compacted_topic_was_complete_without_what_only_the_broker_has(
    stack: HostedStack, reput: Any
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
