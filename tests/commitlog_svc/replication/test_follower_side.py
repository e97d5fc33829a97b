"""What a replica says that it may lack: never less than it does, by a model of a leader that confirms, and on real replicas.

A follower in bad times: a diverged log, damage, a power cut, files of `config/`, and a planned hand-over.
"""

import dataclasses
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commitlog_svc.replication import leader_side
from commitlog_svc.replication.follower_side import KEPT_COUNT_MAX, FollowerSide, Reach
from commitlog_svc.replication.leading.record import ShardRecord
from commitlog_svc.replication.leading.view import Role
from services.calling.channel import open_channel
from store.errors import NotLeaderError, RecordConflictError, StoreError
from store.files.file_system import RealFileSystem
from store.format.paths import commit_log_dir
from tests.commitlog_svc.internal import internal_record
from tests.commitlog_svc.replication.fixed_leadership import FixedLeadership
from tests.commitlog_svc.replication.replicas import (
    BROKER,
    FILE_BYTES,
    Node,
    Shard,
    open_shard,
    wait_equal,
    wait_in_sync,
)
from tests.commitlog_svc.support import BORN_HOST, read_tree
from tests.support.waiting import wait_until
from tests.torture.memory_files import MemoryFileSystem


@dataclass
class World:
    """A leader that confirms, a network that keeps messages in order and late, a follower that shows them later."""

    now: float = 0.0
    confirmed: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])

    @property
    def offset(self) -> int:
        return self.confirmed[-1][1]

    def confirm(self, size_bytes: int) -> None:
        self.confirmed.append((self.now, self.offset + size_bytes))

    def lacks_since(self, shown_offset: int) -> float:
        """How long ago the oldest thing was confirmed that a replica lacks that shows so much; 0: it lacks nothing."""
        missing = [at for at, offset in self.confirmed if offset > shown_offset]
        return self.now - min(missing) if missing else 0.0


@pytest.mark.parametrize("seed", range(30))
def test_a_replica_never_lacks_anything_older_than_it_says(seed: int) -> None:
    rng, world = random.Random(seed), World()
    reach = Reach(lambda: world.now)
    to_leader: list[int] = []
    to_follower: list[tuple[int, int]] = []
    number = heard = shown = told = known_count = 0
    for _ in range(4_000):
        world.now += rng.expovariate(50.0)
        step = rng.randrange(6)
        if step == 0:
            world.confirm(rng.randrange(1, 1_000))
        elif step == 1:
            number += 1
            reach.note_sent(number)
            to_leader.append(number)
        elif step == 2 and to_leader:
            heard = to_leader.pop(0)
        elif step == 3:
            to_follower.append((world.offset, heard if rng.random() < 0.9 else 0))
        elif step == 4 and to_follower:
            told, its_heard = to_follower.pop(0)
            reach.note_told(told, its_heard)
        elif step == 5 and rng.random() < 0.7:
            shown = max(shown, rng.randrange(shown, told + 1) if told > shown else shown)
        staleness = reach.staleness_seconds(shown)
        known_count += staleness is not None
        if staleness is not None:
            assert world.lacks_since(shown) <= staleness + 1e-9
        assert reach.leader_confirm_offset == told
    assert known_count > 1_000


def test_a_leader_that_may_not_lead_makes_a_replica_no_fresher() -> None:
    world = World()
    reach = Reach(lambda: world.now)
    reach.note_sent(1)
    reach.note_told(100, 1)
    world.now = 5.0
    reach.note_sent(2)
    reach.note_told(100, 0)
    assert reach.staleness_seconds(100) == 5.0
    reach.note_told(100, 2)
    assert reach.staleness_seconds(100) == 0.0


def test_what_was_never_heard_is_not_known_and_numbers_begin_anew_with_each_stream() -> None:
    world = World()
    reach = Reach(lambda: world.now)
    assert reach.staleness_seconds(1 << 60) is None
    reach.note_sent(1)
    reach.begin_stream()
    reach.note_told(0, 1)  # nobody of this stream has sent such a report
    assert reach.staleness_seconds(0) is None
    reach.note_sent(1)
    reach.note_told(50, 7)  # nor this one
    assert reach.staleness_seconds(50) is None


