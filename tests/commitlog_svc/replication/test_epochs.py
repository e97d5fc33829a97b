"""Where two logs agree, against brute force over histories of leaders; and the file of epochs.

The id of a store goes with its log: a disk that is empty, or was, has another one.
"""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_svc.replication.epochs import NOWHERE, STORE_ID_NAME, Epoch, EpochFile, agreed_offset, open_store_id
from commitlog_svc.replication.leading.record import ShardRecord
from store.errors import StoreCorruptedError
from store.files.file_system import RealFileSystem
from store.files.json_state import write_bytes_atomic
from tests.commitlog_svc.replication.replicas import Shard, open_shard, wait_equal, wait_in_sync
from tests.support.waiting import wait_until

FS = RealFileSystem()


class ModelLog:
    """A log as what each byte is: the epoch and the place; two leaders never write the same byte."""

    def __init__(self) -> None:
        self.bytes: list[tuple[int, int]] = []
        self.epochs: list[Epoch] = []

    def lead(self, epoch: int) -> None:
        self.epochs = [known for known in self.epochs if known.begin_offset <= len(self.bytes)]
        self.epochs.append(Epoch(epoch, len(self.bytes)))

    def append(self, epoch: int, count: int) -> None:
        self.bytes += [(epoch, len(self.bytes) + number) for number in range(count)]


def common_prefix(one: ModelLog, other: ModelLog) -> int:
    pairs = zip(one.bytes, other.bytes, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one.bytes), len(other.bytes)))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lead"), st.integers(0, 2)),
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("copy"), st.integers(0, 2), st.integers(0, 6)),
        st.tuples(st.just("tear"), st.integers(0, 2), st.integers(0, 4)),
    ),
    max_size=40,
)


@given(STEPS)
def test_logs_agree_up_to_the_first_byte_that_differs_whoever_led_and_whatever_was_lost(steps: list) -> None:
    """Any replica may lead at any time, also with less than others have: unclean elections and torn tails included."""
    logs = [ModelLog() for _ in range(3)]
    leader, epoch = 0, 1
    logs[0].lead(1)
    for step in steps:
        match step:
            case ("lead", number):
                leader, epoch = number, epoch + 1
                logs[leader].lead(epoch)
            case ("append", count):
                logs[leader].append(epoch, count)
            case ("copy", number, count) if number != leader:
                mine, own = logs[leader], logs[number]
                agreed = agreed_offset(mine.epochs, len(mine.bytes), own.epochs, len(own.bytes))
                if agreed == NOWHERE:
                    assert not own.bytes or common_prefix(mine, own) == 0 or not own.epochs
                    agreed = 0
                assert agreed == common_prefix(mine, own)
                own.bytes = own.bytes[:agreed] + mine.bytes[agreed : agreed + count]
                own.epochs = list(mine.epochs)
            case ("tear", number, count) if number != leader:
                logs[number].bytes = logs[number].bytes[: max(0, len(logs[number].bytes) - count)]
    for one in logs:
        for other in logs:
            agreed = agreed_offset(one.epochs, len(one.bytes), other.epochs, len(other.bytes))
            assert agreed in (NOWHERE, common_prefix(one, other))
            assert agreed == agreed_offset(other.epochs, len(other.bytes), one.epochs, len(one.bytes))


@pytest.mark.parametrize(
    ("leader", "leader_end", "follower", "follower_end", "agreed"),
    [
        # EpochFileCacheTest of RocketMQ 5.3.3, testFindConsistentPointSample1 to 4.
        ([(1, 100), (2, 300), (3, 500)], 900, [(1, 100), (2, 300), (3, 450)], 900, 450),
        ([(1, 100), (2, 300), (3, 500)], 700, [(1, 100), (2, 300), (3, 500)], 600, 600),
        ([(1, 100), (2, 300), (3, 500)], 700, [(1, 200), (2, 500)], 900, NOWHERE),
        ([(1, 100), (2, 300), (3, 500), (4, 800)], 900, [(1, 100), (2, 300), (3, 500)], 700, 700),
    ],
)
def test_the_point_is_the_one_that_rocketmq_finds(leader, leader_end, follower, follower_end, agreed: int) -> None:
    mine, theirs = ([Epoch(*epoch) for epoch in epochs] for epochs in (leader, follower))
    assert agreed_offset(mine, leader_end, theirs, follower_end) == agreed


def test_epochs_outlive_a_restart_and_a_cut_forgets_the_later_ones(tmp_path: Path) -> None:
    epochs = EpochFile(FS, tmp_path)
    epochs.load()
    assert (epochs.epochs, epochs.last) == ((), 0)
    epochs.begin(1, 0)
    epochs.begin(4, 500)
    epochs.begin(5, 500)
    again = EpochFile(FS, tmp_path)
    again.load()
    assert again.epochs == (Epoch(1, 0), Epoch(4, 500), Epoch(5, 500))
    again.cut(500)
    assert again.epochs == (Epoch(1, 0),)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"epochs":[[2,0],[1,5]]}', b'{"epochs":[[1,0],[1,5]]}', b'{"epochs":[["1",0]]}']
)
def test_a_damaged_table_of_epochs_is_refused_and_named(tmp_path: Path, content: bytes) -> None:
    write_bytes_atomic(FS, tmp_path / "epochs.json", content)
    with pytest.raises(StoreCorruptedError, match=r"epochs\.json is damaged"):
        EpochFile(FS, tmp_path).load()


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
