"""The real replicas in a simulated world keep their promises; with one rule broken a history shows it.

`python -m tests.simulation replicas --seed N` replays the history that a failure names.
"""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from commitlog_svc.append.group_commit import GroupCommit
from commitlog_svc.replication.follower_side import FollowerSide
from commitlog_svc.replication.leader_side import LeaderSide
from commitlog_svc.replication.leading.leadership_rules import LeadershipRules
from commitlog_svc.replication.leading.replica_progress import ReplicaProgress
from tests.simulation.shard import run_history
from tests.simulation.world import BrokenPromiseError
from tests.torture.amount import amount
from tests.torture.seeds import pick_seed

HISTORIES_MAX = 60  # in which a broken rule is found


def test_no_history_breaks_a_promise_of_the_shard() -> None:
    dice = random.Random(pick_seed("replicas in a simulated world"))
    takeovers = acknowledged_count = 0
    for _ in range(amount(sample=4, change=30, full=2_000)):
        shard = run_history(dice.getrandbits(32))
        takeovers += shard.takeovers
        acknowledged_count += len(shard.acknowledged)
    assert takeovers > 3
    assert acknowledged_count > 20


def test_a_seed_makes_the_same_history_again() -> None:
    first, second = (run_history(5) for _ in range(2))
    assert list(first.world.history) == list(second.world.history)
    assert first.acknowledged == second.acknowledged


def acknowledge_a_lease_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    right = LeadershipRules.may_acknowledge
    monkeypatch.setattr(LeadershipRules, "may_acknowledge", lambda self, now: right(self, now - 2.0))


def confirm_before_the_others_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def progress(self: LeaderSide, name: str) -> ReplicaProgress:
        known = self._replicas.get(name) or ReplicaProgress(self._began_at, self._began_at)
        known.settled_offset = self.log.commits.flushed_offset
        return known

    monkeypatch.setattr(LeaderSide, "_progress", progress)


def promise_nothing_with_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeadershipRules, "note_leader_heard", lambda self, epoch, now: True)


def report_what_is_not_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    right = FollowerSide._requests

    class Unflushed:
        def __init__(self, commits: GroupCommit) -> None:
            self._commits = commits

        def wait_flushed(self, offset: int) -> None: ...

        def __getattr__(self, name: str) -> object:
            return getattr(self._commits, name)

    def requests(self, target, number, end_offset):  # type: ignore[no-untyped-def]
        log = self._log
        if not isinstance(log.commits, Unflushed):
            self._log = replace(log, commits=Unflushed(log.commits))
        return right(self, target, number, end_offset)

    monkeypatch.setattr(FollowerSide, "_requests", requests)


@pytest.mark.parametrize(
    "break_rule",
    [
        acknowledge_a_lease_too_long,
        confirm_before_the_others_have_it,
        promise_nothing_with_an_answer,
        report_what_is_not_on_the_disk,
    ],
)
def test_a_broken_rule_is_found_with_its_seed(
    break_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    with pytest.raises(BrokenPromiseError, match=r"seed \d+: BrokenPromiseError: ") as found:
        for seed in range(HISTORIES_MAX):
            run_history(seed)
    assert "fault: " in str(found.value)
