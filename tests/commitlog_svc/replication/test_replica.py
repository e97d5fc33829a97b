"""Replicas over gRPC: copies are equal, acknowledgements hold, and a deposed leader stops."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from commitlog_svc.replication.epochs import EpochFile
from commitlog_svc.reput.reput import CopyPauses, ReputBatch
from store.errors import DiskFullError, NotEnoughReplicasError, NotLeaderError
from tests.commitlog_svc.replication.replicas import open_shard, wait_equal, wait_in_sync
from tests.commitlog_svc.support import read_tree
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


def test_a_replicated_append_is_on_both_disks_and_the_files_are_equal_byte_for_byte(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        leader, follower = shard.start_all("r1", "r2")
        for number in range(60):
            (receipt,) = leader.append(b"%d" % number * 900)
            assert follower.log.status.flushed_offset >= receipt.end_offset
        wait_equal(leader, follower)
        assert leader.records() == follower.records()
    assert read_tree(tmp_path / "r1" / "commitlog") == read_tree(tmp_path / "r2" / "commitlog")


def test_a_follower_takes_no_append_and_names_the_leader(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        _, follower = shard.start_all("r1", "r2")
        wait_until(lambda: follower.status.leader == "r1", "the follower knows its leader")
        with pytest.raises(NotLeaderError) as refused:
            follower.append(b"no", replicated=False)
        assert refused.value.metadata == {"leader": "r1", "epoch": "1"}


def test_a_lone_replica_refuses_replicated_appends_and_takes_others(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        (leader,) = shard.start_all("r1")
        with pytest.raises(NotEnoughReplicasError):
            leader.append(b"no")
        (receipt,) = leader.append(b"yes", replicated=False)
        wait_until(lambda: leader.confirm_offset == receipt.end_offset, "it is confirmed")


def test_when_the_leader_is_gone_the_other_one_goes_on_and_the_first_comes_back_as_its_follower(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        first, second, third = shard.start_all("r1", "r2", "r3")
        first.append(b"before")
        first.stop()
        wait_until(lambda: second.leads or third.leads, "another one leads")
        leader, other = (second, third) if second.leads else (third, second)
        wait_in_sync(leader, leader.name, other.name)
        leader.append(b"after")
        first = shard.start("r1")
        wait_in_sync(leader, "r1", "r2", "r3")
        leader.append(b"with all")
        wait_equal(leader, other, first)
        assert leader.records() == other.records() == first.records()
        assert [epoch.epoch for epoch in first.log.epochs.epochs] == [1, 2]


@pytest.mark.parametrize("error", [DiskFullError("no room"), OSError("an I/O error")])
def test_a_replica_that_is_elected_and_cannot_note_its_epoch_ends_and_another_one_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with open_shard(tmp_path) as shard:
        first, second = shard.start_all("r1", "r2")

        def fail(_epochs: EpochFile, _epoch: int, _end_offset: int) -> None:
            raise error

        first.stop()
        with monkeypatch.context() as patch:
            patch.setattr(EpochFile, "begin", fail)
            wait_until(lambda: second.restart_reason, "the elected one ends")
        assert "cannot lead" in (second.restart_reason or "")
        second.stop()
        first = shard.start("r1")
        wait_until(lambda: first.leads, "the first one leads")
        first.append(b"goes on", replicated=False)


class LongPauses(CopyPauses):
    """Pauses that last until something ends them."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def take(self, seconds: float, offset: int) -> bool:
        self.begun.set()
        return super().take(WAIT_SECONDS_MAX, offset)


def test_what_a_replica_gathers_for_its_followers_is_shown_as_soon_as_it_begins_to_lead(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        first, second = shard.start_all("r1", "r2")
        following, pauses = second.log.following, LongPauses()
        following.gathering = replace(following.gathering, pauses=pauses)
        first.append(b"one")
        wait_equal(first, second)
        wait_until(lambda: following.confirm_offset == first.confirm_offset, "the replica shows what is confirmed")
        follower = following.follow(-1, 0)
        assert len(next(follower).requests) == 1
        shown: list[ReputBatch] = []
        thread = threading.Thread(target=lambda: shown.append(next(follower)))
        thread.start()
        assert pauses.begun.wait(WAIT_SECONDS_MAX)
        first.append(b"two")
        wait_equal(first, second)
        assert not shown
        first.stop()
        thread.join(WAIT_SECONDS_MAX)

    assert [len(batch.requests) for batch in shown] == [1]
