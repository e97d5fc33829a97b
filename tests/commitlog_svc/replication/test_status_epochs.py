"""GetStatus says which leader wrote which part of a replica's log: `reput lead --force` compares logs by it."""

from pathlib import Path

from tests.commitlog_svc.replication.replicas import open_shard
from tests.support.waiting import wait_until


def test_the_status_of_leader_and_follower_has_the_epochs_of_their_logs(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        leader, follower = shard.start_all("r1", "r2")
        begin_offset = leader.log.epochs.epochs[0].begin_offset
        for node in (leader, follower):
            wait_until(lambda node=node: node.status.epochs, "the epochs are told")
            assert [(epoch.epoch, epoch.begin_offset) for epoch in node.status.epochs] == [(1, begin_offset)]
