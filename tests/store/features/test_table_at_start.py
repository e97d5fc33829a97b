"""What is no store that can be served is refused by name, before a byte is written."""

import json
from pathlib import Path

import pytest

from store.errors import UnsupportedStoreError
from store.features.signs import read_signs
from store.features.table import (
    FEATURES,
    HELD_TOPIC_COUNT_MAX,
    Support,
    closed_topics,
    held_elsewhere,
    hidden_queues,
    refuse_unsupported,
)
from store.files.file_system import RealFileSystem

# What RocketMQ 5.5.0 made with each setting; kvStore and dledger by the source of 5.3.3 and DLedger.
REFUSED = {
    "dledger": ["dledger-n0/data/00000000000000000000"],
    "rocksdb-queues": ["consumequeue/CURRENT"],
    "rocksdb-config": ["config/topics/CURRENT"],
    "rocksdb-messages": ["rocksdbstore/CURRENT", "rocksdbstore/000013.sst"],
    "rocksdb-pop": ["kvStore/CURRENT"],
}
OTHER_SIGNS = [
    ("rocksdb-queues", "consumequeue_r/CURRENT"),
    ("rocksdb-queues", "consumequeue_rocksdb/CURRENT"),
    ("rocksdb-queues", "rocksdb/CURRENT"),
    ("rocksdb-config", "config/rdb/CURRENT"),
    ("rocksdb-config", "config/consumerOffsets/CURRENT"),
    ("rocksdb-config", "config/subscriptionGroups/CURRENT"),
    ("rocksdb-config", "config/metadata/CURRENT"),
]


def make(root: Path, *paths: str) -> Path:
    for name in ("commitlog/00000000000000000000", "config/subscriptionGroup.json", *paths):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return root


def configure(root: Path, **attributes: dict[str, str]) -> Path:
    table = {topic: {"topicName": topic, "attributes": row} for topic, row in attributes.items()}
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    return root


def names_of(root: Path) -> dict[str, tuple[str, ...]]:
    return {each.feature.name: each.evidence for each in refuse_unsupported(RealFileSystem(), root)}


@pytest.mark.parametrize("name", REFUSED)
def test_a_store_with_a_refused_feature_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    make(tmp_path, *REFUSED[name])
    with pytest.raises(UnsupportedStoreError) as caught:
        refuse_unsupported(RealFileSystem(), tmp_path)
    feature = next(feature for feature in FEATURES if feature.name == name)
    assert caught.value.metadata["feature"] == name
    assert feature.title in caught.value.message
    assert feature.to_do in caught.value.message


@pytest.mark.parametrize(("name", "path"), OTHER_SIGNS)
def test_each_other_sign_of_rocksdb_is_refused_too(tmp_path: Path, name: str, path: str) -> None:
    with pytest.raises(UnsupportedStoreError) as caught:
        refuse_unsupported(RealFileSystem(), make(tmp_path, path))
    assert caught.value.metadata["feature"] == name


def test_every_refused_row_of_the_table_has_a_sign_here_or_is_found_by_recovery() -> None:
    refused = {feature.name for feature in FEATURES if feature.support is Support.REFUSED}
    assert refused == {*REFUSED, "several-log-paths"}


def test_dledger_alone_is_refused_with_what_to_do_and_not_as_a_wrong_directory(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0/data").mkdir(parents=True)
    (tmp_path / "dledger-n0/data/00000000000000000000").write_bytes(b"x")
    with pytest.raises(UnsupportedStoreError, match="enableDLegerCommitLog=false") as caught:
        refuse_unsupported(RealFileSystem(), tmp_path)
    assert "name the root" not in caught.value.message


def test_the_empty_database_that_every_5_5_makes_is_no_reason_to_refuse(tmp_path: Path) -> None:
    make(tmp_path, "rocksdbstore/CURRENT", "rocksdbstore/MANIFEST-000005", "compaction/position-checkpoint")
    (tmp_path / "rocksdbstore/000004.log").write_bytes(b"")
    assert names_of(tmp_path) == {"rocksdb-empty": ("rocksdbstore",)}


def test_a_log_of_that_database_with_content_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "rocksdbstore/000004.log")
    with pytest.raises(UnsupportedStoreError, match="timerRocksDBEnable"):
        refuse_unsupported(RealFileSystem(), tmp_path)


def test_snapshots_of_the_timer_wheel_refuse_only_a_start_that_writes(tmp_path: Path) -> None:
    make(tmp_path, "timerwheel.260")
    assert names_of(tmp_path) == {"timer-wheel-snapshots": ("timerwheel.260",)}
    with pytest.raises(UnsupportedStoreError, match=r"timerWheelSnapshotFlush=false.*--read-only"):
        refuse_unsupported(RealFileSystem(), tmp_path, writes=True)


