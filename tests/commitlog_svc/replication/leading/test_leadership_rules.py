"""The rules of leadership: decisions one by one, and a simulated shard under random faults (leadership_world.py)."""

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

import pytest

from commitlog_svc.replication.leading.leadership_rules import LeadershipRules, Purpose, Step
from commitlog_svc.replication.leading.record import NO_STORE_IDS, ShardRecord, forced
from commitlog_svc.replication.leading.view import Role
from store.errors import InvalidArgumentError
from tests.commitlog_svc.replication.leadership_world import LIVE_SECONDS_MAX, TIMES, World
from tests.torture.amount import amount
from tests.torture.seeds import pick_seed

FAULT_SECONDS = 60.0
SEEDS = int(os.environ.get("LEADERSHIP_SEED", "0"))  # replays: the first seed of each test
SEED_COUNT = 20
# Replicas of all shards together.
LONG_SEED_COUNT = amount(sample=500, change=500, full=1500)
# The rarest of the broken rules is found by the 9th seed.
BROKEN_SEED_COUNT = 100
PATIENCE = TIMES.lease_seconds + TIMES.margin_seconds
RECORD = ShardRecord(5, "r1", frozenset({"r1", "r2"}), 7, 4000, "", {"r1": {"commitlog": "10.0.0.1:8082"}})


def rules_of(name: str, *, last_epoch: int = 5, may_create: bool = False, now: float = 0.0) -> LeadershipRules:
    return LeadershipRules(name, {"commitlog": f"{name}:1"}, TIMES, lambda: last_epoch, may_create, now, lambda: 0.0)


def leader_of(record: ShardRecord, now: float = 0.0) -> LeadershipRules:
    """A replica that takes over from `record`, which says that nobody leads, and whose write was begun at `now`."""
    rules = rules_of("r1", now=now)
    rules.on_read(dataclasses.replace(record, leader="", hand_over_to="r1"), "before", now)
    step = rules.next_step(now)
    assert step is not None
    assert step.purpose is Purpose.TAKE_OVER
    rules.on_written(step, "v0", now)
    return rules


def record_of(step: Step | None) -> ShardRecord:
    assert step is not None
    assert step.record is not None
    return step.record


# --- standing for election


def test_a_member_takes_over_when_it_neither_heard_nor_saw_the_leader_for_a_lease_and_a_margin() -> None:
    rules = rules_of("r2")
    rules.on_read(RECORD, "v7", 1.0)
    assert rules.note_leader_heard(5, 3.0)
    for time in (1.5, 2.6, 3.6, 4.6, 5.6, 6.6, 7.4):
        step = rules.next_step(time)
        assert step in (None, Step(Purpose.READ))
        if step is not None:
            rules.on_read(RECORD, "v7", time)

    assert rules.next_time(7.41) == 3.0 + PATIENCE
    step = rules.next_step(3.0 + PATIENCE)

    assert step is not None
    assert (step.purpose, step.version) == (Purpose.TAKE_OVER, "v7")
    assert record_of(step) == dataclasses.replace(
        RECORD,
        epoch=6,
        leader="r2",
        renewal=0,
        addresses={**RECORD.addresses, "r2": {"commitlog": "r2:1"}},
    )
    rules.on_written(step, "v8", 7.5)
    assert (rules.view().role, rules.view().epoch, rules.may_acknowledge(7.6)) == (Role.LEADER, 6, True)


def test_a_record_that_changes_gives_its_leader_time() -> None:
    rules = rules_of("r2")
    for second in range(20):
        rules.on_read(dataclasses.replace(RECORD, renewal=second), f"v{second}", float(second))
        assert rules.next_step(second + 0.5) is None
    assert rules.next_time(19.5) == 20.0


def test_who_is_not_in_sync_never_takes_over() -> None:
    for leader, hand_over_to in (("r1", ""), ("r1", "r3"), ("", ""), ("", "r3")):
        rules = rules_of("r3")
        rules.on_read(dataclasses.replace(RECORD, leader=leader, hand_over_to=hand_over_to), "v7", 0.0)
        rules.on_read(dataclasses.replace(RECORD, leader=leader, hand_over_to=hand_over_to), "v7", 99.0)

        assert rules.next_step(99.5) is None
        assert "not in sync" in rules.view().refusal


