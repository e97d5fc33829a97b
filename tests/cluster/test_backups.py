"""All volumes of a shard are gone: a store that was restored from a backup leads, and empty replicas follow it."""

import contextlib
import pathlib
import shutil

import pytest

from cli.backup.places import DirectoryPlace
from cli.backup.restoring import restore_store
from cli.backup.taking import take_backup
from pipeline.scan.log_files import safe_offset
from store.files.file_system import RealFileSystem
from tests.cluster.cases import under_load
from tests.cluster.history import Producers, problems_of
from tests.cluster.shard import BROKER_NAME, Shard, running_shard
from tests.cluster.test_coordinator import coordinator_of
from tests.support.command import run_command
from tests.support.etcd import ETCD, MISSING
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=MISSING), pytest.mark.timeout(300)]

MESSAGE_COUNT = 60
FILE_BYTES = 16 << 10  # some files
BACKUP, RESTORED = "r2", "r1"


def backed_up(shard: Shard, place: DirectoryPlace) -> int:
    """Back up a replica that has and knows as confirmed all of the log; the end of the backup."""
    shard.settle()
    status = shard.status(BACKUP)
    assert status is not None
    store = shard.stores[BACKUP]
    wait_until(
        lambda: safe_offset(RealFileSystem(), store) == status.log_end_offset, "the mark is at the end of the log"
    )
    report = take_backup(store, place, BROKER_NAME)
    assert report.findings == []
    return int(report.counts["end_offset"])


# Without the coordinator's data an empty replica that is started first may make the shard anew: so the others come later.
@pytest.mark.parametrize("coordinator", ["lost", pytest.param("there", marks=pytest.mark.release)])
def test_a_restored_store_is_the_first_of_three_replicas_and_empty_ones_follow_it(
    tmp_path: pathlib.Path, coordinator: str
) -> None:
    place = DirectoryPlace(tmp_path / "place")
    settings = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": str(FILE_BYTES)}
    with running_shard(tmp_path, settings=settings) as shard:
        with Producers(shard.gateway, "Before") as producers:
            producers.wait_for(MESSAGE_COUNT)
        end = backed_up(shard, place)
        with contextlib.ExitStack() as away:
            with shard.away(RESTORED):
                for name in shard.others(RESTORED):
                    away.enter_context(shard.away(name))
                for store in shard.stores.values():
                    shutil.rmtree(store)
                if coordinator == "lost":
                    shard.etcd.lose_data()
                report = restore_store(place, shard.stores[RESTORED], log_only=True)
                assert (report.findings, report.counts["end_offset"]) == ([], end)
            wait_until(lambda: shard.status(RESTORED) is not None, shard.log)
            assert shard.leader() is None, "it is another disk than the coordinator knows: it does not lead by itself"
            forced = run_command("lead", "--force", RESTORED, "--coordinator", coordinator_of(shard))
            assert forced.returncode == 0, forced.stderr
            assert shard.wait_for_leader() == RESTORED
        assert shard.wait_until_whole() == RESTORED
        with under_load(shard, "After", f"all volumes lost, coordinator's data {coordinator}, restored from a backup"):
            pass
        # Each acknowledged message of before the backup is on each replica, and the logs are equal.
        assert problems_of(shard.stores, "Before", producers) == []
