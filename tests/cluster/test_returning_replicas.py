"""A replica that comes back with a damaged or an older log, or with another clock."""

import pathlib
import shutil
from collections.abc import Iterator

import pytest

from tests.cluster.cases import SHORT_SECONDS_MAX, epoch_of, under_load
from tests.cluster.shard import Shard, pause, running_shard
from tests.support.etcd import ETCD, MISSING
from tests.support.waiting import wait_until
from tests.torture.tools.faketime import FakeClock, why_missing

REASON = why_missing() or (MISSING if ETCD is None else None)
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(REASON), reason=str(REASON)),
    pytest.mark.timeout(300),
]

HOUR_SECONDS = 3600
DAMAGED_BYTES = 200  # before the end of its log: in what its leader compares
CLOCK_CASE_SECONDS = 6.0


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> FakeClock:
    return FakeClock(tmp_path_factory.mktemp("clock") / "clock")


@pytest.fixture(scope="module")
def shared_shard(tmp_path_factory: pytest.TempPathFactory, clock: FakeClock) -> Iterator[Shard]:
    """r1 looks at the fake clock."""
    with running_shard(tmp_path_factory.mktemp("shard"), environs={"r1": clock.environment}) as shard:
        yield shard


def follower_of(shard: Shard) -> str:
    return shard.others(shard.wait_until_whole())[0]


def log_file_with_the_end(store: pathlib.Path) -> pathlib.Path:
    """The last file with bytes in it."""
    files = sorted((store / "commitlog").glob("[0-9]*"))
    return next(file for file in reversed(files) if file.read_bytes().strip(b"\0"))


def test_a_damaged_follower_is_not_in_sync_until_its_store_is_removed(shard: Shard, topic: str) -> None:
    name = follower_of(shard)
    with under_load(shard, topic, "a follower comes back with a damaged log") as producers:
        with shard.away(name):
            file = log_file_with_the_end(shard.stores[name])
            data = bytearray(file.read_bytes())
            data[len(data.rstrip(b"\0")) - DAMAGED_BYTES] ^= 1
            file.write_bytes(data)
            wait_until(lambda: name not in shard.in_sync(), shard.log)
            producers.wait_for(30)
        first_pid = shard.pid(name)
        wait_until(lambda: name in shard.in_sync() or is_refused(shard, name, first_pid), shard.log)
        if name in shard.in_sync():
            print("its recovery cut the damaged part, and it got that from the leader again")
        else:
            assert name not in shard.in_sync()
            print("it follows nobody and says so; its store is removed")
            with shard.away(name):
                shutil.rmtree(shard.stores[name])
        assert producers.longest_silence() < SHORT_SECONDS_MAX


def is_refused(shard: Shard, name: str, first_pid: int) -> bool:
    """Whether a replica says why it follows nobody, or has ended at once."""
    status = shard.status(name)
    return shard.pid(name) != first_pid if status is None else bool(status.problem)


def test_a_follower_with_an_older_log_gets_what_it_lacks_while_the_leader_lives(
    shard: Shard, topic: str, tmp_path: pathlib.Path
) -> None:
    name = follower_of(shard)
    store, older = shard.stores[name], tmp_path / "older"
    with shard.away(name):
        shutil.copytree(store, older)
    shard.wait_until_whole()
    with under_load(shard, topic, "a follower comes back with an older log") as producers:
        producers.wait_for(100)
        with shard.away(name):
            shutil.rmtree(store)
            shutil.copytree(older, store)
        wait_until(lambda: shard.in_sync() == set(shard.names), shard.log)
        assert producers.longest_silence() < SHORT_SECONDS_MAX


@pytest.mark.parametrize("seconds", [HOUR_SECONDS, -HOUR_SECONDS], ids=["ahead", "behind"])
def test_a_clock_that_is_an_hour_off_changes_nobodys_lead(
    shard: Shard, topic: str, clock: FakeClock, seconds: int
) -> None:
    leader = shard.wait_until_whole()
    epoch = epoch_of(shard, leader)
    role = "the leader" if leader == "r1" else "a follower"
    with under_load(shard, topic, f"the clock of {role} jumps {seconds} s") as producers:
        clock.set_seconds(seconds)
        pause(CLOCK_CASE_SECONDS)
        clock.set_seconds(0)
        assert epoch_of(shard, leader) == epoch
        assert producers.longest_silence() < SHORT_SECONDS_MAX
