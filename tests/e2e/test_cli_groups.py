"""The verbs about consumer groups, against a real stack: what they print and which code they end with."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from cli.main import main
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import Consumer
from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

TOPIC = "Verbs"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("verbs") / "store") as running:
        messages = [
            new_message(
                TOPIC, b"body-%d" % number, queue_id=number % 2, unique_key=f"k-{number}", tags="ab"[number % 2]
            )
            for number in range(5)
        ]
        running.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages))
        running.wait_until_built()
        yield running


def command(stack: HostedStack, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "cli.main", *arguments, "--address", stack.addresses["gateway"]]


def run(stack: HostedStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    if arguments[0] == "consume":  # its threads end with its process
        return subprocess.run(command(stack, *arguments), capture_output=True, text=True, timeout=60)
    return run_command(*arguments, "--address", stack.addresses["gateway"])


def answer(stack: HostedStack, *arguments: str) -> dict:
    finished = run(stack, *arguments, "-o", "json")
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_consume_with_a_group_commits_what_it_printed_and_the_next_run_goes_on_there(stack: HostedStack) -> None:
    first = run(stack, "consume", "-t", TOPIC, "-g", "reader", "-m", "2", "-o", "jsonl")
    second = run(stack, "consume", "-t", TOPIC, "-g", "reader", "--until-end", "-o", "jsonl")
    third = run(stack, "consume", "-t", TOPIC, "-g", "reader", "--until-end", "-o", "jsonl")

    keys = [[json.loads(line)["unique_key"] for line in each.stdout.splitlines()] for each in (first, second, third)]
    assert len(keys[0]) == 2
    assert sorted(keys[0] + keys[1]) == [f"k-{number}" for number in range(5)]
    assert keys[2] == []
    assert [each.returncode for each in (first, second, third)] == [0, 0, 1]
    totals = answer(stack, "lag", "reader")["totals"]
    assert [total["lag"] for total in totals] == [0]


def test_consume_prints_what_arrives_and_ends_with_an_interrupt(stack: HostedStack) -> None:
    with subprocess.Popen(
        command(stack, "consume", "-t", TOPIC, "--from", "latest", "-o", "jsonl"), stdout=subprocess.PIPE, text=True
    ) as process:
        timer = threading.Timer(60, process.kill)  # ends a test that would hang
        timer.start()
        sending = threading.Event()

        def send() -> None:
            while not sending.wait(0.2):  # until it follows, which nothing tells
                stack.gateway.AppendMessages(
                    pb.AppendMessagesRequest(messages=[new_message(TOPIC, b"late", queue_id=1, tags="late")])
                )

        sender = threading.Thread(target=send)
        sender.start()
        assert process.stdout is not None
        line = process.stdout.readline()
        sending.set()
        sender.join()
        process.send_signal(signal.SIGINT)
        process.stdout.read()

        assert json.loads(line)["body"] == "late"
        assert process.wait(WAIT_SECONDS_MAX) == 0
        timer.cancel()


def test_lag_ends_with_one_when_a_group_is_further_behind_than_allowed(stack: HostedStack) -> None:
    assert run(stack, "consume", "-t", TOPIC, "-g", "slow", "-m", "1").returncode == 0

    assert run(stack, "lag", "slow", "--max-lag", "1").returncode == 1
    assert run(stack, "lag", "slow", "--max-lag", "1000000").returncode == 0
    assert run(stack, "lag", "no-such").returncode == 1


def test_a_position_behind_the_end_of_its_queue_was_shown_as_no_lag(stack: HostedStack, capsys) -> None:
    position = pb.QueuePosition(topic=TOPIC, queue_id=0, consumer_offset=999_999)
    stack.gateway.CommitOffsets(pb.CommitOffsetsRequest(consumer_group="beyond", positions=[position]))

    assert main(["lag", "beyond", "-o", "json", "--address", stack.addresses["gateway"]]) == 0

    out, err = capsys.readouterr()
    shown = json.loads(out)
    unread = {row["queue_id"]: row["max_offset"] for row in shown["queues"]}[1]  # another test sends more to it
    assert {row["queue_id"]: row["lag"] for row in shown["queues"]} == {0: 3 - 999_999, 1: unread}
    assert shown["totals"][0]["lag"] == unread
    assert "reput reset-offset -g beyond" in err


def test_a_dry_run_of_reset_offset_moves_nothing_and_the_run_moves(stack: HostedStack) -> None:
    run(stack, "consume", "-t", TOPIC, "-g", "mover", "--until-end")
    before = answer(stack, "lag", "mover")["totals"][0]["lag"]

    dry = answer(stack, "reset-offset", "-g", "mover", "-t", TOPIC, "--earliest", "--dry-run")["resets"]
    assert answer(stack, "lag", "mover")["totals"][0]["lag"] == before
    assert answer(stack, "reset-offset", "-g", "mover", "-t", TOPIC, "--earliest")["resets"] == dry
    assert answer(stack, "lag", "mover")["totals"][0]["lag"] > before


def test_a_group_was_reset_before_it_ever_consumed_and_then_read_all_history(stack: HostedStack) -> None:
    done = run(stack, "resetOffsetByTime", "-g", "unborn", "-t", TOPIC, "-s", "now")

    assert done.returncode == 0
    assert "the group unborn had no position in Verbs: it begins here" in done.stderr
    assert run(stack, "consume", "-t", TOPIC, "-g", "unborn", "--until-end").returncode == 1
    assert [total["lag"] for total in answer(stack, "lag", "unborn")["totals"]] == [0]
    assert run(stack, "resetOffsetByTime", "-g", "unborn", "-t", "NoSuch", "-s", "now").returncode == 1


def test_mqadmins_verbs_do_the_same_with_its_flags(stack: HostedStack) -> None:
    assert run(stack, "updateSubGroup", "-g", "made", "-s", "false", "-r", "3").returncode == 0
    made = next(each for each in answer(stack, "groups")["groups"] if each["consumer_group"] == "made")
    assert (made["consume_disabled"], made["delivery_attempts_max"]) == (True, 4)
    assert run(stack, "consumerStatus", "-g", "made").returncode == 0
    assert run(stack, "consumerProgress", "-g", "made").returncode == 0
    assert run(stack, "deleteSubGroup", "-g", "made").returncode == 0
    assert run(stack, "consumerStatus", "-g", "made").returncode == 1
    assert {row["queue_id"] for row in answer(stack, "topicStatus", "-t", TOPIC)["queues"]} >= {0, 1}


# As they stand in RocketMQ's pages and in what people write about it.
LINES = [
    "updateTopic -n localhost:9876 -b localhost:10911 -t Lines -r 8 -w 8 -p 6 -o false -u false -s false -a +message.type=FIFO",
    "updatetopic -n localhost:9876 -t Lines -c DefaultCluster -a -message.type",
    "updateTopic --topic=Lines",
    "topicStatus -n localhost:9876 -t Lines -c DefaultCluster",
    "updateSubGroup -c DefaultCluster -g lines -s true -m false -d false -q 1 -r 16 -i 0 -w 1 -a true -o false",
    "updateSubGroup -b localhost:10911 -g lines --attributes +priority.factor=1 -p {} -n localhost:9876",
    "resetOffsetByTime -g lines -t Verbs -s now -f true -c DefaultCluster -n localhost:9876",
    "resetOffsetByTime -g lines -t Verbs -s -1",
    "resetOffsetByTime -g lines -t Verbs -s 2026-11-28#00:00:00:000",
    "resetOffsetByTime -g lines -t Verbs -s 1795256951776 -b localhost:10911 -q 0",
    "resetOffsetByTime -g lines -t Verbs -b broker-a -q 0 -o 1",
    "consumerProgress -n localhost:9876 -g lines -t Verbs -s true -c DefaultCluster",
    "consumerProgress",
    "consumerStatus -n localhost:9876 -g lines -b localhost:10911 -s",
    "queryMsgByKey -n localhost:9876 -t Verbs -k b -p T -b 0 -e 9223372036854775807 -m 10 -c DefaultCluster -l x",
    "queryMsgByUniqueKey -n localhost:9876 -t Verbs -i k-0 -g lines -d client -s 0 -e 9999999999999 -a -c DefaultCluster",
    "queryMsgByOffset -n localhost:9876 -t Verbs -b broker-a -i 0 -o 0 -f UTF-8 -r Verbs",
    "queryMsgById -n localhost:9876 -t Verbs -i k-0,k-1 -u unit -g lines -d client -c DefaultCluster -f utf-8",
    "deleteSubGroup -n localhost:9876 -c DefaultCluster -g lines -r true",
    "deleteSubGroup -b localhost:10911 -g no-such",
    "deleteTopic -n localhost:9876 -c DefaultCluster -t Lines",
]


def test_of_17_command_lines_for_mqadmin_none_was_taken(stack: HostedStack, capsys) -> None:
    for line in LINES:
        code = main([*line.split(), "--address", stack.addresses["gateway"]])
        shown = capsys.readouterr()
        assert code == 0, (line, shown.err)
        for flag in ("-n", "-c", "-u"):
            assert (f"reput: {flag} is ignored: " in shown.err) == (f" {flag} " in line), (line, shown.err)


def test_a_reset_of_one_queue_to_an_offset_moves_that_queue_only(stack: HostedStack) -> None:
    run(stack, "resetOffsetByTime", "-g", "by-offset", "-t", TOPIC, "-s", "-1")
    moved = run(stack, "resetOffsetByTime", "-g", "by-offset", "-t", TOPIC, "-q", "0", "-o", "1", "-o", "jsonl")
    assert [(row["queue_id"], row["after"]) for row in map(json.loads, moved.stdout.splitlines())] == [(0, 1)]

    ignored = run(stack, "resetOffsetByTime", "-g", "by-offset", "-t", TOPIC, "-s", "now", "-o", "1")
    assert ignored.returncode == 0
    assert "-o is ignored" in ignored.stderr
    assert run(stack, "resetOffsetByTime", "-g", "by-offset", "-t", TOPIC, "-o", "1").returncode == 2
    assert run(stack, "resetOffsetByTime", "-g", "by-offset", "-t", TOPIC).returncode == 2


def test_a_topic_that_mqadmins_verb_makes_has_8_queues_and_its_status_shows_them(stack: HostedStack) -> None:
    """Both as the real mqadmin 5.5.0 does."""
    assert run(stack, "updateTopic", "-c", "DefaultCluster", "-t", "Empty").returncode == 0
    rows = answer(stack, "topicStatus", "-t", "Empty")["queues"]
    assert [(row["queue_id"], row["min_offset"], row["max_offset"], row["last_time"]) for row in rows] == [
        (queue_id, 0, 0, None) for queue_id in range(8)
    ]
    rows = answer(stack, "topicStatus", "-t", TOPIC)["queues"]
    assert [bool(row["last_time"]) for row in rows] == [row["max_offset"] > 0 for row in rows]


def test_a_status_of_a_member_that_there_is_not_ends_with_one(stack: HostedStack) -> None:
    run(stack, "updateSubGroup", "-g", "alone", "-d", "true")
    assert run(stack, "consumerStatus", "-g", "alone").returncode == 0
    assert run(stack, "consumerStatus", "-g", "alone", "-i", "no-such").returncode == 1
    assert answer(stack, "groups", "alone")["groups"][0]["broadcast"] is True
    assert run(stack, "updateSubGroup", "-g", "alone", "-d", "yes").returncode == 2


def test_dead_letters_of_a_group_that_there_is_not_were_an_empty_list(stack: HostedStack, capsys) -> None:
    stack.gateway.UpdateConsumerGroup(pb.UpdateConsumerGroupRequest(consumer_group="healthy"))

    codes = [main(["dlq", "list", name, "--address", stack.addresses["gateway"]]) for name in ("typo", "healthy")]

    assert codes == [1, 1]
    unknown, _hint, none = capsys.readouterr().err.splitlines()
    assert "GROUP_NOT_FOUND" in unknown
    assert none == "no dead letters"


def test_track_shows_a_line_for_each_group_by_key_and_by_id(stack: HostedStack) -> None:
    run(stack, "consume", "-t", TOPIC, "-g", "tracker", "--until-end")

    by_key = answer(stack, "track", "-t", TOPIC, "-i", "k-0")
    by_id = answer(stack, "track", by_key["message"]["offset_msg_id"])

    states = {row["consumer_group"]: row["state"] for row in by_key["tracks"]}
    assert states["tracker"] == "CONSUMED"
    assert by_id == by_key
    assert run(stack, "track", "-t", TOPIC, "-i", "no-such").returncode == 1
    assert run(stack, "track").returncode == 2


def dead_letters_of(stack: HostedStack, group: str, count: int) -> list[str]:
    """Send so many messages, send them back as dead letters of a group, and list their ids."""
    messages = [
        new_message(TOPIC, b"dead \xff %d" % each, queue_id=0, unique_key=f"{group}-{each}") for each in range(count)
    ]
    results = stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages)).results
    stack.wait_until_built()
    request = pb.SendBackMessagesRequest(
        consumer_group=group, topic=TOPIC, queue_offsets=[each.queue_offset for each in results], delay_level=-1
    )
    stack.gateway.SendBackMessages(request)
    stack.wait_until_built()
    return [row["offset_msg_id"] for row in answer(stack, "dlq", "list", group)["dead_letters"]]


def test_chosen_dead_letters_are_sent_again_exported_and_all_are_dropped(stack: HostedStack, tmp_path) -> None:
    ids = dead_letters_of(stack, "choosy", 3)
    assert len(ids) == 3

    dry = answer(stack, "dlq", "resend", "choosy", "--id", ids[1], "--dry-run")
    assert [(row["offset_msg_id"], row["topic"], row["new_offset_msg_id"]) for row in dry["resent"]] == [
        (ids[1], TOPIC, "")
    ]
    sent = answer(stack, "dlq", "resend", "choosy", "--id", ids[1])["resent"]
    new = stack.gateway.QueryMessageById(pb.QueryMessageByIdRequest(offset_msg_id=sent[0]["new_offset_msg_id"])).message
    assert (new.topic, new.body) == (TOPIC, b"dead \xff 1")
    assert run(stack, "dlq", "resend", "choosy", "--id", sent[0]["new_offset_msg_id"]).returncode == 2

    for form, ids_of in (
        ("jsonl", lambda text: [json.loads(line)["offset_msg_id"] for line in text.splitlines()]),
        ("csv", lambda text: [line.partition(",")[0] for line in text.splitlines()[1:]]),
    ):
        path = tmp_path / f"letters.{form}"
        assert run(stack, "dlq", "export", "choosy", "--as", form, "--out", str(path)).returncode == 0
        assert ids_of(path.read_text(encoding="utf-8")) == ids
    assert run(stack, "dlq", "export", "nobody", "--out", "-").returncode == 1

    assert answer(stack, "dlq", "drop", "choosy", "--dry-run")["dropped"][0]["dead_letter_count"] == 3
    assert len(answer(stack, "dlq", "list", "choosy")["dead_letters"]) == 3
    assert answer(stack, "dlq", "drop", "choosy")["dropped"][0]["dead_letter_count"] == 3
    wait_until(lambda: run(stack, "dlq", "list", "choosy").returncode == 1, "the dead letters are dropped")
    assert run(stack, "dlq", "drop", "choosy").returncode == 1
    assert run(stack, "queryMsgById", "-i", ids[0]).returncode == 0


def test_an_export_that_fails_or_finds_nothing_keeps_the_file_that_was_there(stack: HostedStack, tmp_path) -> None:
    (offset_msg_id,) = dead_letters_of(stack, "careful", 1)
    path = tmp_path / "letters.jsonl"
    assert run(stack, "dlq", "export", "careful", "--out", str(path)).returncode == 0
    exported = path.read_text(encoding="utf-8")

    assert run(stack, "dlq", "export", "nobody", "--id", offset_msg_id, "--out", str(path)).returncode == 2
    assert run(stack, "dlq", "export", "nobody", "--out", str(path)).returncode == 1
    assert json.loads(exported)["offset_msg_id"] == offset_msg_id
    assert path.read_text(encoding="utf-8") == exported


def test_a_message_is_delivered_again_to_the_one_group_that_was_named(stack: HostedStack) -> None:
    for group in ("again", "other"):
        assert run(stack, "consume", "-t", TOPIC, "-g", group, "--until-end").returncode in (0, 1)
    found = stack.gateway.QueryMessageByUniqueKey(pb.QueryMessageByUniqueKeyRequest(topic=TOPIC, unique_key="k-2"))
    offset_msg_id = found.messages[0].offset_msg_id

    checked = run(stack, "redeliver", "again", offset_msg_id, "--dry-run")
    assert "no member of the group lives" in checked.stderr
    assert answer(stack, "redeliver", "again", offset_msg_id, "--dry-run")["redelivered"][0]["outcome"] == ""
    with Consumer(stack.addresses["gateway"], "other", {TOPIC: "*"}) as consumer:
        consumer.take(timeout_seconds=0.1)
        living = pb.GetConsumerGroupRequest(consumer_group="other")
        wait_until(lambda: list(stack.gateway.GetConsumerGroup(living).members), "the member lives")
        assert "lives" not in run(stack, "redeliver", "other", offset_msg_id, "--dry-run").stderr
    assert answer(stack, "redeliver", "again", offset_msg_id)["redelivered"][0]["outcome"] == "OK"
    assert run(stack, "redeliver", "no-such-group", offset_msg_id).returncode == 1

    def retries(group: str) -> int:
        topics = stack.gateway.ListTopics(pb.ListTopicsRequest(topic=f"%RETRY%{group}")).topics
        return sum(queue.max_offset for topic in topics for queue in topic.queues)

    wait_until(lambda: retries("again") == 1, "the message comes again")
    assert retries("other") == 0
