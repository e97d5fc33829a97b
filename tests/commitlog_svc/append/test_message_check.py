"""Bad input: each is refused by name, and leaves no trace on the disk."""

import json
from pathlib import Path
from typing import Any

import pytest

from reput.message.v1.message_pb2 import NewMessage
from store.errors import InvalidArgumentError, InvalidMessageError, TopicNotFoundError
from store.format.java_text import java_string_hash
from tests.commitlog_svc.support import append, new_message, open_log, read_tree

BAD: list[tuple[str, str, dict[str, Any]]] = [
    ("topic", "empty", {"topic": ""}),
    ("topic", "blank", {"topic": "  "}),
    ("topic", "128 characters", {"topic": "t" * 128}),
    ("topic", "256 of a retry topic", {"topic": "%RETRY%" + "t" * 249}),
    ("topic", "traversing", {"topic": "../../x"}),
    ("topic", "a slash", {"topic": "a/b"}),
    ("topic", "a dot", {"topic": "a.b"}),
    ("topic", "NUL", {"topic": "a\0"}),
    ("topic", "not ASCII", {"topic": "köln"}),
    ("topic", "a newline at its end", {"topic": "a\n"}),
    ("topic", "a broker's own", {"topic": "SCHEDULE_TOPIC_XXXX"}),
    ("topic", "the broker's timers", {"topic": "rmq_sys_wheel_timer"}),
    ("delay_level", "negative", {"delay_level": -1}),
    ("body", "empty", {"body": b""}),
    ("body", "4 MiB and 1", {"body": b"x" * ((4 << 20) + 1)}),
    ("queue_id", "negative", {"queue_id": -1}),
    ("queue_id", "one too many", {"queue_id": 8}),
    ("queue_id", "huge", {"queue_id": (1 << 31) - 1}),
    ("tags", "a separator", {"tags": "a\x01b"}),
    ("keys", "empty", {"keys": ["a", ""]}),
    ("keys", "a space", {"keys": ["a b"]}),
    ("keys", "a separator", {"keys": ["a\x02"]}),
    ("unique_key", "empty", {"unique_key": ""}),
    ("unique_key", "a separator", {"unique_key": "\x01"}),
    ("properties", "a separator in a name", {"properties": {"a\x01": "b"}}),
    ("properties", "a separator in a value", {"properties": {"a": "b\x02"}}),
    ("properties", "an empty name", {"properties": {"": "b"}}),
    ("properties", "an empty value", {"properties": {"a": ""}}),
    ("properties", "too large", {"properties": {"a": "b" * 32_767}}),
    ("properties", "too large with the rest", {"properties": {"a": "b" * 32_720}}),
    *[
        ("properties", name, {"properties": {name: "1"}})
        for name in (
            *("KEYS", "TAGS", "UNIQ_KEY", "__CRC32#", "TIMER_OUT_MS", "__transactionId__", "TRAN_MSG", "REAL_TOPIC"),
            "__REPUT_MOVED_FROM__",
        )
    ],
    *[
        ("properties", f"of a reply that is none: {sorted(reply)}", {"topic": "C_REPLY_TOPIC", "properties": reply})
        for reply in (
            {"CORRELATION_ID": "1", "REPLY_TO_CLIENT": "c"},
            {"CORRELATION_ID": "1", "REPLY_TO_CLIENT": "c", "MSG_TYPE": "replies"},
            {"REPLY_TO_CLIENT": "c"},
            {"CORRELATION_ID": "1", "MSG_TYPE": "reply"},
            {"REPLY_TO_CLIENT": "c", "MSG_TYPE": "reply"},
            {"MSG_TYPE": "reply"},
        )
    ],
    *[
        ("wire_properties", f"with {name}", {"wire_properties": b"a\x01b\x02", name: value})
        for name, value in (
            ("tags", "t"), ("keys", ["k"]), ("properties", {"a": "b"}), ("unique_key", "u"), ("delay_level", 1),
            ("delivery_time", {}),
        )
    ],
    ("wire_properties", "of an inner batch", {"wire_properties": b"INNER_NUM\x012\x02"}),
    ("wire_properties", "taking a timer back", {"wire_properties": b"TIMER_DELAY_SEC\x019\x02TIMER_DEL_UNIQKEY\x01k\x02"}),
    ("wire_properties", "a level that is no number", {"wire_properties": b"DELAY\x01soon\x02"}),
    ("wire_properties", "too large", {"wire_properties": b"a\x01" + b"b" * 32_760}),
    *[("sys_flag", f"{flag:#x}", {"sys_flag": flag}) for flag in (0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x401, 0x701, 0x800, -1)],
    ("reconsume_times", "negative", {"reconsume_times": -1}),
    *[
        ("born_host", host, {"born_host": host})
        for host in (
            "1.2.3.4", "1.2.3.4:65536", "1.2.3:4", "01.2.3.4:5", "::1:5", "[::1]", "[1.2.3.4]:5", "[:::]:5", "host:80", ":5",
            "1.2.3.4:", "1.2.3.256:5", "[1:2:3:4:5:6:7:8:9]:1", "[1:2:3:4:5:6:7]:1", "[12345::]:1", "[1:]:1",
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(("field", "what", "fields"), BAD, ids=[f"{field}: {what}" for field, what, _ in BAD])
def test_a_bad_message_is_named_and_nothing_of_its_request_is_written(
    tmp_path: Path, field: str, what: str, fields: dict[str, Any]
) -> None:
    with open_log(tmp_path, file_size_bytes=8 << 20) as log:
        append(log, new_message())
        before = read_tree(tmp_path / "commitlog"), read_tree(tmp_path / "config")
        end_offset = log.status.end_offset
        with pytest.raises(InvalidMessageError) as refused:
            append(log, new_message(topic="fresh"), new_message(**fields))

        assert (field, "1") == (refused.value.metadata["field"], refused.value.metadata["index"])
        assert end_offset == log.status.end_offset
        assert before == (read_tree(tmp_path / "commitlog"), read_tree(tmp_path / "config"))


@pytest.mark.parametrize(
    "fields",
    [
        {"body": b"x" * ((4 << 20) - 1)},
        {"body": b"x" * (4 << 20)},
        {"topic": "t" * 127},
        {"topic": "%RETRY%" + "t" * 248},
        {"keys": ["ключ", "钥匙"], "tags": "标签"},
        {"properties": {"WAIT": "true", "__SHARDINGKEY": "k", "a=b": "ü"}},
        {"properties": {"a": "b" * 32_000}},
        {"topic": "C_REPLY_TOPIC", "properties": {"CORRELATION_ID": "1", "REPLY_TO_CLIENT": "c", "MSG_TYPE": "reply"}},
        {"topic": "C_REPLY_TOPIC", "properties": {"MSG_TYPE": "other"}},
        {"properties": {"CORRELATION_ID": "1"}},
    ],
)
def test_what_is_just_allowed_is_stored(tmp_path: Path, fields: dict[str, Any]) -> None:
    with open_log(tmp_path, file_size_bytes=8 << 20) as log:
        message = new_message(**fields)
        record = log.opened.reads.get(append(log, message)[0].commit_log_offset)

    assert (message.topic, message.body) == (record.topic, record.body)
    assert (tuple(message.keys), message.tags) == (record.keys, record.tags)
    assert dict(message.properties).items() <= dict(record.properties).items()


def test_a_key_with_a_space_shows_how_it_would_be_split(tmp_path: Path) -> None:
    with open_log(tmp_path) as log, pytest.raises(InvalidMessageError) as refused:
        append(log, new_message(keys=["order 17"]))

    assert "['order', '17']" == refused.value.metadata["split"]


@pytest.mark.parametrize("messages", [[], [new_message()] * 1025, [new_message(b"x" * (3 << 20))] * 2])
def test_a_request_of_the_wrong_size_is_refused(tmp_path: Path, messages: list[NewMessage]) -> None:
    with open_log(tmp_path, file_size_bytes=8 << 20) as log:
        with pytest.raises(InvalidArgumentError) as refused:
            append(log, *messages)

        assert "messages" == refused.value.metadata["field"]
        assert 0 == log.status.end_offset


@pytest.mark.parametrize("seconds", [-1, 253_402_300_800])
def test_a_born_time_outside_1970_to_9999_is_refused(tmp_path: Path, seconds: int) -> None:
    message = new_message()
    message.born_time.seconds = seconds
    with open_log(tmp_path) as log, pytest.raises(InvalidMessageError) as refused:
        append(log, message)

    assert "born_time" == refused.value.metadata["field"]


def test_without_automatic_topics_an_unknown_one_is_not_found(tmp_path: Path) -> None:
    with open_log(tmp_path, auto_create_topic=False) as log, pytest.raises(TopicNotFoundError):
        append(log, new_message())

    assert not (tmp_path / "config").exists()


def test_a_topic_without_the_right_to_write_is_refused(copy_of_broker_store: Path) -> None:
    path = copy_of_broker_store / "config" / "topics.json"
    table = path.read_text().replace('"perm":6', '"perm":4')
    path.write_text(table)
    with open_log(copy_of_broker_store) as log, pytest.raises(InvalidMessageError) as refused:
        append(log, new_message(topic="b_order"))

    assert refused.value.metadata == {"field": "topic", "perm": "write", "index": "0"}


def test_a_topic_whose_row_cannot_be_read_takes_no_message_and_the_others_do(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_text('{"topicConfigTable":{"bad":{"perm":"all"}}}')
    with open_log(tmp_path) as log:
        append(log, new_message(topic="other"), new_message(topic="other"))
        with pytest.raises(InvalidMessageError, match=r"row of topic bad.*perm is 'all'.*repair it") as refused:
            append(log, new_message(topic="bad"))

        assert refused.value.metadata == {"field": "topic", "index": "0"}
        assert "'bad'" in log.status.problem
        assert (log.status.state, log.status.unreadable_topic_count) == ("serving", 1)

    assert json.loads(path.read_text())["topicConfigTable"]["bad"] == {"perm": "all"}


def test_replies_to_one_request_went_to_different_queues_and_so_had_no_first_one(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for request in ("request-1", "request-2", "钥匙"):
            reply = {"CORRELATION_ID": request, "REPLY_TO_CLIENT": "g", "MSG_TYPE": "reply"}
            receipts = [append(log, new_message(topic="C_REPLY_TOPIC", properties=reply))[0] for _ in range(3)]

            assert {receipt.queue_id for receipt in receipts} == {abs(java_string_hash(request)) % 8}


def test_a_sharding_key_chooses_as_rocketmqs_client_does(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for key in ("a", "order-1", "polygenelubricants", "钥匙"):
            receipt = append(log, new_message(properties={"__SHARDINGKEY": key}))[0]
            assert abs(java_string_hash(key)) % 8 == receipt.queue_id


def test_unique_keys_are_made_or_taken(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        made = {append(log, new_message())[0].unique_key for _ in range(200)}
        taken = append(log, new_message(unique_key="mine"))[0]

        assert 200 == len(made)
        assert "mine" == taken.unique_key == log.opened.reads.get(taken.commit_log_offset).unique_key
