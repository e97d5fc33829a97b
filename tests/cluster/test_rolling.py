"""Replicas that are restarted one after the other, as an upgrade does: no append fails, and the lead is handed over.

CLUSTER_UPGRADE_FROM names a revision whose code the replicas run first; without it they run the newest commit's. There is no
release before this one yet.
"""

import os
import pathlib
import signal
import subprocess
import tarfile

import pytest

from tests.cluster.cases import FAILOVER_SECONDS_MAX, under_load
from tests.cluster.shard import Shard, running_shard
from tests.support.etcd import ETCD, MISSING

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=MISSING), pytest.mark.timeout(300)]

ROOT = pathlib.Path(__file__).parents[2]


def followers_then_leader(shard: Shard) -> list[str]:
    leader = shard.wait_until_whole()
    return [*shard.others(leader), leader]


def test_a_rolling_restart_fails_no_append(shard: Shard, topic: str) -> None:
    with under_load(shard, topic, "rolling restart") as producers:
        for name in followers_then_leader(shard):
            with shard.away(name, signal.SIGTERM):
                pass
            shard.wait_until_whole()
            producers.wait_for(30)
        assert [str(failure) for failure in producers.failures] == []
        assert producers.longest_silence() < FAILOVER_SECONDS_MAX


@pytest.mark.release
def test_a_rolling_upgrade_from_another_revision_fails_no_append(tmp_path: pathlib.Path, topic: str) -> None:
    revision = os.environ.get("CLUSTER_UPGRADE_FROM") or "HEAD"
    tree = tmp_path / "before"
    archive = tmp_path / "before.tar"
    subprocess.run(["git", "archive", "-o", str(archive), revision], cwd=ROOT, check=True)
    with tarfile.open(archive) as packed:
        packed.extractall(tree, filter="data")
    before = {"PYTHONPATH": os.pathsep.join((str(tree), str(tree / "protos")))}
    with (
        running_shard(tmp_path, environs=dict.fromkeys(("r1", "r2", "r3"), before)) as shard,
        under_load(shard, topic, f"rolling upgrade from {revision}") as producers,
    ):
        for name in followers_then_leader(shard):
            with shard.away(name, signal.SIGTERM):
                shard.set_environ(name, {})
            shard.wait_until_whole()
            producers.wait_for(30)
        assert [str(failure) for failure in producers.failures] == []
