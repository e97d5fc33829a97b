"""Topics by command: the table that a broker reads, and what appends make of a topic that was changed or deleted."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from commitlog_svc.answers import topic_row
from commitlog_svc.append.topics.topics import TopicChange
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.servicer import CommitLogServicer
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import (
    DiskFullError,
    InvalidArgumentError,
    InvalidMessageError,
    StoreError,
    StoreReadOnlyError,
    TopicExistsError,
    TopicNotFoundError,
)
from store.format.topic import LITE_EXPIRATION_MINUTES_MAX, TOPIC_QUEUE_COUNT_MAX, TopicConfig
from tests.commitlog_svc.internal import all_records
from tests.commitlog_svc.support import BORN_HOST, append, new_message, open_log
from tests.commitlog_svc.twins import load_kernels, request_of
from tests.support.faulty_file_system import FaultyFileSystem


def table(root: Path) -> dict[str, Any]:
    """The topics that a broker would find."""
    topics: dict[str, Any] = json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]
    return topics


def test_a_created_topic_has_the_form_that_rocketmq_writes(tmp_path: Path) -> None:
    """As the real 5.3.3 wrote it for `mqadmin updateTopic -r 4 -w 4 -a +message.type=FIFO` (tests/rocketmq/test_topics.py)."""
    with open_log(tmp_path) as log:
        log.opened.topic_commands.create("Orders", TopicChange(4, 4, None, "FIFO"))

    assert table(tmp_path)["Orders"] == {
        "attributes": {"message.type": "FIFO"},
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "Orders",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }


def test_creating_again_is_harmless_and_other_values_are_refused(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        commands = log.opened.topic_commands
        first = commands.create("Orders", TopicChange(4, 4, None, "FIFO"))
        written = (tmp_path / "config" / "topics.json").read_bytes()

        assert commands.create("Orders", TopicChange(4, 4, None, "FIFO")) == first
        assert commands.create("Orders", TopicChange()) == first
        for change in (TopicChange(5, 5), TopicChange(perm=4), TopicChange(message_type="NORMAL")):
            with pytest.raises(TopicExistsError):
                commands.create("Orders", change)
        assert (tmp_path / "config" / "topics.json").read_bytes() == written


def test_an_update_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        commands = log.opened.topic_commands
        commands.create("Orders", TopicChange(4, 4, None, "FIFO"))
        before = table(tmp_path)["Orders"]

        commands.update("Orders", TopicChange(write_queue_count=2))
        assert table(tmp_path)["Orders"] == before | {"writeQueueNums": 2}
        commands.update("Orders", TopicChange(9, 9, 4, "MIXED"))
        changed = {"writeQueueNums": 9, "readQueueNums": 9, "perm": 4, "attributes": {"message.type": "MIXED"}}
        assert table(tmp_path)["Orders"] == before | changed
        commands.update("Orders", TopicChange(message_type=""))
        assert table(tmp_path)["Orders"]["attributes"] == {}
        with pytest.raises(TopicNotFoundError):
            commands.update("None", TopicChange(perm=4))


def test_a_topic_of_lite_topics_has_brokers_attributes(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        commands = log.opened.topic_commands
        commands.create("Chats", TopicChange(4, 4, None, "LITE", 60))
        assert table(tmp_path)["Chats"]["attributes"] == {"message.type": "LITE", "lite.topic.expiration": "60"}
        row = topic_row(commands.update("Chats", TopicChange(lite_expiration_minutes=LITE_EXPIRATION_MINUTES_MAX)))
        assert row.message_type == message_pb2.MESSAGE_TYPE_LITE
        assert row.lite_expiration_minutes == LITE_EXPIRATION_MINUTES_MAX
        row = topic_row(commands.update("Chats", TopicChange(lite_expiration_minutes=0)))
        assert row.lite_expiration_minutes == 0
        assert table(tmp_path)["Chats"]["attributes"] == {"message.type": "LITE"}


@pytest.mark.parametrize(
    ("written", "minutes"),
    [("-1", 0), ("0", 0), ("15", 15), ("43200", 43_200), ("99999", 0), ("1" * 5_000, 0), ("x", 0), ("\u0661", 0)],
)
def test_an_expiration_that_a_broker_wrote_is_read_as_minutes_or_never(written: str, minutes: int) -> None:
    config = TopicConfig("Chats", 1, 1, attributes={"lite.topic.expiration": written})
    assert topic_row(config).lite_expiration_minutes == minutes


def test_fields_and_attributes_of_a_broker_survive_every_command(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    foreign = {
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "order": True,
        "attributes": {"queue.type": "BatchCQ"},
        "x": [1],
    }
    document = {
        "dataVersion": {"counter": 7, "stateVersion": 3, "timestamp": 1},
        "topicConfigTable": {"a": foreign, "b": foreign},
    }
    (tmp_path / "config" / "topics.json").write_text(json.dumps(document))

    with open_log(tmp_path) as log:
        log.opened.topic_commands.update("a", TopicChange(write_queue_count=2, message_type="FIFO"))
        log.opened.topic_commands.delete("b")

    found = table(tmp_path)
    assert set(found) == {"a"}
    assert found["a"]["attributes"] == {"queue.type": "BatchCQ", "message.type": "FIFO"}
    assert (found["a"]["x"], found["a"]["order"], found["a"]["writeQueueNums"]) == ([1], True, 2)
    version = json.loads((tmp_path / "config" / "topics.json").read_text())["dataVersion"]
    assert (version["counter"], version["stateVersion"]) == (9, 3)


@pytest.mark.parametrize(
    ("topic", "change", "field"),
    [
        ("", TopicChange(), "topic"),
        ("a b", TopicChange(), "topic"),
        ("x" * 128, TopicChange(), "topic"),
        ("%RETRY%" + "x" * 249, TopicChange(), "topic"),
        ("TBW102", TopicChange(), "topic"),
        ("SCHEDULE_TOPIC_XXXX", TopicChange(), "topic"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", TopicChange(), "topic"),
        ("rmq_sys_wheel_timer", TopicChange(), "topic"),
        ("rmq_sys_REPUT_CONSUMER_STATE", TopicChange(), "topic"),
        ("a", TopicChange(write_queue_count=0), "write_queue_count"),
        ("a", TopicChange(write_queue_count=-1), "write_queue_count"),
        ("a", TopicChange(read_queue_count=TOPIC_QUEUE_COUNT_MAX + 1), "read_queue_count"),
        ("a", TopicChange(perm=0), "perm"),
        ("a", TopicChange(perm=1), "perm"),
        ("a", TopicChange(perm=8), "perm"),
        ("a", TopicChange(lite_expiration_minutes=-1), "lite_expiration_minutes"),
        ("a", TopicChange(lite_expiration_minutes=LITE_EXPIRATION_MINUTES_MAX + 1), "lite_expiration_minutes"),
    ],
)
def test_what_a_broker_would_not_work_with_is_refused_by_its_field(
    tmp_path: Path, topic: str, change: TopicChange, field: str
) -> None:
    with open_log(tmp_path) as log:
        commands = log.opened.topic_commands
        calls = [lambda: commands.create(topic, change), lambda: commands.update(topic, change)]
        if field == "topic":
            calls.append(lambda: commands.delete(topic))  # type: ignore[arg-type,return-value]  # answers are not read
        for call in calls:
            with pytest.raises(InvalidArgumentError) as refused:
                call()
            assert refused.value.metadata["field"] == field
        assert log.topics.all() == []


def test_a_retry_or_dead_letter_topic_can_be_changed_as_mqadmin_does(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.opened.topic_commands.create("%DLQ%group", TopicChange(1, 1, 2))
        log.opened.topic_commands.update("%DLQ%group", TopicChange(perm=6))
    assert table(tmp_path)["%DLQ%group"]["perm"] == 6


def test_messages_of_a_deleted_topic_stay_and_its_queues_go_on_where_they_are(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.opened.topic_commands.create("orders", TopicChange(12, 12))
        append(log, new_message(b"old", queue_id=11))

        assert log.opened.topic_commands.delete("orders")
        assert not log.opened.topic_commands.delete("orders")
        assert "orders" not in table(tmp_path)
        assert [record.body for record in all_records(log)] == [b"old"]

        (receipt,) = append(log, new_message(b"new", queue_id=11))
        assert (receipt.queue_id, receipt.queue_offset) == (11, 1)
        # The queue with the old message belongs to the topic that the message made again.
        assert table(tmp_path)["orders"]["writeQueueNums"] == 12
        assert table(tmp_path)["orders"]["readQueueNums"] == 12


def test_a_deleted_topic_keeps_its_queues_over_a_restart_as_long_as_they_have_messages(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.opened.topic_commands.create("orders", TopicChange(12, 12))
        append(log, new_message(b"old", queue_id=10))
        log.opened.topic_commands.delete("orders")

    with open_log(tmp_path) as log:
        assert log.topics.find("orders") is None
        assert [record.body for record in all_records(log)] == [b"old"]
        (receipt,) = append(log, new_message(b"new", queue_id=10))
        assert (receipt.queue_offset, table(tmp_path)["orders"]["writeQueueNums"]) == (1, 11)


def test_a_store_that_is_only_read_knows_where_its_deleted_topics_ended(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        append(log, new_message(b"old"))
        end = log.status.end_offset
        log.opened.topic_commands.delete("orders")
        append(log, new_message(b"new"))
        assert log.status.end_offset > end
    with open_log(tmp_path, read_only=True) as log:
        assert log.topics.deleted == {"orders": end}


def test_without_auto_create_a_deleted_topic_takes_no_message_any_more(tmp_path: Path) -> None:
    with open_log(tmp_path, auto_create_topic=False) as log:
        with pytest.raises(TopicNotFoundError):
            append(log, new_message(b"1"))
        log.opened.topic_commands.create("orders", TopicChange())
        append(log, new_message(b"2"))
        log.opened.topic_commands.delete("orders")

        with pytest.raises(TopicNotFoundError):
            append(log, new_message(b"3"))
        assert [record.body for record in all_records(log)] == [b"2"]


class FastWay:
    """A log whose requests go the fast way, and its answers."""

    def __init__(self, log: CommitLog) -> None:
        load_kernels()
        self.log = log
        self._servicer = CommitLogServicer(log, "broker-a", "127.0.0.1:10911")

    def send(self, queue_id: int | None = None) -> pb.AppendMessagesResponse:
        fields = {} if queue_id is None else {"queue_id": queue_id}
        return pb.AppendMessagesResponse.FromString(
            self._servicer.append_bytes(request_of(new_message(b"x", **fields)), BORN_HOST)
        )

    def is_taken(self, queue_id: int | None = None) -> bool:
        """Whether the fast way takes such a message; it is stored then."""
        fields = {} if queue_id is None else {"queue_id": queue_id}
        request = request_of(new_message(b"x", **fields))
        answer = self.log.opened.appends.write_request(
            request, born_host=BORN_HOST, id_prefix="00", broker_name="broker-a"
        )
        return answer is not None


def warmed(log: CommitLog) -> FastWay:
    """The fast way, once it knows the topic."""
    way = FastWay(log)
    way.send(0)
    way.send(0)
    assert way.is_taken(0)
    return way


def test_the_fast_way_makes_a_deleted_topic_again_before_it_takes_its_messages(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        way = warmed(log)
        log.opened.topic_commands.delete("orders")

        assert not way.is_taken(0)
        assert "orders" not in table(tmp_path)
        assert way.send(0).results[0].queue_offset == 3
        assert "orders" in table(tmp_path)
        assert way.is_taken(0)


def test_the_fast_way_follows_a_topic_that_grows_shrinks_or_is_closed(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        way, commands = warmed(log), log.opened.topic_commands

        commands.update("orders", TopicChange(2, 8))
        with pytest.raises(InvalidMessageError):
            way.send(7)
        assert {way.send().results[0].queue_id for _ in range(6)} == {0, 1}

        commands.update("orders", TopicChange(20, 20))
        assert way.send(19).results[0].queue_id == 19
        assert way.is_taken(19)

        commands.update("orders", TopicChange(perm=4))
        with pytest.raises(InvalidMessageError):
            way.send(0)
        commands.update("orders", TopicChange(perm=6))
        assert way.send(0).results


def test_a_read_only_store_takes_no_command(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        append(log, new_message())
    written = (tmp_path / "config" / "topics.json").read_bytes()

    with open_log(tmp_path, read_only=True) as log:
        commands = log.opened.topic_commands
        for call in (
            lambda: commands.create("a", TopicChange()),
            lambda: commands.update("orders", TopicChange(perm=4)),
            lambda: commands.delete("orders"),
        ):
            with pytest.raises(StoreReadOnlyError):
                call()
    assert (tmp_path / "config" / "topics.json").read_bytes() == written


@pytest.mark.parametrize("kind", ["open", "pwrite", "fdatasync", "rename"])
def test_a_command_whose_file_cannot_be_written_changes_nothing_and_can_be_repeated(tmp_path: Path, kind: str) -> None:
    fs = FaultyFileSystem()
    with open_log(tmp_path, fs) as log:
        commands = log.opened.topic_commands
        commands.create("a", TopicChange(1, 1))
        number = errno.EIO if kind == "fdatasync" else errno.ENOSPC
        calls = (
            lambda: commands.create("b", TopicChange(1, 1)),
            lambda: commands.update("a", TopicChange(perm=4)),
            lambda: commands.delete("a"),
        )
        for call in calls:
            fault = fs.fail(kind, number, path="config/topics.json")
            with pytest.raises(StoreError) as refused:
                call()
            assert fault.hits == 1
            assert isinstance(refused.value, DiskFullError) or kind == "fdatasync"
            assert [(config.topic, config.perm) for config in log.topics.all()] == [("a", 6)]
            assert set(table(tmp_path)) == {"a"}
        for call in calls:
            call()
        assert set(table(tmp_path)) == {"b"}
