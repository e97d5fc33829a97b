"""Stores of every release that ever wrote one, and RocketMQ's, open with the answers that they had.

`reput-0.1.0.tar.xz` holds a store as version 0.1.0 left it at a clean stop (`store/`: small files, the front of the log
expired, snapshot and checkpoints beside it) and what it answered to every question then (`answers.json`). A release
adds its own archive (tests/releases/freeze.py) and never changes an older one.
"""

import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gateway.ports.shards import Shards
from store.files.overlay_file_system import OverlayFileSystem
from store.format.record import Record, decode_record
from tests.commitlog_svc.support import append, new_message, open_log
from tests.support.crashing import copy_open_store
from tests.support.dispatches import file_bytes
from tests.support.fixture_stores import FIXTURES, STORE_NAMES, walk_frames
from tests.torture.answers import FAN_OUT, ask, right_answers
from tests.torture.local_shard import LocalShard, open_shard

RELEASES = sorted(FIXTURES.glob("reput-*.tar.xz"))


def _row(record: Record) -> list[Any]:
    """One message of an answer, short."""
    digest = hashlib.sha256(record.body + record.properties_bytes).hexdigest()[:16]
    return [record.commit_log_offset, record.queue_id, record.queue_offset, record.store_time_millis, digest]


def answers_of(shard: LocalShard) -> dict[str, list[list[Any]]]:
    """What a shard answers to every question about its own messages."""
    records, offset = [], shard.log.status.first_offset
    for batch in shard.log.following.follow(offset, 0):
        records += [shard.log.opened.reads.get(request.commit_log_offset) for request in batch.requests]
        if batch.next_offset >= batch.log_end_offset:
            break
    shards = Shards([shard.shard()], FAN_OUT)
    found: dict[str, list[list[Any]]] = {}
    for question, expected in right_answers(records).items():
        answer = ask(shards, question)
        assert answer.error is None, (question, answer.error)
        assert answer.is_complete, question
        assert answer.records == expected, question
        found["\t".join(question)] = [_row(record) for record in answer.records]
    return found


def _unpack(archive: Path, directory: Path) -> tuple[Path, dict[str, list[list[Any]]]]:
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return directory / "store", json.loads((directory / "answers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("archive", RELEASES, ids=lambda path: path.name)
def test_a_store_of_a_release_opens_with_the_same_answers(archive: Path, tmp_path: Path) -> None:
    root, expected = _unpack(archive, tmp_path)
    log_before = file_bytes(root / "commitlog")
    assert len(expected) > 300

    for _ in range(2):  # as it was left, and as we leave it
        with open_shard(root) as shard:
            assert shard.log.opened.found.cut_offset is None
            assert shard.log.status.first_offset == min(map(int, log_before))
            assert expected == answers_of(shard)
    for name, data in file_bytes(root / "commitlog").items():
        assert log_before.get(name, bytes(len(data))) == data

    with open_shard(root) as shard:
        ends = {key: queue.units.end for key, queue in shard.table.items()}
        receipt = append(shard.log, new_message(b"of today", "orders", queue_id=1, keys=["k1"]))[0]
        assert ends["orders", 1] == receipt.queue_offset
        shard.catch_up()
        answer = ask(Shards([shard.shard()], FAN_OUT), ("key", "orders", "k1"))
        assert b"of today" == answer.records[0].body
        assert [_row(record) for record in answer.records[1:]] == expected.get("key\torders\tk1", [])


@pytest.mark.parametrize("archive", RELEASES, ids=lambda path: path.name)
@pytest.mark.parametrize("lost", ["consumequeue", "index", "reput", "checkpoint"])
def test_a_store_of_a_release_without_a_part_gives_the_same_answers(archive: Path, lost: str, tmp_path: Path) -> None:
    root, expected = _unpack(archive, tmp_path)
    if (root / lost).is_dir():
        shutil.rmtree(root / lost)
    else:
        (root / lost).unlink()

    with open_shard(root, queue_file_size_bytes=1000) as shard:
        assert expected == answers_of(shard)


@pytest.mark.parametrize("archive", RELEASES, ids=lambda path: path.name)
def test_a_store_of_a_release_is_read_without_being_touched(archive: Path, tmp_path: Path) -> None:
    root, expected = _unpack(archive, tmp_path)
    before = file_bytes(root)

    with open_shard(root, OverlayFileSystem(), read_only=True) as shard:
        assert expected == answers_of(shard)

    assert before == file_bytes(root)


@pytest.mark.parametrize("name", STORE_NAMES)
def test_a_store_that_rocketmq_wrote_opens_with_the_answers_of_its_log(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Every message by every question, against brute force over frames cut by their sizes alone."""
    root = request.getfixturevalue(f"copy_of_{name}_store")
    frames = dict(walk_frames(root))
    records = [decode_record(frame, commit_log_offset=offset) for offset, frame in frames.items()]
    before = file_bytes(root / "commitlog")

    with open_shard(root) as shard:
        assert len(records) == shard.log.opened.found.record_count
        shards = Shards([shard.shard()], FAN_OUT)
        questions = right_answers(records)
        for question, expected in questions.items():
            answer = ask(shards, question)
            assert (None, True) == (answer.error, answer.is_complete), question
            assert answer.records == expected, question
        print(f"{name}: {len(questions)} questions")
    after = file_bytes(root / "commitlog")
    assert before == {file_name: after[file_name] for file_name in before}


@pytest.mark.parametrize("was_killed", [False, True])
@pytest.mark.parametrize("name", ["engine", "broker"])
def test_rmq_7480_a_log_without_a_crc_in_its_properties_is_not_cut(
    name: str, was_killed: bool, request: pytest.FixtureRequest
) -> None:
    """RocketMQ, once told to write `__CRC32#`, took every older record for a torn one and truncated the log."""
    root = request.getfixturevalue(f"copy_of_{name}_store")
    if was_killed:
        (root / "abort").write_bytes(b"")
    frames = dict(walk_frames(root))
    end = max(offset + len(frame) for offset, frame in frames.items())

    with open_log(root, properties_crc=True) as log:
        assert (None, end, len(frames)) == (
            log.opened.found.cut_offset, log.opened.found.end_offset, log.opened.found.record_count,
        )  # fmt: skip
        topic = "b_order" if name == "broker" else "extra_a"
        guarded = append(log, new_message(topic=topic, queue_id=0))[0]
    for path in (root / "reput" / "commitlog").glob("*.json"):
        path.unlink()
    with open_log(root, properties_crc=True) as log:
        assert len(frames) + 1 == log.opened.found.record_count
        assert log.opened.reads.get(guarded.commit_log_offset).is_guarded


@pytest.mark.parametrize("keep_state", [False, True])
def test_rmq_7480_records_written_after_the_crc_was_switched_off_are_not_cut(tmp_path: Path, keep_state: bool) -> None:
    """Guarded records, then ones that are not, then a kill: the last has zeros behind it and stays."""
    live = tmp_path / "live"
    with open_log(live, properties_crc=True) as log:
        append(log, *[new_message(b"guarded") for _ in range(3)])
    for count in (1, 2, 3):
        with open_log(live, properties_crc=False) as log:
            receipt = append(log, new_message(b"not", tags="T"))[0]
            crashed = tmp_path / f"crashed-{count}"
            copy_open_store(live, crashed)
        if not keep_state:
            shutil.rmtree(crashed / "reput")

        with open_log(crashed, properties_crc=True) as log:
            assert log.opened.found.cut_offset is None
            assert not log.opened.reads.get(receipt.commit_log_offset).is_guarded
            assert receipt.commit_log_offset + receipt.store_size_bytes == log.status.end_offset