def test_features_that_are_served_in_part_are_found_by_attributes_and_by_files(tmp_path: Path) -> None:
    make(
        tmp_path,
        *("consumequeue/%LMQ%a/0/00000000000000000000", "config/lmqConsumerOffset.json"),
        *("batchconsumequeue/old/0/00000000000000000000", "compaction/compactionLog/gone/0/00000000000000000000"),
        *("epochFileCheckpoint", "tieredstore/x", "consumequeue_ext/t/0/00000000000000000000", "timerlog/x"),
    )
    configure(
        tmp_path,
        batch={"queue.type": "BatchCQ"},
        simple={"queue.type": "SimpleCQ"},
        newest={"cleanup.policy": "COMPACTION"},
        all={"cleanup.policy": "DELETE"},
        lite={"message.type": "LITE"},
        first={"message.type": "PRIORITY"},
    )
    # RocketMQ's JSON does not quote keys that are numbers.
    mapping = '{"topicQueueMappingInfoMap":{"static":{"currIdMap":{0:0},"topic":"static"}}}'
    (tmp_path / "config/topicQueueMapping.json").write_text(mapping)
    assert names_of(tmp_path) == {
        "batch-queues": ("batch", "old"),
        "light-queues": ("consumequeue/%LMQ%a", "config/lmqConsumerOffset.json"),
        "compaction": ("gone", "newest"),
        "lite-topics": ("lite",),
        "priority-topics": ("first",),
        "static-topics": ("static",),
        "tiered-storage": ("tieredstore",),
        "controller": ("epochFileCheckpoint",),
        "queue-ext": ("consumequeue_ext",),
        "timers": ("timerlog",),
    }
    found = refuse_unsupported(RealFileSystem(), tmp_path, writes=True)
    assert list(hidden_queues(found)) == ["batch", "old"]
    assert sorted(closed_topics(found)) == ["batch", "gone", "newest", "old"]


def test_a_damaged_table_of_topics_is_read_from_the_file_before_it(tmp_path: Path) -> None:
    configure(make(tmp_path), batch={"queue.type": "BatchCQ"})
    (tmp_path / "config/topics.json").rename(tmp_path / "config/topics.json.bak")
    (tmp_path / "config/topics.json").write_bytes(bytes(100))
    assert names_of(tmp_path) == {"batch-queues": ("batch",)}


def test_a_store_with_json_files_is_served(tmp_path: Path) -> None:
    assert names_of(configure(make(tmp_path), plain={})) == {}


def test_an_empty_directory_is_refused_where_no_store_can_begin(tmp_path: Path) -> None:
    refuse_unsupported(RealFileSystem(), tmp_path)
    with pytest.raises(UnsupportedStoreError, match="nothing to serve read-only"):
        refuse_unsupported(RealFileSystem(), tmp_path, may_be_empty=False)


def test_attributes_of_topics_that_are_no_sign_cost_no_look_at_each_topic(tmp_path: Path) -> None:
    make(tmp_path)
    configure(tmp_path, Plain={}, Normal={"message.type": "NORMAL"}, Other={"cleanup.policy": "DELETE"})
    assert read_signs(RealFileSystem(), tmp_path).topics == {}
    configure(tmp_path, Plain={}, Normal={"message.type": "NORMAL"}, Light={"message.type": "LITE"})
    assert read_signs(RealFileSystem(), tmp_path).topics == {"Light": {"message.type": "LITE"}}


def test_an_attribute_that_only_the_bak_of_a_damaged_table_has_is_a_sign(tmp_path: Path) -> None:
    configure(make(tmp_path), Batch={"queue.type": "BatchCQ"})
    table = tmp_path / "config/topics.json"
    table.rename(table.with_name("topics.json.bak"))
    table.write_bytes(bytes(64))
    assert names_of(tmp_path)["batch-queues"] == ("Batch",)
    table.write_text(table.with_name("topics.json.bak").read_text().replace("BatchCQ", "\\u0042atchCQ"))
    assert names_of(tmp_path)["batch-queues"] == ("Batch",)


def test_compacted_topics_and_tiered_storage_may_hold_what_the_log_has_no_more(tmp_path: Path) -> None:
    configure(make(tmp_path), newest={"cleanup.policy": "COMPACTION"}, bcq={"queue.type": "BatchCQ"}, plain={})
    (tmp_path / "compaction/compactionLog/older/0").mkdir(parents=True)
    held = held_elsewhere(refuse_unsupported(RealFileSystem(), tmp_path))
    assert {topic: feature for topic, (feature, _) in held.items()} == {"newest": "compaction", "older": "compaction"}
    assert held["newest"][1].startswith("topic newest uses compacted topics")

    (tmp_path / "tieredstore/broker").mkdir(parents=True)
    feature, text = held_elsewhere(refuse_unsupported(RealFileSystem(), tmp_path))[""]
    assert (feature, "the store uses tiered storage (tieredstore)" in text) == ("tiered-storage", True)


def test_more_compacted_topics_than_an_answer_names_stand_for_all_topics(tmp_path: Path) -> None:
    configure(make(tmp_path), **{f"t{n}": {"cleanup.policy": "COMPACTION"} for n in range(HELD_TOPIC_COUNT_MAX + 1)})
    held = held_elsewhere(refuse_unsupported(RealFileSystem(), tmp_path))
    assert {topic: feature for topic, (feature, _) in held.items()} == {"": "compaction"}