def test_a_member_whose_files_were_lost_never_takes_over() -> None:
    rules = rules_of("r2", last_epoch=0)
    rules.on_read(RECORD, "v7", 0.0)
    rules.on_read(RECORD, "v7", 99.0)

    assert rules.next_step(99.5) is None
    assert "files were lost" in rules.view().refusal


def test_a_member_that_began_empty_stands_only_after_it_was_taken_out_and_in_again() -> None:
    epochs = [0]
    rules = LeadershipRules("r2", {}, TIMES, lambda: epochs[0], False, 0.0, lambda: 0.0)
    rules.on_read(RECORD, "v7", 0.0)
    epochs[0] = 5  # the leader's epochs have come, its log not yet
    rules.on_read(RECORD, "v7", 99.0)
    assert rules.next_step(99.5) is None
    rules.on_read(dataclasses.replace(RECORD, in_sync=frozenset({"r1"}), renewal=8), "v8", 100.0)
    rules.on_read(dataclasses.replace(RECORD, renewal=9), "v9", 101.0)

    step = rules.next_step(101.0 + PATIENCE) or rules.next_step(101.0 + PATIENCE)
    assert step == Step(Purpose.READ)
    rules.on_read(dataclasses.replace(RECORD, renewal=9), "v9", 106.0)
    assert record_of(rules.next_step(106.0)).leader == "r2"


def test_a_record_older_than_the_log_is_nobodys_mandate() -> None:
    rules = rules_of("r2", last_epoch=6)
    rules.on_read(RECORD, "v7", 0.0)
    rules.on_read(RECORD, "v7", 99.0)

    assert rules.next_step(99.5) is None
    assert "went back in time" in rules.view().refusal


def test_a_leader_with_a_longer_lease_is_given_its_time() -> None:
    rules = rules_of("r2")
    rules.on_read(dataclasses.replace(RECORD, lease_millis=60_000), "v7", 0.0)
    rules.on_read(dataclasses.replace(RECORD, lease_millis=60_000), "v7", 60.4)

    assert rules.next_step(60.41) is None
    step = rules.next_step(60.0 + TIMES.margin_seconds)
    assert record_of(step).leader == "r2"


def test_a_candidate_promises_nothing_until_the_record_has_changed() -> None:
    rules = rules_of("r2")
    rules.on_read(RECORD, "v7", 0.0)
    rules.on_read(RECORD, "v7", PATIENCE)
    step = rules.next_step(PATIENCE)
    assert step is not None

    assert not rules.note_leader_heard(5, PATIENCE)
    rules.on_unknown(step, 6.0)
    assert not rules.note_leader_heard(5, 6.1)
    assert rules.next_step(6.5) == Step(Purpose.READ)
    rules.on_read(RECORD, "v7", 6.6)
    assert not rules.note_leader_heard(5, 6.7), "the write may still arrive"
    rules.on_read(dataclasses.replace(RECORD, renewal=8), "v8", 7.0)
    assert rules.note_leader_heard(5, 7.1)


def test_a_takeover_whose_answer_was_lost_is_taken_up_with_the_next_epoch() -> None:
    rules = rules_of("r2")
    rules.on_read(RECORD, "v7", 0.0)
    rules.on_read(RECORD, "v7", PATIENCE)
    step = rules.next_step(PATIENCE)
    assert step is not None
    rules.on_unknown(step, 6.0)
    rules.on_read(record_of(step), "v8", 6.5)

    again = rules.next_step(6.5)

    assert again is not None
    assert (record_of(again).epoch, again.version) == (7, "v8")
    assert not rules.may_acknowledge(6.5)


def test_an_earlier_leader_is_not_heard() -> None:
    rules = rules_of("r2")
    rules.on_read(RECORD, "v7", 0.0)

    assert not rules.note_leader_heard(4, 1.0)
    assert rules.note_leader_heard(5, 1.0)


