"""What a store uses that Reput does not know: named by the status, and neither written nor expired."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_svc.__main__ import tell_features
from commitlog_svc.answers import status_answer
from store.compiled import loading
from store.errors import InvalidMessageError, UnsupportedStoreError
from store.format.sys_flag import INNER_BATCH, NEED_UNWRAP
from tests.commitlog_svc.retention_bench import Bench
from tests.commitlog_svc.support import append, make_log, new_message, open_log, read_tree
from tests.store.walk.logs import frames_of, message

RESERVED_MILLIS = 72 * 3_600_000
ATTRIBUTES = {"bcq": {"queue.type": "BatchCQ"}, "newest": {"cleanup.policy": "COMPACTION"}, "orders": {}}


def configured(root: Path) -> Path:
    (root / "config").mkdir()
    table = {topic: {"topicName": topic, "attributes": row} for topic, row in ATTRIBUTES.items()}
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    (root / "consumequeue/%LMQ%a/0").mkdir(parents=True)
    return root


def lost(root: Path, log_file_size: int = 16384) -> Path:
    """A broker's store with two batches of `bcq`, of which neither config/ nor a folder tells any more."""
    flags = INNER_BATCH | NEED_UNWRAP
    batches = [
        message("bcq", "INNER_NUM\x013\x02INNER_BASE\x010\x02KEYS\x01k\x02", sys_flag=flags, guarded=False),
        message("orders", guarded=False),
        message("bcq", "INNER_NUM\x012\x02INNER_BASE\x013\x02KEYS\x01k\x02", sys_flag=flags, guarded=False),
    ]
    (root / "commitlog").mkdir()
    data = b"".join(frames_of(batches, base=0))
    (root / "commitlog" / f"{0:020}").write_bytes(data.ljust(log_file_size, b"\0"))
    return root


@pytest.fixture(params=[loading.OFF, loading.EAGER])
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    before = loading.switch(request.param)
    yield
    loading.switch(before)


@pytest.mark.usefixtures("kernels")
def test_a_send_to_a_batch_topic_was_taken_when_its_row_and_its_folder_were_lost(tmp_path: Path) -> None:
    for _ in range(2):  # the second start reads no record: the snapshot names the topic
        with open_log(lost(tmp_path) if not (tmp_path / "commitlog").exists() else tmp_path) as log:
            with pytest.raises(InvalidMessageError, match="topic bcq uses batch queues"):
                append(log, new_message(topic="bcq"))
            append(log, new_message(topic="orders"))
            (feature,) = status_answer(log, "broker-a").features
            assert (feature.name, list(feature.where), feature.hides_queues) == ("batch-queues", ["bcq"], True)


def test_a_batch_that_a_copied_log_brings_closes_its_topic_at_once_and_after_a_start(tmp_path: Path) -> None:
    """A mirror and a replica grow by the bytes of others; they write when they lead."""
    with open_log(tmp_path / "to") as log:
        append(log, new_message(topic="orders"))
        end = log.opened.appender.snapshot()[0]
        copy = log.begin_copy()
        flags = INNER_BATCH | NEED_UNWRAP
        (frame,) = frames_of([message("bcq", "INNER_NUM\x013\x02INNER_BASE\x010\x02", sys_flag=flags)], base=end)
        copy.receive(end, frame)
        copy.settle_records()
        assert list(log.topics.closed) == ["bcq"]
    with open_log(tmp_path / "to") as log:
        assert list(log.topics.closed) == ["bcq"]


@pytest.mark.parametrize("version", ["this", "without offsets"])
def test_a_batch_topic_stayed_closed_for_ever_after_its_last_batch_expired(tmp_path: Path, version: str) -> None:
    def append_file() -> None:
        for _ in range(6):
            append(log, new_message(topic="orders", body=bytes(3_000)))

    (tmp_path / "broker").mkdir()
    root, derived = lost(tmp_path / "broker"), tmp_path / "derived"
    first, snapshot = root / "commitlog" / f"{0:020}", root / "reput/commitlog/snapshot.json"
    with open_log(root) as log:
        append_file()
    with open_log(root, follow=True, derived=derived) as log:
        assert [each.evidence for each in log.root.features] == [("bcq",)]
    state = json.loads(snapshot.read_text())
    if version == "without offsets":
        snapshot.write_text(json.dumps(state | {"batch_topics": ["bcq"]}))
        with open_log(root) as log:
            assert list(log.topics.closed) == ["bcq"], "its batch may lie anywhere"
            append_file()
        first.with_name(f"{16384:020}").unlink()
    first.unlink()
    with open_log(root, follow=True, derived=derived) as log:
        assert not log.root.features
    with open_log(root) as log:
        assert not log.root.features
        append(log, new_message(topic="bcq"))


def test_a_snapshot_closed_a_topic_whose_only_batch_was_cut_off_behind_it(tmp_path: Path) -> None:
    """A follower that takes an unconfirmed tail while the snapshot waits for the disk, and cuts that tail later."""
    with open_log(tmp_path / "to") as log:
        append(log, new_message(topic="orders"))
        end = log.opened.appender.snapshot()[0]
        copy, wait_flushed = log.begin_copy(), log._commits.wait_flushed
        flags = INNER_BATCH | NEED_UNWRAP
        (frame,) = frames_of([message("bcq", "INNER_NUM\x013\x02INNER_BASE\x010\x02", sys_flag=flags)], base=end)

        def wait_while_a_batch_comes(offset: int) -> None:
            copy.receive(end, frame)
            copy.settle_records()
            wait_flushed(offset)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log._commits, "wait_flushed", wait_while_a_batch_comes)
            log._safe_points.write()
        log.plan_cut(end)
        shutil.copytree(tmp_path / "to", tmp_path / "killed")
    with open_log(tmp_path / "killed") as log:
        assert not log.topics.closed
        append(log, new_message(topic="bcq"))


def test_the_topics_of_a_log_that_is_only_followed_are_known_too(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    root = lost(tmp_path / "broker")
    before = read_tree(root)
    with open_log(root, read_only=True) as log:
        assert [each.evidence for each in log.root.features] == [("bcq",)]
    with open_log(root, follow=True, derived=tmp_path / "derived") as log:
        assert [each.evidence for each in log.root.features] == [("bcq",)]
    assert read_tree(root) == before


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