def test_a_replica_that_copies_a_long_log_keeps_what_it_was_told_first_and_last() -> None:
    world = World()
    reach = Reach(lambda: world.now)
    for number in range(1, 20 * KEPT_COUNT_MAX):
        world.now += 1.0
        reach.note_sent(number)
        reach.note_told(number * 10, number)
    assert reach.staleness_seconds(0) is None
    assert reach.staleness_seconds(10) == world.now - 1.0
    assert reach.staleness_seconds(reach.leader_confirm_offset) == 0.0


def test_a_follower_says_how_stale_it_is_and_a_leader_does_not(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        leader, follower = shard.start_all("r1", "r2")
        leader.append(b"one")
        acknowledged_at = time.monotonic()
        wait_equal(leader, follower)

        def whole_since() -> float:
            asked_at = time.monotonic()
            status = follower.status
            return (
                asked_at - status.reach.staleness.ToMicroseconds() / 1e6 if status.reach.HasField("staleness") else 0.0
            )

        wait_until(lambda: whole_since() > acknowledged_at, lambda: f"{follower.status.reach}")
        assert follower.status.reach.leader_confirm_offset == follower.confirm_offset == leader.confirm_offset
        assert not leader.status.HasField("reach")
        leader.stop()
        before = whole_since()
        assert whole_since() == pytest.approx(before, abs=0.01)  # nothing is heard any more: it only gets older


def test_a_replica_whose_machine_slept_is_as_stale_as_the_sleep_was_long(tmp_path: Path) -> None:
    """Staleness was counted by a clock that stands while the machine sleeps: after an hour's sleep a replica said 1 s."""
    seconds = [100.0]
    leadership = FixedLeadership(Role.FOLLOWER, 1, "r2")
    leadership.now = lambda: seconds[0]
    log: Any = SimpleNamespace(fs=RealFileSystem(), directory=tmp_path)
    reach = FollowerSide("r1", BROKER, log, leadership, open_channel, lambda: None).reach
    reach.note_sent(1)
    reach.note_told(5_000, 1)
    seconds[0] += 3_601
    assert reach.staleness_seconds(5_000) == 3_601


def leader_of(*nodes: Node) -> Node:
    """The one of these that leads, once there is one."""
    wait_until(lambda: any(node.leads for node in nodes), "one leads")
    return next(node for node in nodes if node.leads)


def diverge(shard: Shard, body_count: int) -> Node:
    """r1 led and has appended what nobody else has; another one leads now, with appends of its own."""
    first, second, third = shard.start_all("r1", "r2", "r3", lag_seconds_max=60)
    first.append(*(b"%d" % number * 300 for number in range(50)))
    second.stop()
    third.stop()
    for number in range(body_count):
        first.append(b"lost %d" % number * 90, replicated=False)
    first.stop()
    leader = leader_of(shard.start("r2"), shard.start("r3"))
    leader.append(b"of the new leader", replicated=False)
    return leader


@pytest.mark.parametrize("body_count", [1, 200])
def test_a_diverged_part_is_cut_and_kept_aside_and_the_logs_are_equal_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body_count: int
) -> None:
    # The first leader has to end before it takes the others out of the set, however slow the machine is.
    monkeypatch.setattr(leader_side, "AWAY_SECONDS", 60.0)
    with open_shard(tmp_path) as shard:
        leader = diverge(shard, body_count)
        first = shard.start("r1")
        own_end = first.end_offset
        wait_until(lambda: first.restart_reason, "it has to start again")
        assert "diverged" in (first.restart_reason or "")
        first = shard.start("r1")
        wait_in_sync(leader, "r1", "r2", "r3")
        leader.append(b"with all")
        wait_equal(leader, *shard.nodes.values())
        assert len({node.records() for node in shard.nodes.values()}) == 1
        (aside,) = (tmp_path / "r1" / "reput" / "commitlog").glob("cut-*")
        cut_offset = int(aside.name.split("-")[1])
        kept = b"".join(path.read_bytes() for path in sorted(aside.iterdir()))
        assert kept.count(b"lost ") >= body_count
        assert cut_offset < own_end


