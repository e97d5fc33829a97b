"""`reput drained` and `reput copy-settings`: what is left at a broker or a shard, and what a new store begins with."""

import contextlib
import json
import pathlib
import random
import types
from typing import Any

import pytest

from cli.exits import CliError, Exit
from cli.main import main
from cli.moving import OWN_GROUPS, QueueEnds, _behind, copy_settings, drained, left_at_broker, settings_of_new_store
from cli.options import OutputFormat
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import NewMessage
from reput_client import ReputClientError
from reput_client.querying.answers import installation_of
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import Command
from services.rocketmq.remoting import Broker
from services.rocketmq.signature import ACCESS_KEY, SIGNATURE, signature_of, signed_bytes
from store.errors import DiskFullError, ServiceUnavailableError
from store.files.file_system import FileSystem
from store.files.json_state import write_bytes_atomic
from store.format.delivery.consumer_files import GroupConfig, decode_groups, decode_offsets
from store.format.topic import HALF_TOPIC, OP_HALF_TOPIC, decode_topic_table
from tests.support.remoting import answering
from tests.support.stack import hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

# As RocketMQ 5.5.0 answered them while a fleet worked, shortened.
STATE = {
    "scheduleMessageOffset_1": "33,40",
    "scheduleMessageOffset_2": "15,15",
    "timerCongestNum": "30",
    "dispatchBehindBytes": "9",
}
POSITIONS = (
    '{"offsetTable":{"RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:1},"Late@late":{0:8,1:5},'
    '"%RETRY%plain@plain":{0:10},"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:37},"Plain@plain":{0:127,1:128}}}'
)
ENDS = {
    "Late": {0: (0, 8), 1: (0, 5)},
    "Plain": {0: (100, 128), 1: (0, 128)},
    "%RETRY%plain": {0: (0, 12)},
    HALF_TOPIC: {0: (0, 40)},
    OP_HALF_TOPIC: {0: (0, 3)},
    "Nobody": {0: (0, 3)},
    "TBW102": {0: (0, 1)},
}
DRAINED_STATE = {"scheduleMessageOffset_1": "40,40", "timerCongestNum": "0", "timerOffsetBehind": "0"}
DRAINED_POSITIONS = POSITIONS.replace("127", "128").replace("{0:10}", "{0:12}").replace("37", "40")


