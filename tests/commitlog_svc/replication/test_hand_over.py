"""Planned hand-overs that fail: appends go on, and the wish is taken back."""

import dataclasses
from contextlib import suppress
from pathlib import Path

import pytest

from commitlog_svc.replication import leader_side, replica
from commitlog_svc.replication.leading.record import ShardRecord
from store.errors import RecordConflictError
from tests.commitlog_svc.replication.replicas import Node, Shard, open_shard
from tests.support.waiting import wait_until


def test_a_hand_over_to_a_replica_that_is_away_did_stop_appends_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "NEAR_SECONDS_MAX", 0.5)
    with open_shard(tmp_path) as shard:
        leader, follower = shard.start_all("r1", "r2")
        follower.stop()
        _ask_hand_over(shard, "r2")
        wait_until(lambda: leader.leadership.view.hand_over_to == "r2", "the leader has read the wish")

        def is_taken_back() -> bool:
            leader.append(b"goes on", replicated=False)
            return _record(shard).hand_over_to == ""

        wait_until(is_taken_back, "the wish is taken out of the record")
        assert leader.leads


def test_a_hand_over_during_which_the_other_one_goes_away_refuses_appends_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_side, "NEAR_SECONDS", 60.0)  # it is away, and the leader begins all the same
    monkeypatch.setattr(replica, "HAND_OVER_SECONDS_MAX", 0.5)
    with open_shard(tmp_path) as shard:
        leader, _ = shard.start_all("r1", "r2")
        _hold_reports(leader)
        leader.append(b"the other one does not say that it has it", replicated=False)
        _ask_hand_over(shard, "r2")
        wait_until(lambda: leader.leadership.view.hand_over_to == "r2", "the leader has read the wish")
        wait_until(lambda: _record(shard).hand_over_to == "", "the wish is taken out of the record")
        leader.append(b"goes on", replicated=False)
        assert leader.leads


def _record(shard: Shard) -> ShardRecord:
    stored = shard.store.read(1.0)
    assert stored is not None
    return ShardRecord.from_bytes(stored.data)


def _hold_reports(leader: Node) -> None:
    """Whatever its followers report from now on is not taken."""
    side = leader.replica._leader
    assert side is not None
    side.report = lambda stream, report: None  # type: ignore[method-assign]


def _ask_hand_over(shard: Shard, to: str) -> None:
    """As an operator does: in the record; again when the leader was faster."""
    while True:
        stored = shard.store.read(1.0)
        assert stored is not None
        record = ShardRecord.from_bytes(stored.data)
        asked = dataclasses.replace(record, hand_over_to=to, renewal=record.renewal + 1)
        with suppress(RecordConflictError):
            shard.store.write(asked.to_bytes(), stored.version, 1.0)
            return
