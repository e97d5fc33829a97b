"""The leader's disk is full, fails, or is slow: a small tmpfs, behind a file system that fails and waits on purpose."""

import errno
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.rpcs.commitlog import APPEND_MESSAGES
from store.errors import DiskFullError, StoreError
from tests.cluster.cases import FAILOVER_SECONDS_MAX, SHORT_SECONDS_MAX, epoch_of, under_load
from tests.cluster.faults import ask_to_hand_over
from tests.cluster.shard import Shard, pause, running_shard
from tests.support.etcd import ETCD, MISSING
from tests.support.waiting import wait_until
from tests.torture.tools import why_missing
from tests.torture.tools.fuse_fault import Fault, FaultyMount
from tests.torture.tools.tmpfs import Ballast, tmpfs

REASON = why_missing("fuse") or (MISSING if ETCD is None else None)
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.timeout(300),
]

DISK_BYTES = 64 << 20
FILE_BYTES = 256 << 10  # a full disk is met at the next file
SLOW_MILLIS = 500
SLOW_SECONDS = 6.0
HANG_MILLIS = 180_000  # longer than any failover takes; it ends with the test
OFTEN_SECONDS = 2.0


class Disk(NamedTuple):
    """The disk of r1."""

    shard: Shard
    faults: FaultyMount
    ballast: Ballast


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    root = tmp_path_factory.mktemp("disks")
    with (
        tmpfs(root / "disk", DISK_BYTES) as directory,
        FaultyMount(directory, root / "mount", direct_io=False) as mount,
        running_shard(
            root, settings={"REPUT_COMMITLOG_FILE_SIZE_BYTES": str(FILE_BYTES)}, stores={"r1": root / "mount" / "r1"}
        ) as shard,
    ):
        yield Disk(shard, mount, Ballast(directory))


@pytest.fixture
def disk(disks: Disk) -> Iterator[Disk]:
    """The same; r1 leads, all are in sync, and the disk is well again after the test."""
    disks.shard.wait_until_whole()

    def r1_leads() -> bool:
        if disks.shard.leader() == "r1":
            return True
        ask_to_hand_over(disks.shard, "r1")
        return False

    wait_until(r1_leads, disks.shard.log, poll_seconds=OFTEN_SECONDS)
    disks.shard.wait_until_whole()
    yield disks
    disks.faults.clear()
    disks.ballast.give_back()


def log_file_at_end(shard: Shard, name: str) -> str:
    """The name of the file that a replica writes to; empty when it does not answer."""
    status = shard.status(name)
    return f"{status.log_end_offset // FILE_BYTES * FILE_BYTES:020d}" if status is not None else ""


def test_a_leader_whose_disk_is_full_leads_on_and_refuses_until_the_lead_is_moved(disk: Disk, topic: str) -> None:
    shard = disk.shard
    request = pb.AppendMessagesRequest(messages=[message_pb2.NewMessage(topic="Other", body=b"other|")])

    def is_refused() -> bool:
        try:
            shard.client("r1").call(APPEND_MESSAGES, request)
        except DiskFullError:
            return True
        except StoreError:
            return False
        return False

    with under_load(shard, topic, "disk of the leader full, lead moved") as producers:
        disk.ballast.take_all()
        wait_until(is_refused, shard.log, poll_seconds=0.2)
        assert epoch_of(shard, "r1") > 0, "it leads on: a full disk is no lost machine"
        ask_to_hand_over(shard, "r2")
        assert shard.wait_for_leader(besides=["r1"]) == "r2"
        producers.wait_for(30)
        disk.ballast.give_back()


def test_a_leader_whose_flush_fails_acknowledges_nothing_more_and_another_life_leads(disk: Disk, topic: str) -> None:
    shard = disk.shard
    with under_load(shard, topic, "a flush of the leader fails with EIO") as producers:
        pid = shard.pid("r1")
        struck: list[int] = []

        def has_ended() -> bool:
            if shard.pid("r1") != pid:
                return True
            name = log_file_at_end(shard, "r1")  # the log may go on in the next file before it is flushed
            if name and not any(map(disk.faults.hits, struck)):
                struck.append(disk.faults.add(Fault("fsync", errno.EIO, path_end=name, count=1)))
            return False

        wait_until(has_ended, shard.log, poll_seconds=0.5)
        disk.faults.clear()
        producers.wait_for(30)
        assert producers.longest_silence() < FAILOVER_SECONDS_MAX


def test_a_leader_with_a_slow_disk_leads_on_and_everybody_waits_for_it(disk: Disk, topic: str) -> None:
    shard = disk.shard
    epoch = epoch_of(shard, "r1")
    with under_load(shard, topic, "each flush of the leader takes 0.5 s longer") as producers:
        fault = disk.faults.add(Fault("fsync", kind="slow", millis=SLOW_MILLIS))
        pause(SLOW_SECONDS)
        assert disk.faults.hits(fault) > 0
        disk.faults.clear()
        assert producers.longest_silence() < SHORT_SECONDS_MAX
        assert epoch_of(shard, "r1") == epoch


def test_a_leader_whose_flush_hangs_gives_the_lead_to_a_replica_that_flushes(disk: Disk, topic: str) -> None:
    """It renewed its lease for ever and acknowledged nothing."""
    shard = disk.shard
    with under_load(shard, topic, "a flush of the leader hangs") as producers:
        hanging = disk.faults.add(Fault("fsync", kind="slow", millis=HANG_MILLIS, count=1))
        wait_until(lambda: disk.faults.hits(hanging) > 0, "a flush")
        assert shard.wait_for_leader(besides=["r1"]) in shard.others("r1")
        producers.wait_for(30)  # while it hangs
        disk.faults.clear()