class AnsweringBroker:
    """What a broker answers, by request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state: dict[str, str] = STATE
        self.positions = POSITIONS
        monkeypatch.setattr(Broker, "call", lambda _, code, **fields: self.answer(code, **fields).encode())

    def answer(self, code: int, topic: str = "") -> str:
        match code:
            case RequestCode.GET_BROKER_RUNTIME_INFO:
                return json.dumps({"table": self.state})
            case RequestCode.GET_ALL_CONSUMER_OFFSET:
                return self.positions
            case RequestCode.GET_ALL_TOPIC_CONFIG:
                return json.dumps({"topicConfigTable": {name: {"topicName": name} for name in ENDS}})
            case RequestCode.GET_TOPIC_STATS_INFO:
                rows = (
                    f'{{"brokerName":"broker-a","queueId":{queue_id},"topic":"{topic}"}}:'
                    f'{{"lastUpdateTimestamp":0,"maxOffset":{end},"minOffset":{first}}}'
                    for queue_id, (first, end) in ENDS[topic].items()
                )
                return f'{{"offsetTable":{{{",".join(rows)}}}}}'
        raise ServiceUnavailableError(f"request {code} is refused", service="rocketmq")


def left_rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["left"]
    return rows


def test_a_broker_is_drained_once_groups_times_and_transactions_have_nothing_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = AnsweringBroker(monkeypatch)
    assert drained(broker="127.0.0.1:10911", output=OutputFormat.JSON) == Exit.NOTHING_FOUND
    found = {(row["what"], row["topic"], row["queue_id"], row["message_count"]) for row in left_rows(capsys)}
    assert found == {
        ("unread", "Plain", 0, 1),
        ("retry", "%RETRY%plain", 0, 2),
        ("transaction", HALF_TOPIC, 0, 3),
        ("delay level 1", "", None, 7),
        ("timer", "", None, 30),
        ("queues are behind, in bytes", "", None, 9),
    }
    broker.state, broker.positions = DRAINED_STATE, DRAINED_POSITIONS
    assert drained(broker="127.0.0.1:10911", output=OutputFormat.JSON) == Exit.FOUND
    said = capsys.readouterr()
    assert json.loads(said.out)["left"] == []
    assert "no group has a position for, so they do not count: Nobody" in said.err


def test_a_group_that_will_not_read_on_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = AnsweringBroker(monkeypatch)
    broker.state = DRAINED_STATE
    broker.positions = DRAINED_POSITIONS.replace("{0:8,", "{0:7,")
    assert drained(broker="127.0.0.1:10911") == Exit.NOTHING_FOUND
    assert drained(broker="127.0.0.1:10911", ignored_groups=["late"]) == Exit.FOUND


def test_a_broker_that_refuses_to_tell_is_not_called_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = AnsweringBroker(monkeypatch)
    broker.state, broker.positions = DRAINED_STATE, DRAINED_POSITIONS
    for code in ("GET_BROKER_RUNTIME_INFO", "GET_ALL_CONSUMER_OFFSET", "GET_ALL_TOPIC_CONFIG", "GET_TOPIC_STATS_INFO"):

        def refuse(asked: int, refused: str = code, **fields: str) -> str:
            return AnsweringBroker.answer(broker, -1 if asked == RequestCode[refused] else asked, **fields)

        monkeypatch.setattr(broker, "answer", refuse)
        with pytest.raises(CliError) as error:
            drained(broker="127.0.0.1:10911")
        assert error.value.code is Exit.UNAVAILABLE


def test_a_broker_with_acls_is_asked_with_signed_requests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = AnsweringBroker(monkeypatch)
    broker.state, broker.positions = DRAINED_STATE, DRAINED_POSITIONS
    secret = tmp_path / "secret"
    secret.write_text("root1234\n")
    monkeypatch.undo()  # of Broker.call: the requests go out

    def answer(command: Command) -> Command:
        signature = signature_of(signed_bytes(command), b"root1234")
        if (command.fields.get(ACCESS_KEY), command.fields.get(SIGNATURE)) != ("root", signature):
            return command.answer(16, "check signature failed.")
        return command.answer(0, "", {}, broker.answer(command.code, command.fields.get("topic", "")).encode())

    with answering(answer) as address:
        line = ["drained", "--broker", address]
        assert main([*line, "--access-key", "root", "--secret-file", str(secret)]) == Exit.FOUND
        assert main(line) == Exit.UNAVAILABLE
        assert "check signature failed." in capsys.readouterr().err
        secret.write_text("wrong")
        assert main([*line, "--access-key", "root", "--secret-file", str(secret)]) == Exit.UNAVAILABLE
        for half in (["--access-key", "root"], ["--secret-file", str(secret)]):
            assert main([*line, *half]) == Exit.USAGE
    assert main(["drained", "--access-key", "root", "--secret-file", str(secret)]) == Exit.USAGE


def test_halves_and_popped_messages_count_before_the_broker_has_looked_at_them() -> None:
    ends = {HALF_TOPIC: {0: QueueEnds(0, 2)}, "rmq_sys_REVIVE_LOG_DefaultCluster": {3: QueueEnds(5, 9)}}
    rows = left_at_broker({}, ends, {})
    assert {(row["what"], row["queue_id"], row["message_count"]) for row in rows} == {
        ("transaction", 0, 2),
        ("popped", 3, 4),
    }


def test_what_is_left_equals_a_count_of_each_message_that_a_group_has_not_read() -> None:
    dice = random.Random(35)
    for _ in range(200):
        ends = {
            topic: {
                queue_id: QueueEnds(first := dice.randrange(5), first + dice.randrange(6))
                for queue_id in range(dice.randrange(4))
            }
            for topic in ("a", "b", "%RETRY%g")
        }
        positions = {
            (group, topic): {queue_id: dice.randrange(12) for queue_id in range(4) if dice.random() < 0.7}
            for group in ("g", "h")
            for topic in ends
            if dice.random() < 0.7
        }
        expected: dict[tuple[str, str, int], int] = {}
        for (group, topic), known in positions.items():
            for queue_id, (first, end) in ends[topic].items():
                unread = [at for at in range(first, end) if at >= known.get(queue_id, 0)]
                if unread:
                    expected[group, topic, queue_id] = len(unread)
        rows = left_at_broker(positions, ends, {})
        assert {
            (row["consumer_group"], row["topic"], row["queue_id"]): row["message_count"] for row in rows
        } == expected
    assert OWN_GROUPS.keys().isdisjoint({"g", "h"})


def status(service: str, next_offset: int, error: ReputClientError | None = None) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        broker_name="broker-a", service=service, next_offset=next_offset, log_end_offset=100, error=error
    )


@pytest.mark.parametrize("follower", ["consumequeue", "consumer", "schedule"])
def test_a_shard_was_called_drained_while_a_follower_did_not_know_the_last_messages(follower: str) -> None:
    services: list[Any] = [status(each, 100) for each in ("commitlog", "consumequeue", "index", "consumer", "schedule")]
    assert _behind(services) == ([], False)
    services = [each for each in services if each.service != follower]
    rows, is_partial = _behind([*services, status(follower, 60)])
    assert ([row["message_count"] for row in rows], is_partial) == ([40], False)
    assert _behind([*services, status(follower, 0, ReputClientError("no answer"))]) == ([], True)


def test_a_caller_that_does_not_see_everything_was_told_that_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Groups and topics that it may not see are left out of lists. An older gateway does not say whether it leaves some out."""
    answers = types.SimpleNamespace(installation=lambda: installation_of(pb.GetStatusResponse(version="1")))
    monkeypatch.setattr("cli.client.query_client", lambda *_: contextlib.nullcontext(answers))
    with pytest.raises(CliError, match="may not see, and messages of them may be left") as error:
        drained(address="127.0.0.1:1")
    assert error.value.code not in (Exit.FOUND, Exit.NOTHING_FOUND)
    assert capsys.readouterr().out == ""


