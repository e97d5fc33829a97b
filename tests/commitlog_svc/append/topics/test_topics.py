"""The topic table: what a foreign record or a foreign file may say of queues."""

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from commitlog_svc.append.topics.topics import ROWS_TOLD_MAX, TopicChange, TopicTable
from store.errors import TopicExistsError
from store.files.file_system import RealFileSystem
from store.format import config_json
from store.format.topic import TOPIC_QUEUE_COUNT_MAX, decode_data_version


def table(root: Path) -> TopicTable:
    return TopicTable(RealFileSystem(), root, 8, lambda: 0)


def test_a_foreign_record_with_the_highest_queue_id_makes_no_topic_of_two_billion_queues(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.load([("hostile", (1 << 31) - 1), ("hostile", 11), ("sound", 9)])

    topics.create_missing(["hostile", "sound"])

    counts = {config.topic: config.write_queue_count for config in topics.all()}
    assert counts == {"hostile": 12, "sound": 10}


def test_a_service_s_record_gives_a_new_topic_no_more_than_the_most_queues(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.create_missing(["new"], {"new": 1 << 31})
    assert topics.writable_queue_count("new") == TOPIC_QUEUE_COUNT_MAX


def test_a_configured_count_is_kept_in_the_file_and_bounded_for_producers(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    configured = {"topicConfigTable": {"large": {"readQueueNums": 10**9, "writeQueueNums": 10**9, "perm": 6}}}
    (tmp_path / "config" / "topics.json").write_text(json.dumps(configured))
    topics = table(tmp_path)
    topics.load([])

    topics.create_missing(["other"])

    assert topics.writable_queue_count("large") == TOPIC_QUEUE_COUNT_MAX
    kept = json.loads((tmp_path / "config" / "topics.json").read_text())["topicConfigTable"]["large"]
    assert kept["writeQueueNums"] == 10**9


HOSTILE: dict[str, object] = {
    "number": 1,
    "nothing": None,
    "list": [],
    "text for a number": {"readQueueNums": "8"},
    "truth for a number": {"perm": True},
    "stands in for another": {"topicName": "sound"},
    "attributes of no text": {"attributes": {"message.type": ["FIFO"]}},
    "\ud800": {},
    "n" * 256: {},
    "": {},
}


def test_one_malformed_row_of_topics_json_stopped_the_start(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    rows = {**HOSTILE, "sound": {"topicName": "sound", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}}
    path.write_text(json.dumps({"topicConfigTable": rows}))
    topics = table(tmp_path)

    with capture_logs() as events:
        topics.load([("number", 3)])

    assert [config.topic for config in topics.all()] == ["sound"]
    assert topics.unreadable.keys() == HOSTILE.keys()
    assert f"({len(HOSTILE)}: 'number', 'nothing', 'list')" in topics.problem
    told = [event for event in events if event["event"] == "topics.row_unreadable"]
    assert len(told) == ROWS_TOLD_MAX
    assert "\\ud800" in {event["topic"] for event in told}, "it can be written to a log"
    assert told[0] | {"topic": "number", "problem": "it is not an object", "rows": len(HOSTILE)} == told[0]

    topics.create_missing(["fresh", "number"])  # the file is written anew
    assert topics.find("number") is None
    assert topics.writable_queue_count("number") == 0
    for change in (topics.create, topics.update):
        with pytest.raises(TopicExistsError, match="repair it while the service is stopped"):
            change("number", TopicChange(write_queue_count=1))
    kept = json.loads(path.read_text())["topicConfigTable"]
    assert kept.keys() == {*HOSTILE, "sound", "fresh"}
    assert {name: kept[name] for name in HOSTILE} == HOSTILE
    again = table(tmp_path)
    again.load([])
    assert again.unreadable == topics.unreadable


def test_a_row_that_cannot_be_read_goes_when_an_operator_deletes_its_topic(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"topicConfigTable": {"bad": 1, "worse": 2}}))
    topics = table(tmp_path)
    topics.load([])

    with capture_logs() as events:
        assert topics.delete("bad")
    assert ("topics.unreadable_row_dropped", "1") in [(event["event"], event.get("row")) for event in events]

    assert json.loads(path.read_text())["topicConfigTable"] == {"worse": 2}
    assert topics.create("bad", TopicChange(write_queue_count=2)).write_queue_count == 2
    assert "'worse'" in topics.problem
    topics.replace(b'{"topicConfigTable":{}}')
    assert topics.problem == ""


def test_a_table_that_is_none_is_told_and_topics_come_from_the_log(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_text('{"topicConfigTable":[]}')
    topics = table(tmp_path)

    topics.load([("known by its messages", 11)])

    assert "topicConfigTable is no object; nothing of it is used" in topics.problem
    assert topics.writable_queue_count("known by its messages") == 12
    topics.create_missing(["known by its messages"])
    assert path.with_name("topics.json.damaged-1").read_text() == '{"topicConfigTable":[]}'
    assert json.loads(path.read_text())["topicConfigTable"].keys() == {"known by its messages"}


def test_a_damaged_table_is_read_from_its_bak_which_stays_when_the_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    sound = json.dumps({"topicConfigTable": {"T": {"perm": 4, "writeQueueNums": 3}}}).encode()
    path.write_bytes(bytes(64))
    path.with_name("topics.json.bak").write_bytes(sound)
    topics = table(tmp_path)
    topics.load([])

    assert [(config.topic, config.perm) for config in topics.all()] == [("T", 4)]
    assert "topics.json.bak is used" in topics.problem
    topics.create_missing(["new"])
    assert path.with_name("topics.json.bak").read_bytes() == sound
    assert path.with_name("topics.json.damaged-1").read_bytes() == bytes(64)
    assert json.loads(path.read_text())["topicConfigTable"].keys() == {"T", "new"}
    again = table(tmp_path)
    again.load([])
    assert again.problem == ""


def test_while_a_broker_writes_its_table_the_topics_stay_that_are_known(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"topicConfigTable": {"T": {}}}))
    topics = table(tmp_path)
    topics.load([])
    path.write_text('{"topicConfigTable": {"T": {')
    topics.load([])
    assert [config.topic for config in topics.all()] == ["T"]


def test_where_a_deleted_topic_ended_is_kept_over_restarts_until_its_messages_are_gone(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.load([("unconfigured", 0)])
    for name in ("a", "b"):
        topics.create(name, TopicChange(write_queue_count=1))
    before = topics.version
    assert topics.delete("a", 100, 700)
    assert not topics.delete("unconfigured", 100, 800)  # it has messages: those are deleted all the same
    assert not topics.delete("unknown", 100, 800)
    assert topics.version > before
    topics.create("a", TopicChange(write_queue_count=1))
    again = table(tmp_path)
    again.load([])
    copy = table(tmp_path / "copy")
    content = again.read()
    assert content is not None
    (tmp_path / "copy" / "config").mkdir(parents=True)
    copy.copy(content)
    assert again.deleted == copy.deleted == {"a": 700, "unconfigured": 800}

    again.delete("b", 750, 900)  # retention has removed all that `a` had

    assert again.deleted == {"unconfigured": 800, "b": 900}


def test_the_file_was_read_again_each_time_the_shard_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of 100,000 topics takes a third of a second, every 30 s and at each change, once for each name server."""
    topics = table(tmp_path)
    topics.load([])
    topics.create_missing(["one"])
    read, count = topics.read, [0]

    def counted() -> bytes | None:
        count[0] += 1
        return read()

    monkeypatch.setattr(topics, "read", counted)
    assert [topics.data_version().counter for _ in range(3)] == [1, 1, 1]
    topics.create_missing(["two"])
    assert [topics.data_version().counter for _ in range(3)] == [2, 2, 2]
    assert count == [0]  # what was written is known
    content = (tmp_path / "config" / "topics.json").read_bytes()
    topics.copy(content.replace(b'"counter":2', b'"counter":7'))
    assert topics.data_version().counter == 7, "the same topics, and another version"
    assert count == [1]


def test_the_file_was_parsed_for_each_new_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of 100,000 topics takes a third of a second; only one that another program wrote is parsed."""
    topics = table(tmp_path)
    topics.load([])
    parsed, loads = [], config_json._loads

    def counted(text: str) -> object:
        parsed.append(text)
        return loads(text)

    monkeypatch.setattr(config_json, "_loads", counted)
    path = tmp_path / "config" / "topics.json"

    topics.create_missing(["one"])
    topics.create_missing(["two"])
    assert len(parsed) == 1  # what stands for no file
    path.write_text(path.read_text().replace('"stateVersion":0', '"stateVersion":4,\n\t\t"later":1'))
    topics.create_missing(["three"])

    document = json.loads(path.read_bytes())
    assert document["dataVersion"] | {"timestamp": 0} == {"counter": 3, "stateVersion": 4, "later": 1, "timestamp": 0}
    assert list(document["topicConfigTable"]) == ["one", "two", "three"]
    assert topics.data_version() == decode_data_version(path.read_bytes())


def test_a_retry_topic_gets_the_queues_that_retries_need_and_other_topics_keep_theirs(tmp_path: Path) -> None:
    """A broker that takes over reads as many queues as the table says."""
    topics = table(tmp_path)
    topics.load([])
    names = ["%RETRY%g_T", "T", "%DLQ%g"]
    topics.create_missing(names, {"%RETRY%g_T": 1, "T": 4, "%DLQ%g": 1})
    assert topics.create_missing(names, {"%RETRY%g_T": 4, "T": 40, "%DLQ%g": 4}) == []
    counts = {config.topic: (config.read_queue_count, config.write_queue_count) for config in topics.all()}
    assert counts == {"%RETRY%g_T": (4, 4), "T": (8, 8), "%DLQ%g": (1, 1)}
    version = topics.version
    topics.create_missing(names, {"%RETRY%g_T": 2, "T": 1, "%DLQ%g": 1})
    assert topics.version == version
    again = table(tmp_path)
    again.load([])
    assert again.readable_queue_count("%RETRY%g_T") == 4


def test_a_retry_topic_that_is_closed_stays_closed_and_one_that_cannot_be_read_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    rows = {
        "%RETRY%g_T": {"topicName": "%RETRY%g_T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 0},
        "%RETRY%g_U": 7,
    }
    path.write_text(json.dumps({"topicConfigTable": rows}))
    topics = table(tmp_path)
    topics.load([])
    assert topics.create_missing(list(rows), dict.fromkeys(rows, 4)) == []
    kept = json.loads(path.read_text())["topicConfigTable"]
    assert [kept["%RETRY%g_T"][name] for name in ("readQueueNums", "writeQueueNums", "perm")] == [4, 4, 0]
    assert kept["%RETRY%g_U"] == 7
    assert topics.writable_queue_count("%RETRY%g_T") == 0
