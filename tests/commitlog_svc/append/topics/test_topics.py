"""The topic table: what a foreign record or a foreign file may say of queues."""

import json
from pathlib import Path

from commitlog_svc.append.topics.topics import TopicTable
from store.files.file_system import RealFileSystem
from store.format.topic import TOPIC_QUEUE_COUNT_MAX


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