def test_an_operators_word_counts_also_where_the_record_was_lost() -> None:
    rules = rules_of("r2", last_epoch=6)
    rules.on_read(None, None, 0.0)
    rules.on_read(forced(None, "r2"), "v1", 1.0)

    step = rules.next_step(1.0)

    assert (record_of(step).epoch, record_of(step).leader, record_of(step).in_sync) == (7, "r2", {"r2"})
    assert forced(RECORD, "r2") == dataclasses.replace(
        RECORD, epoch=6, leader="", in_sync=frozenset({"r2"}), renewal=0, hand_over_to="r2"
    )


def test_a_leader_that_lost_its_promises_gives_way_to_an_operators_word() -> None:
    for promised_at, is_kept in ((0.0, False), (1.0, True)):
        rules = leader_of(RECORD)
        rules.note_promise("r2", promised_at)
        rules.on_conflict(Step(Purpose.RENEW, RECORD, "v0"), 4.0)
        rules.on_read(forced(None, "r2"), "v1", 4.5)

        assert rules.view().resigned is not is_kept
        step = rules.next_step(4.6)
        assert (step is not None and step.purpose is Purpose.RESTORE) is is_kept


# --- leading


def test_a_leader_alone_with_the_coordinator_acknowledges_for_a_lease_from_the_beginning_of_its_renewal() -> None:
    rules = leader_of(RECORD)
    step = rules.next_step(1.0)
    assert step is not None
    assert (step.purpose, record_of(step).renewal) == (Purpose.RENEW, 1)
    rules.on_written(step, "v1", 1.0)

    assert rules.may_acknowledge(1.0 + TIMES.lease_seconds - 0.001)
    assert not rules.may_acknowledge(1.0 + TIMES.lease_seconds)


def test_promises_of_all_others_replace_the_coordinator() -> None:
    rules = leader_of(dataclasses.replace(RECORD, in_sync=frozenset({"r1", "r2", "r3"})))
    rules.note_promise("r2", 8.0)
    assert not rules.may_acknowledge(8.5)
    rules.note_promise("r3", 7.0)

    assert rules.may_acknowledge(7.0 + TIMES.lease_seconds - 0.001)
    assert not rules.may_acknowledge(7.0 + TIMES.lease_seconds)


def test_a_leader_that_is_its_whole_set_needs_nobody() -> None:
    rules = leader_of(dataclasses.replace(RECORD, in_sync=frozenset({"r1"})))

    assert rules.may_acknowledge(1e6)


def test_both_sets_count_until_the_change_is_known() -> None:
    rules = leader_of(RECORD)
    rules.want_in_sync(frozenset({"r1", "r3"}))
    assert rules.view().in_sync == {"r1", "r2", "r3"}
    step = rules.next_step(0.1)
    assert step is not None
    assert step.purpose is Purpose.CHANGE_IN_SYNC
    rules.on_unknown(step, 1.0)
    assert not rules.is_change_open()
    rules.on_read(dataclasses.replace(record_of(step), in_sync=RECORD.in_sync, renewal=0), "v0", 2.0)
    assert rules.view().in_sync == {"r1", "r2", "r3"}, "it may still arrive"

    renewal = rules.next_step(2.0)
    assert renewal is not None
    rules.on_written(renewal, "v2", 2.0)

    assert rules.view().in_sync == {"r1", "r2"}
    assert rules.is_stored(frozenset({"r1", "r2"}))


def test_a_leader_that_gives_up_acknowledges_nothing_from_the_first_moment() -> None:
    rules = leader_of(RECORD)
    with pytest.raises(InvalidArgumentError):
        rules.want_hand_over("r3")
    assert rules.may_acknowledge(0.1)
    rules.want_hand_over("r2")
    assert not rules.may_acknowledge(0.1)
    step = rules.next_step(0.1)
    given_up = record_of(step)
    assert step is not None
    rules.on_written(step, "v9", 0.1)

    assert rules.view().resigned
    successor = rules_of("r2")
    successor.on_read(given_up, "v9", 0.0)
    assert record_of(successor.next_step(0.0)).leader == "r2"


