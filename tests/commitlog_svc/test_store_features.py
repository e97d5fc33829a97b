"""What a store uses that Reput does not know: named by the status, and neither written nor expired."""

import json
from pathlib import Path

import pytest

from commitlog_svc.__main__ import tell_features
from commitlog_svc.status_answer import status_answer
from store.errors import InvalidMessageError, UnsupportedStoreError
from tests.commitlog_svc.retention_bench import Bench
from tests.commitlog_svc.support import append, make_log, new_message, open_log

RESERVED_MILLIS = 72 * 3_600_000
ATTRIBUTES = {"bcq": {"queue.type": "BatchCQ"}, "newest": {"cleanup.policy": "COMPACTION"}, "orders": {}}


def configured(root: Path) -> Path:
    (root / "config").mkdir()
    table = {topic: {"topicName": topic, "attributes": row} for topic, row in ATTRIBUTES.items()}
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    (root / "consumequeue/%LMQ%a/0").mkdir(parents=True)
    return root


@pytest.mark.parametrize("topic", ["bcq", "newest", "%LMQ%a"])
def test_a_topic_that_only_a_broker_can_keep_takes_no_message(tmp_path: Path, topic: str) -> None:
    with open_log(configured(tmp_path)) as log:
        with pytest.raises(InvalidMessageError, match=r"supported in part|not supported"):
            append(log, new_message(topic=topic))
        append(log, new_message(topic="orders"))


def test_the_status_names_what_the_store_uses_and_the_log_of_the_process_too(tmp_path: Path) -> None:
    told: list[dict[str, object]] = []
    with open_log(configured(tmp_path)) as log:
        tell_features(log.root, lambda event, **fields: told.append(fields))
        answer = status_answer(log, "broker-a")
    rows = [(row.name, row.verdict, list(row.where), row.hides_queues) for row in answer.features]
    assert rows == [
        ("batch-queues", "in part", ["bcq"], True),
        ("light-queues", "in part", ["consumequeue/%LMQ%a"], False),
        ("compaction", "in part", ["newest"], False),
    ]
    assert [fields["feature"] for fields in told] == ["batch-queues", "light-queues", "compaction"]
    assert all(str(fields["text"]) == row.text for fields, row in zip(told, answer.features, strict=True))


def test_dledger_beside_an_old_log_is_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        append(log, new_message())
    (tmp_path / "dledger-n0/data").mkdir(parents=True)
    (tmp_path / "dledger-n0/data/00000000000000000000").write_bytes(b"x")
    before = sorted(path for path in tmp_path.rglob("*"))
    for read_only in (False, True):
        with pytest.raises(UnsupportedStoreError, match="a log of DLedger"):
            make_log(tmp_path, read_only=read_only).recover()
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_compacted_topic_holds_the_log_files_until_the_disk_is_full(tmp_path: Path) -> None:
    """A broker keeps the newest message of each key beside the log; only it can bring it there."""
    bench = Bench(tmp_path, held_by=lambda: ["newest"])
    bench.add_files(4)
    bench.turn()
    bench.turn(RESERVED_MILLIS)
    bench.settle()
    assert bench.offsets == [0, 100, 200, 300]
    bench.press("clean-forcibly")
    bench.settle()
    assert bench.offsets == [300]


def test_the_log_is_held_only_while_the_compacted_topic_is_configured(tmp_path: Path) -> None:
    with open_log(configured(tmp_path)) as log:
        assert list(log.retention_holders()) == ["newest"]
        log.opened.topic_commands.delete("newest")
        assert list(log.retention_holders()) == []
