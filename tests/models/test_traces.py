"""What the real rules do is a behaviour of the model; where a rule is broken in the code, or in the model, both are found out.

So model and code cannot drift apart: a rule that the code gives up makes steps that the model has not, and a rule that the
model gives up lets the search find a false thing.
"""

from pathlib import Path

import pytest

from commitlog_svc.replication.leading.leadership_rules import LeadershipRules
from tests.commitlog_svc.replication.leading.test_leadership_rules import (
    AsksForNoLease,
    CountsFromTheAnswer,
    DoesNotListen,
    ForgetsPromisesInARestart,
    ShrinksBeforeItIsStored,
    StandsTooEarly,
    TrustsOnePromise,
)
from tests.models.spin import IS_THERE, MISSING, search
from tests.models.test_leading import MODEL, THREE, TWO
from tests.models.traced_world import BOUNDS, Seen, TracedWorld
from tests.models.traces import TraceChecker
from tests.torture.amount import amount
from tests.torture.seeds import pick_seed

pytestmark = [pytest.mark.models, pytest.mark.skipif(not IS_THERE, reason=MISSING)]

SECONDS = 30.0  # of simulated time: two to six leaders
BROKEN_SEED_COUNT = 40  # the rarest of the broken rules is found by the 11th seed


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> TraceChecker:
    return TraceChecker(MODEL, tmp_path_factory.mktemp("traces"), BOUNDS)


def test_every_trace_of_the_real_rules_is_a_behaviour_of_the_model(checker: TraceChecker) -> None:
    first = pick_seed("traces")
    takeovers = 0
    for seed in range(first, first + amount(sample=5, change=40, full=1000)):
        world = TracedWorld(seed)
        steps = world.steps_of(SECONDS)
        explained = checker.explained(steps)
        assert explained == len(steps), f"TORTURE_SEED={seed}: no behaviour has {steps[explained - 10 : explained + 1]}"
        takeovers += world.takeovers
    assert takeovers > 0, "there is something to explain"


def test_a_leader_that_counted_a_replica_which_it_only_wanted_in_the_set_did_confirm_less_than_the_model(
    checker: TraceChecker,
) -> None:
    # r2 leads with the set r2, r3. At 11.3 s it wants r1, too, while the coordinator is down; that is stored at 16.6 s.
    # At 15.1 s r3 has 35 entries and r1 30: r2 confirms 30, by a promise of r1 that is 1.6 s old.
    steps = TracedWorld(372429279).steps_of(SECONDS)

    assert checker.explained(steps) == len(steps)
    assert checker.explained([step for step in steps if step.what != "COUNT"]) < len(steps)


def test_a_step_that_the_model_has_not_ends_a_trace(checker: TraceChecker) -> None:
    steps = TracedWorld(1).steps_of(SECONDS)
    first = next(at for at, step in enumerate(steps) if step.what == "CONFIRM")
    confirmed = steps[first]

    assert checker.explained([*steps[:first], confirmed._replace(number=confirmed.number + 1)]) == first
    assert checker.explained([*steps[:first], Seen("ELECTED", 2, 2, 9), *steps[first:]]) == first


@pytest.mark.parametrize(
    ("rules", "macros"),
    [
        pytest.param(AsksForNoLease, {**TWO, "BROKEN_NO_LEASE_CHECK": 1}, id="no lease is asked for"),
        pytest.param(TrustsOnePromise, {**THREE, "BROKEN_ONE_PROMISE": 1}, id="a promise is not awaited"),
        pytest.param(StandsTooEarly, {**TWO, "LEASE": 2, "PATIENCE": 1}, id="a candidate stands too early"),
        pytest.param(DoesNotListen, {**TWO, "BROKEN_DOES_NOT_LISTEN": 1}, id="a promise is given and not kept"),
        pytest.param(ForgetsPromisesInARestart, {**TWO, "BROKEN_FORGETS_PROMISES": 1}, id="a restart forgets promises"),
        pytest.param(
            CountsFromTheAnswer, {**TWO, "EPOCHS": 3, "BROKEN_COUNTS_FROM_ANSWER": 1}, id="a lease from the answer on"
        ),
        pytest.param(
            ShrinksBeforeItIsStored, {**TWO, "STRAYS": 1, "BROKEN_SHRINKS_EARLY": 1}, id="the set shrinks too early"
        ),
    ],
)
def test_a_rule_that_is_broken_in_the_code_and_in_the_model_is_found_in_both(
    checker: TraceChecker, tmp_path: Path, rules: type[LeadershipRules], macros: dict[str, int]
) -> None:
    assert search(MODEL, tmp_path, macros).failure, "the search finds it in the model"
    for seed in range(BROKEN_SEED_COUNT):
        steps = TracedWorld(seed, rules).steps_of(SECONDS)
        if checker.explained(steps) < len(steps):
            return
    raise AssertionError(f"{BROKEN_SEED_COUNT} traces of {rules.__name__} are behaviours of the model")