def test_a_hand_over_whose_successor_had_just_left_the_set_did_leave_the_shard_without_a_leader_for_a_lease() -> None:
    rules = leader_of(dataclasses.replace(RECORD, in_sync=frozenset({"r1", "r2", "r3"})))
    rules.want_in_sync(frozenset({"r1", "r3"}))
    without_r2 = rules.next_step(0.1)
    assert without_r2 is not None
    rules.want_hand_over("r2")
    rules.on_written(without_r2, "v1", 0.1)
    given_up = record_of(rules.next_step(0.2))
    assert (given_up.leader, given_up.in_sync) == ("", {"r1", "r3"})

    left, stayed = rules_of("r2"), rules_of("r3")
    for other in (left, stayed):
        other.on_read(given_up, "v2", 0.0)

    assert left.next_step(0.0) is None
    assert record_of(stayed.next_step(0.0)).leader == "r3", "at once"


def test_a_hand_over_that_failed_is_taken_out_of_the_record_once_and_an_operator_may_ask_anew() -> None:
    rules = leader_of(RECORD)
    wish = dataclasses.replace(record_of(Step(Purpose.READ, RECORD)), epoch=6, hand_over_to="r2", renewal=1)
    first = rules.next_step(1.0)
    assert first is not None
    rules.on_conflict(first, 1.0)
    rules.on_read(wish, "wished", 1.0)
    assert rules.view().hand_over_to == "r2"
    under_way = rules.next_step(2.0)
    assert under_way is not None
    rules.refuse_hand_over("r2")
    rules.on_written(under_way, "v1", 2.0)
    assert rules.view().hand_over_to == ""
    renewal = rules.next_step(3.0)
    assert renewal is not None
    assert record_of(renewal).hand_over_to == ""
    rules.on_written(renewal, "v2", 3.0)

    rules.on_conflict(rules.next_step(4.0) or renewal, 4.0)
    rules.on_read(dataclasses.replace(wish, renewal=9), "wished again", 4.0)
    assert rules.view().hand_over_to == "r2"


@pytest.mark.parametrize(
    "other", [{"epoch": 7, "leader": "r2"}, {"leader": "", "hand_over_to": "r2"}, {"leader": "r2"}], ids=str
)
def test_a_leader_resigns_when_the_record_names_another(other: dict[str, Any]) -> None:
    rules = leader_of(RECORD)
    mine = record_of(rules.next_step(1.0))
    rules.on_conflict(Step(Purpose.RENEW, mine, "v0"), 1.0)
    assert rules.next_step(1.0) == Step(Purpose.READ)
    rules.on_read(dataclasses.replace(mine, **other), "v5", 1.1)

    assert rules.view().resigned
    assert not rules.may_acknowledge(1.1)
    assert rules.next_step(99.0) is None


def test_a_leader_that_hears_of_a_later_epoch_resigns() -> None:
    rules = leader_of(RECORD)
    rules.note_epoch(6)
    assert not rules.view().resigned
    rules.note_epoch(7)
    assert rules.view().resigned


# --- when the record is missing


def test_a_lost_record_is_written_back_by_a_leader_whose_followers_promise() -> None:
    rules = leader_of(RECORD)
    renewal = rules.next_step(1.0)
    assert renewal is not None
    rules.on_conflict(renewal, 1.0)
    rules.on_read(None, None, 1.1)
    assert rules.next_step(1.1) is None
    rules.note_promise("r2", 1.5)
    rules.on_read(None, None, 2.1)

    step = rules.next_step(2.1)

    assert step is not None
    assert (step.purpose, step.version) == (Purpose.RESTORE, None)
    assert (record_of(step).epoch, record_of(step).in_sync) == (6, {"r1", "r2"})


def test_a_lost_record_is_made_again_by_nobody_else() -> None:
    rules = rules_of("r2", may_create=True)
    rules.on_read(None, None, 0.0)
    rules.on_read(None, None, 99.0)

    assert rules.next_step(99.5) is None
    assert "reput lead --force" in rules.view().refusal


def test_a_new_shard_is_made_by_the_replica_that_may_and_only_after_a_leader_had_time_to_write_it_back() -> None:
    other = rules_of("r2", last_epoch=0)
    first = rules_of("r1", last_epoch=0, may_create=True)
    for rules in (other, first):
        rules.on_read(None, None, 10.0)
        rules.on_read(None, None, 14.0)
        assert rules.next_step(14.4) is None
    step = first.next_step(10.0 + PATIENCE)

    assert step is not None
    assert (step.purpose, step.version) == (Purpose.CREATE, None)
    assert (record_of(step).epoch, record_of(step).leader, record_of(step).in_sync) == (1, "r1", {"r1"})
    assert other.next_step(14.6) is None