def test_the_shards_of_a_gateway_are_drained_once_groups_have_read_and_nothing_waits(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hosted_stack(tmp_path / "store") as stack:
        address = stack.addresses["gateway"]
        messages = [NewMessage(topic="Orders", body=b"%d" % number, queue_id=0) for number in range(3)]
        stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)

        def read_to(offset: int) -> None:
            position = pb.QueuePosition(topic="Orders", queue_id=0, consumer_offset=offset, broker_name="broker-a")
            stack.gateway.CommitOffsets(
                pb.CommitOffsetsRequest(consumer_group="readers", positions=[position]), timeout=WAIT_SECONDS_MAX
            )

        def left(**more: Any) -> list[dict[str, Any]]:
            """Once every follower knows the log."""
            rows: list[dict[str, Any]] = []

            def is_known() -> bool:
                capsys.readouterr()
                code = drained(address=address, output=OutputFormat.JSON, **more)
                rows[:] = left_rows(capsys)
                assert code == (Exit.NOTHING_FOUND if rows else Exit.FOUND)
                return not any("behind" in row["what"] for row in rows)

            wait_until(is_known, lambda: rows)
            return rows

        assert left() == []
        drained(address=address)
        assert "no group has a position for, so they do not count: Orders\n" in capsys.readouterr().err
        read_to(1)
        (row,) = left()
        assert (row["what"], row["consumer_group"], row["message_count"]) == ("unread", "readers", 2)
        assert left(ignored_groups=["readers"]) == []
        drained(address=address, ignored_groups=["readers"])
        assert "so they do not count" not in capsys.readouterr().err
        read_to(3)
        assert left() == []
        late = NewMessage(topic="Late", body=b"x", delay_level=18)
        stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=[late]), timeout=WAIT_SECONDS_MAX)
        (row,) = left()
        assert (row["what"], row["topic"], row["message_count"]) == ("waiting", "Late", 1)


TOPICS = {
    name: {"topicName": name, "readQueueNums": count, "writeQueueNums": count, "perm": perm}
    for name, count, perm in (
        ("Orders", 2, 6),
        ("%RETRY%readers", 1, 6),
        ("TBW102", 8, 7),
        ("DefaultCluster", 16, 7),
        ("SCHEDULE_TOPIC_XXXX", 18, 6),
        ("rmq_sys_wheel_timer", 1, 6),
        ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", 1, 6),
    )
}
FILES = {
    "topics.json": {"dataVersion": {"counter": 7}, "topicConfigTable": TOPICS},
    "subscriptionGroup.json": {
        "reput": {"writtenMillis": 1},
        "subscriptionGroupTable": {
            "readers": {"groupName": "readers", "retryMaxTimes": 4, "notifyConsumerIdsChangedEnable": True},
            "CID_RMQ_SYS_TRANS": {"groupName": "CID_RMQ_SYS_TRANS"},
        },
    },
    "consumerOffset.json": {
        "reput": {"writtenMillis": 1},
        "offsetTable": {
            "Orders@readers": {"1": 70},
            "%RETRY%readers@readers": {"0": 4},
            "Gone@readers": {"0": 9},
            "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 5},
        },
    },
}


def new_files(*, write_only: bool) -> dict[str, bytes]:
    topics, groups, positions = (json.dumps(FILES[name]).encode() for name in FILES)
    return settings_of_new_store(topics, groups, write_only=write_only, positions=positions, time_millis=1)


