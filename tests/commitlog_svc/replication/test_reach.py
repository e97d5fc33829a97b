"""What a replica says that it may lack: never less than it does, by a model of a leader that confirms, and on real replicas."""

import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commitlog_svc.replication.follower_side import FollowerSide
from commitlog_svc.replication.leading.view import Role
from commitlog_svc.replication.reach import KEPT_COUNT_MAX, Reach
from services.calling.channel import open_channel
from store.files.file_system import RealFileSystem
from tests.commitlog_svc.replication.fixed_leadership import FixedLeadership
from tests.commitlog_svc.replication.replicas import BROKER, open_shard, wait_equal
from tests.support.waiting import wait_until


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