def test_a_replica_that_died_right_after_it_made_the_shard_goes_on() -> None:
    rules = rules_of("r1", last_epoch=0)
    rules.on_read(ShardRecord(1, "r1", frozenset({"r1"}), 0, 4000), "v1", 0.0)

    assert record_of(rules.next_step(0.0)).epoch == 2


def test_a_member_with_another_store_than_the_records_stands_only_once_the_record_names_its_own() -> None:
    rules = LeadershipRules("r2", {}, TIMES, lambda: 5, False, 0.0, lambda: 0.0, "new")
    with_old = dataclasses.replace(RECORD, store_ids={"r1": "a", "r2": "old"})
    rules.on_read(with_old, "v7", 0.0)
    rules.on_read(with_old, "v7", 99.0)
    assert rules.next_step(99.5) is None
    assert "files were lost" in rules.view().refusal

    with_new = dataclasses.replace(with_old, renewal=8, store_ids={"r1": "a", "r2": "new"})
    rules.on_read(with_new, "v8", 100.0)
    rules.on_read(with_new, "v8", 100.5 + PATIENCE)

    record = record_of(rules.next_step(100.5 + PATIENCE))
    assert (record.leader, record.store_ids) == ("r2", {"r1": "a", "r2": "new"})


def test_an_operator_may_let_a_replica_lead_whose_store_is_another_one() -> None:
    rules = LeadershipRules("r2", {}, TIMES, lambda: 5, False, 0.0, lambda: 0.0, "new")
    rules.on_read(forced(dataclasses.replace(RECORD, store_ids={"r2": "old"}), "r2"), "v8", 0.0)

    assert record_of(rules.next_step(0.0)).store_ids == {"r2": "new"}


def test_a_change_of_the_set_names_the_stores_of_its_members_and_forgets_the_others() -> None:
    rules = leader_of(dataclasses.replace(RECORD, store_ids={"r1": "a", "r2": "b"}))
    rules.want_in_sync(frozenset({"r1", "r3"}), {"r3": "c"})

    step = rules.next_step(0.1)
    assert record_of(step).store_ids == {"r1": "a", "r3": "c"}
    assert step is not None
    rules.on_written(step, "v1", 0.1)
    assert rules.is_stored(frozenset({"r1", "r3"}), {"r3": "c"})
    rules.want_in_sync(frozenset({"r1", "r3"}), {"r3": "d"})
    assert rules.is_change_open()
    assert not rules.is_stored(frozenset({"r1", "r3"}), {"r3": "d"})


# --- all of it under faults


def end_of(world: World, *, with_lost_data: bool) -> None:
    """Run the world through its faults; it is live again soon after they are over."""
    world.trouble(FAULT_SECONDS)
    world.run(FAULT_SECONDS)
    world.heal()
    if with_lost_data:
        # A leader that runs writes the record back. If none does, an operator chooses who has most.
        world.run(world.time + LIVE_SECONDS_MAX)
        if world.record is None and not world.leaders():
            world.force(max(world.replicas, key=lambda replica: (replica.epoch, len(replica.log))))
    is_live = world.run(world.time + LIVE_SECONDS_MAX, reached=lambda: len(world.leaders()) == 1)
    assert is_live, "\n".join([*world.trace[-60:], "nobody leads"])


@pytest.mark.parametrize("with_lost_data", [False, True], ids=["record kept", "record lost at times"])
def test_no_two_replicas_acknowledge_nothing_acknowledged_is_lost_and_somebody_leads_again(
    with_lost_data: bool,
) -> None:
    takeovers = acknowledged = 0
    for seed in range(SEEDS, SEEDS + SEED_COUNT):
        world = World(seed, with_lost_data=with_lost_data)
        try:
            end_of(world, with_lost_data=with_lost_data)
        except AssertionError as error:
            raise AssertionError(f"LEADERSHIP_SEED={seed}\n{error}") from error
        takeovers += world.takeovers
        acknowledged += len(world.acknowledged)
    assert takeovers > SEED_COUNT, "the faults are faults"
    assert acknowledged > 40 * SEED_COUNT, "and there is time between them"