def test_an_empty_replica_gets_all_of_the_log_in_files_of_the_leaders_size(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        (leader,) = shard.start_all("r1")
        for number in range(40):
            leader.append(*(b"%d" % number * 400 for _ in range(20)), replicated=False)
        assert leader.end_offset > 4 * FILE_BYTES
        follower = shard.start("r2", file_size_bytes=FILE_BYTES * 4)
        wait_in_sync(leader, "r1", "r2")
        leader.append(b"with all")
        wait_equal(leader, follower)
    own = read_tree(tmp_path / "r1" / "commitlog")
    assert {name: data for name, data in read_tree(tmp_path / "r2" / "commitlog").items() if data.strip(b"\0")} == {
        name: data for name, data in own.items() if data.strip(b"\0")
    }


def test_a_replica_that_is_older_than_the_leaders_first_file_begins_anew_and_keeps_its_files_aside(
    tmp_path: Path,
) -> None:
    with open_shard(tmp_path) as shard:
        leader, follower = shard.start_all("r1", "r2")
        leader.append(b"early")
        wait_equal(leader, follower)
        follower.stop()
        wait_in_sync(leader, "r1")
        for number in range(30):
            leader.append(*(b"%d" % number * 400 for _ in range(20)), replicated=False)
        leader.log._files.retire(2 * FILE_BYTES)
        follower = shard.start("r2")
        wait_until(lambda: follower.restart_reason, "it has to start again")
        follower = shard.start("r2")
        wait_in_sync(leader, "r1", "r2")
        wait_until(lambda: follower.end_offset == leader.end_offset, "it has all")
        assert follower.log.status.first_offset == leader.log.status.first_offset == 2 * FILE_BYTES
        assert follower.records() == leader.records()


def test_a_replica_with_an_empty_first_file_joins_a_log_that_begins_later(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        (leader,) = shard.start_all("r1")
        for number in range(30):
            leader.append(*(b"%d" % number * 400 for _ in range(20)), replicated=False)
        leader.log._files.retire(2 * FILE_BYTES)
        directory = Path(commit_log_dir(str(tmp_path / "r2")))
        directory.mkdir(parents=True)
        (directory / ("0" * 20)).write_bytes(bytes(FILE_BYTES))
        follower = shard.start("r2")
        wait_until(lambda: follower.restart_reason, "it has to start again")
        follower = shard.start("r2")
        wait_in_sync(leader, "r1", "r2")
        wait_until(lambda: follower.end_offset == leader.end_offset, "it has all")
        assert follower.records() == leader.records()


def test_a_replica_that_began_later_and_is_older_than_the_leaders_first_file_begins_anew_too(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        (leader,) = shard.start_all("r1")
        for begin_offset in (2 * FILE_BYTES, 6 * FILE_BYTES):
            while leader.end_offset < begin_offset + FILE_BYTES:
                leader.append(*(b"%d" % leader.end_offset * 100 for _ in range(20)), replicated=False)
            leader.log._files.retire(begin_offset)
            shard.start("r2")
            if begin_offset > 2 * FILE_BYTES:
                wait_until(lambda: shard.nodes["r2"].restart_reason, "it has to start again")
                shard.start("r2")
            wait_in_sync(leader, "r1", "r2")
            wait_until(lambda: shard.nodes["r2"].end_offset == leader.end_offset, "it has all")
            assert shard.nodes["r2"].records() == leader.records()
            shard.nodes["r2"].stop()
            wait_in_sync(leader, "r1")


def test_a_follower_whose_log_differs_where_it_should_be_equal_says_so_and_takes_nothing(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        leader, follower = shard.start_all("r1", "r2")
        leader.append(*(b"a body of this shard" for _ in range(20)))
        wait_equal(leader, follower)
        follower.stop()
        end_offset = follower.log.status.confirm_offset
        path = Path(commit_log_dir(str(follower.root))) / ("0" * 20)
        data = bytearray(path.read_bytes())
        at = data.index(b"a body of this shard")
        data[at : at + 6] = b"A BODY"
        path.write_bytes(data)
        leader.append(b"behind it", replicated=False)
        follower = shard.start("r2")
        wait_until(lambda: "differs from this one" in follower.status.problem, "it says so")
        assert follower.end_offset == end_offset


def test_a_replica_of_another_shard_gets_nothing_and_says_why(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        (leader,) = shard.start_all("r1")
        leader.append(b"ours", replicated=False)
        stranger = shard.start("r2", broker_name="broker-b")
        wait_until(lambda: "this is the shard 'broker-a'" in stranger.status.problem, "it says why")
        assert stranger.end_offset == 0


@pytest.mark.parametrize("number", range(4))
def test_what_a_follower_reported_outlives_a_power_cut_of_its_disk(tmp_path: Path, number: int) -> None:
    fs = MemoryFileSystem()
    with open_shard(tmp_path) as shard:
        (leader,) = shard.start_all("r1")
        shard.start("r2", fs)  # type: ignore[arg-type]  # it has all calls of the port
        wait_in_sync(leader, "r1", "r2")
        ends = [leader.append(b"%d" % count * 200)[0].end_offset for count in range(30)]
        found = fs.power_cut(number, tmp_path / "r2")
        shard.nodes["r2"].stop()
        again = shard.start("r2", found)  # type: ignore[arg-type]  # as above
        assert again.log.opened.found.end_offset >= ends[-1]
        wait_in_sync(leader, "r1", "r2")
        leader.append(b"goes on")
        wait_equal(leader, again)
        assert again.records() == leader.records()


def test_topics_and_files_of_config_are_on_a_follower_before_the_messages_are(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        leader, follower = shard.start_all("r1", "r2")
        leader.log.opened.config_files.write("consumerOffset.json", b'{"offsetTable":{}}')
        for number in range(10):
            leader.append(b"first of it", topic=f"topic-{number}")
            config = follower.log.topics.find(f"topic-{number}")
            assert config == leader.log.topics.find(f"topic-{number}") is not None
        wait_until(lambda: read_tree(leader.root / "config") == read_tree(follower.root / "config"), "config/ is equal")
        with pytest.raises(NotLeaderError):
            follower.log.opened.config_files.write("consumerOffset.json", b"{}")


def test_an_atomic_request_is_shown_whole_or_not_at_all_on_every_replica(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        leader, follower = shard.start_all("r1", "r2")
        ends = {0}
        for number in range(40):
            records = [internal_record(b"%d" % number * 700) for _ in range(5)]
            receipts = leader.log.opened.appends.append_internal(
                records, sync=True, born_host=BORN_HOST, replicated=True
            )
            ends.add(receipts[-1].end_offset)
            assert follower.confirm_offset in ends
        wait_equal(leader, follower)


def test_a_follower_that_got_half_of_an_atomic_request_leads_without_that_half(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        # A piece of the log has 16 KiB then, and goes out every second.
        leader, follower = shard.start_all("r1", "r2", replication_bytes_per_second_max=16 << 10)
        leader.append(b"before")
        wait_equal(leader, follower)
        begin_offset = leader.end_offset
        records = [internal_record(b"%d" % number * 7000) for number in range(6)]
        leader.log.opened.appends.append_internal(records, sync=True, born_host=BORN_HOST)
        wait_until(lambda: any(follower.log.read_bytes(begin_offset + 8000, 4000)), "the first record and more came")
        leader.stop()
        wait_until(lambda: follower.leads, "the other one leads")
        assert follower.end_offset == begin_offset
        follower.append(b"after", replicated=False)
        wait_until(lambda: follower.confirm_offset == follower.end_offset, "it confirms alone")


def test_a_planned_hand_over_loses_nothing_and_the_new_leader_has_all(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        leader, follower = shard.start_all("r1", "r2")
        receipts = leader.append(*(b"%d" % number for number in range(50)))
        _ask_hand_over(shard, "r2")
        wait_until(lambda: follower.leads, "the other one leads")
        wait_until(lambda: leader.restart_reason, "the first one ends")
        with pytest.raises(StoreError):
            leader.append(b"no", replicated=False)
        leader = shard.start("r1")
        wait_in_sync(follower, "r1", "r2")
        follower.append(b"with both")
        wait_equal(follower, leader)
        for receipt in receipts:
            assert follower.log.opened.reads.get(receipt.commit_log_offset)


def test_a_leader_that_ends_hands_over_and_nobody_waits_for_its_lease(tmp_path: Path) -> None:
    with open_shard(tmp_path) as shard:
        leader, follower = shard.start_all("r1", "r2")
        (receipt,) = leader.append(b"the last one")
        leader.replica.leave()
        assert (leader.leadership.view.resigned, leader.leadership.view.hand_over_to) == (True, "r2")
        leader.stop()
        wait_until(lambda: follower.leads, "the other one leads")
        assert follower.log.opened.reads.get(receipt.commit_log_offset).body == b"the last one"


def _ask_hand_over(shard: Shard, to: str) -> None:
    """As an operator does: in the record."""
    while True:
        stored = shard.store.read(1.0)
        assert stored is not None
        record = ShardRecord.from_bytes(stored.data)
        asked = dataclasses.replace(record, hand_over_to=to, renewal=record.renewal + 1)
        try:
            shard.store.write(asked.to_bytes(), stored.version, 1.0)
        except RecordConflictError:
            continue
        return
