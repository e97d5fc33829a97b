"""The id of a store goes with its log: a disk that is empty, or was, has another one."""

import shutil
from pathlib import Path

import pytest

from commitlog_svc.replication.epochs import EpochFile
from commitlog_svc.replication.leading.record import ShardRecord
from commitlog_svc.replication.store_id import STORE_ID_NAME, open_store_id
from store.files.file_system import RealFileSystem
from tests.commitlog_svc.replication.replicas import Shard, open_shard, wait_equal, wait_in_sync
from tests.support.waiting import wait_until

FS = RealFileSystem()


def open_id(directory: Path) -> str:
    epochs = EpochFile(FS, directory)
    epochs.load()
    return open_store_id(FS, directory, epochs)


def begin_epoch(directory: Path) -> None:
    EpochFile(FS, directory).begin(1, 0)


def test_a_log_keeps_its_id_from_its_first_epoch_on(tmp_path: Path) -> None:
    before = open_id(tmp_path)
    made = open_id(tmp_path)
    assert made != before, "a log without an epoch is nobody's yet"
    begin_epoch(tmp_path)
    assert [open_id(tmp_path), open_id(tmp_path)] == [made, made]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"store_id":7}', b'{"store_id":""}'])
def test_a_damaged_id_is_replaced_by_a_new_one(tmp_path: Path, content: bytes) -> None:
    made = open_id(tmp_path)
    begin_epoch(tmp_path)
    (tmp_path / STORE_ID_NAME).write_bytes(content)
    new = open_id(tmp_path)
    assert new not in ("", made)
    assert open_id(tmp_path) == new


def record_of(shard: Shard) -> ShardRecord:
    stored = shard.store.read(1.0)
    assert stored is not None
    return ShardRecord.from_bytes(stored.data)


def test_the_record_names_the_store_of_each_member_and_the_new_one_of_a_replica_that_lost_its_disk(
    tmp_path: Path,
) -> None:
    with open_shard(tmp_path) as shard:
        leader, follower = shard.start_all("r1", "r2")
        leader.append(b"with both")
        known = {"r1": leader.log.store_id, "r2": follower.log.store_id}
        wait_until(lambda: record_of(shard).store_ids == known, "the record names both stores")
        follower.stop()
        shutil.rmtree(tmp_path / "r2")
        follower = shard.start("r2")
        assert follower.log.store_id != known["r2"]
        wait_until(lambda: record_of(shard).store_ids.get("r2") == follower.log.store_id, "it is in again")
        wait_in_sync(leader, "r1", "r2")
        leader.append(b"with both again")
        wait_equal(leader, follower)


def test_a_replica_that_lost_its_disk_does_not_lead_after_a_restart_in_the_middle_of_its_copy(tmp_path: Path) -> None:
    """It did: its log was not empty any more, and the record still had it in the set when its leader was gone."""
    with open_shard(tmp_path) as shard:
        leader, follower = shard.start_all("r1", "r2")
        leader.append(b"first")
        wait_equal(leader, follower)
        follower.stop()
        shutil.copytree(tmp_path / "r2" / "commitlog", tmp_path / "half")
        epochs = (tmp_path / "r2" / "reput" / "commitlog" / "epochs.json").read_bytes()
        shard.start("r2")
        wait_in_sync(leader, "r1", "r2")
        leader.append(b"acknowledged by both")
        shard.nodes["r2"].stop()
        leader.stop()

        # The disk that took the place of the lost one: its first bytes and the leader's epochs have come, then a restart.
        shutil.rmtree(tmp_path / "r2")
        state = tmp_path / "r2" / "reput" / "commitlog"
        state.mkdir(parents=True)
        open_id(state)
        (state / "epochs.json").write_bytes(epochs)
        shutil.move(tmp_path / "half", tmp_path / "r2" / "commitlog")
        lost = shard.start("r2")

        wait_until(lambda: "files were lost" in lost.leadership.view.refusal, "it says why it does not stand")
        assert "r2" in record_of(shard).in_sync
        assert not lost.leads