@pytest.mark.parametrize("write_only", [False, True])
def test_a_new_store_has_the_topics_and_groups_of_another_one_and_groups_at_the_begin(write_only: bool) -> None:
    files = new_files(write_only=write_only)
    topics = decode_topic_table(files["topics.json"])
    assert {name: row.perm for name, row in topics.items()} == {"Orders": 2 if write_only else 6, "%RETRY%readers": 6}
    assert topics["Orders"].read_queue_count == 2
    assert decode_groups(files["subscriptionGroup.json"])["readers"].retry_count_max == 4
    assert json.loads(files["subscriptionGroup.json"])["subscriptionGroupTable"].keys() == {"readers"}
    assert b"notifyConsumerIdsChangedEnable" in files["subscriptionGroup.json"]
    assert decode_offsets(files["consumerOffset.json"]) == {
        ("readers", "Orders"): {0: 0, 1: 0},
        ("readers", "%RETRY%readers"): {0: 0},
    }
    assert all("reput" not in json.loads(data) for data in files.values()), (
        "a broker's files, as a shard takes them over"
    )


def test_a_shard_on_a_new_store_has_the_copied_topics_groups_and_positions(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "config").mkdir(parents=True)
    for name, document in FILES.items():
        (source / "config" / name).write_text(json.dumps(document))
    assert copy_settings(source=source, target=target, write_only=True) == Exit.FOUND
    with hosted_stack(target) as stack:
        request = pb.GetConsumerGroupRequest(consumer_group="readers")
        group = stack.gateway.GetConsumerGroup(request, timeout=WAIT_SECONDS_MAX)
        assert group.settings.delivery_attempts_max == 5
        positions = stack.gateway.GetOffsets(
            pb.GetOffsetsRequest(consumer_group="readers"), timeout=WAIT_SECONDS_MAX
        ).positions
        assert {(row.topic, row.queue_id, row.consumer_offset) for row in positions} >= {
            ("Orders", 0, 0),
            ("Orders", 1, 0),
        }
        (topic,) = (row for row in stack.gateway.ListTopics(pb.ListTopicsRequest()).topics if row.topic == "Orders")
        assert [(row.perm, row.write_queue_count) for row in topic.settings] == [(2, 2)]


def test_the_groups_were_decoded_again_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of 100,000 groups never ended."""
    calls: list[int] = []

    def counted(data: bytes) -> dict[str, GroupConfig]:
        calls.append(len(data))
        return decode_groups(data)

    monkeypatch.setattr("store.format.delivery.consumer_files.decode_groups", counted)
    new_files(write_only=False)
    assert len(calls) == 1


def test_a_copy_that_was_cut_left_a_config_that_a_second_run_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "config").mkdir(parents=True)
    for name, document in FILES.items():
        (source / "config" / name).write_text(json.dumps(document))
    written: list[str] = []

    def full(fs: FileSystem, path: pathlib.Path, data: bytes) -> None:
        if len(written) == 2:
            raise DiskFullError("no space left")
        written.append(path.name)
        write_bytes_atomic(fs, path, data)

    monkeypatch.setattr("store.files.json_state.write_bytes_atomic", full)
    with pytest.raises(CliError, match="no space left"):
        copy_settings(source=source, target=target)
    assert not (target / "config").exists()
    monkeypatch.undo()
    assert copy_settings(source=source, target=target) == Exit.FOUND
    assert sorted(path.name for path in (target / "config").iterdir()) == sorted(FILES)
    assert [path.name for path in target.iterdir()] == ["config"]


def test_settings_are_copied_from_a_store_that_has_some_to_one_that_has_none(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CliError, match=r"topics\.json cannot be read"):
        copy_settings(source=tmp_path / "none", target=tmp_path / "target")
    (tmp_path / "source" / "config").mkdir(parents=True)
    for name in FILES:
        (tmp_path / "source" / "config" / name).write_text("{ broken")
    with pytest.raises(CliError, match="no JSON"):
        copy_settings(source=tmp_path / "source", target=tmp_path / "target")
    assert not (tmp_path / "target").exists()
    for name, document in FILES.items():
        (tmp_path / "source" / "config" / name).write_text(json.dumps(document))
    (tmp_path / "target" / "config").mkdir(parents=True)
    with pytest.raises(CliError, match="File exists"):
        copy_settings(source=tmp_path / "source", target=tmp_path / "target")
    assert not list((tmp_path / "target" / "config").iterdir())