def test_a_lost_disk_costs_nothing_that_was_acknowledged_also_when_its_replica_restarts_while_it_copies() -> None:
    losses = acknowledged = 0
    for seed in range(SEEDS, SEEDS + 2 * SEED_COUNT):
        world = World(seed, with_lost_disks=True)
        try:
            world.trouble(FAULT_SECONDS)
            world.run(FAULT_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"LEADERSHIP_SEED={seed}\n{error}") from error
        losses += sum("disk lost" in line and "ends" in line for line in world.trace)
        acknowledged += len(world.acknowledged)
    assert losses > SEED_COUNT, "disks are lost"
    assert acknowledged > 40 * SEED_COUNT, "and there is time between them"


@pytest.mark.long
@pytest.mark.parametrize("with_lost_data", [False, True], ids=["record kept", "record lost at times"])
@pytest.mark.parametrize("names", [("r1", "r2"), ("r1", "r2", "r3"), ("r1", "r2", "r3", "r4", "r5")], ids=len)
def test_the_same_holds_for_hundreds_of_seeds(names: tuple[str, ...], with_lost_data: bool) -> None:
    first = SEEDS or pick_seed("leadership")
    for seed in range(first, first + LONG_SEED_COUNT // len(names)):
        try:
            end_of(World(seed, names=names, with_lost_data=with_lost_data), with_lost_data=with_lost_data)
        except AssertionError as error:
            raise AssertionError(f"LEADERSHIP_SEED={seed}\n{error}") from error


class ForgetsWhichStoreItHas(LeadershipRules):
    def _has_other_store(self, record: ShardRecord) -> bool:
        return self._is_joining


class AsksForNoLease(LeadershipRules):
    def may_acknowledge(self, now: float) -> bool:
        return self._role is Role.LEADER and not self._resigned and self._successor is None


class StandsTooEarly(LeadershipRules):
    def _stands_at(self) -> tuple[float | None, str]:
        at, why = super()._stands_at()
        return (at - 1.5 if at is not None else None), why


class DoesNotListen(LeadershipRules):
    def note_leader_heard(self, epoch: int, now: float) -> bool:
        heard_at = self._heard_at
        is_promised = super().note_leader_heard(epoch, now)
        self._heard_at = heard_at
        return is_promised


class ForgetsPromisesInARestart(LeadershipRules):
    def on_read(self, record: ShardRecord | None, version: str | None, finished: float) -> None:
        is_first = not self._was_read
        super().on_read(record, version, finished)
        if is_first:
            self._seen_since = self._heard_at = -math.inf


class CountsFromTheAnswer(LeadershipRules):
    def on_written(self, step: Step, version: str, started: float) -> None:
        super().on_written(step, version, started + TIMES.margin_seconds * 2)


class TrustsOnePromise(LeadershipRules):
    def _has_promises(self, now: float) -> bool:
        assert self._record is not None
        others = (self._record.in_sync | self._pending) - {self._name}
        return not others or any(now < self._promises.get(one, -math.inf) + TIMES.lease_seconds for one in others)


class ShrinksBeforeItIsStored(LeadershipRules):
    def want_in_sync(self, names: frozenset[str], store_ids: Mapping[str, str] = NO_STORE_IDS) -> None:
        super().want_in_sync(names, store_ids)
        assert self._record is not None
        self._record = dataclasses.replace(self._record, in_sync=names)


@pytest.mark.parametrize(
    "broken",
    [
        AsksForNoLease,
        StandsTooEarly,
        DoesNotListen,
        ForgetsPromisesInARestart,
        CountsFromTheAnswer,
        TrustsOnePromise,
        ShrinksBeforeItIsStored,
        ForgetsWhichStoreItHas,
    ],
)
def test_the_simulation_finds_a_broken_rule(broken: type[LeadershipRules]) -> None:
    for seed in range(BROKEN_SEED_COUNT):
        world = World(seed, broken, with_lost_disks=broken is ForgetsWhichStoreItHas)
        world.trouble(FAULT_SECONDS)
        try:
            world.run(FAULT_SECONDS)
        except AssertionError:
            return
    raise AssertionError(f"{broken.__name__} was not found by {BROKEN_SEED_COUNT} seeds")
