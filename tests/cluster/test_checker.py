"""Clients under random faults, each call recorded: nothing that was acknowledged is lost, nothing that was shown goes away.

What the processes say they did is a behaviour of the model of leadership (steps.py; where Spin is there).

Faults: replicas that are killed, stopped, taken away and cut off from one another, from the coordinator and from the gateway,
in one or both directions; the coordinator and the gateway gone; the lead moved. They overlap. TORTURE_SEED=n replays a plan of
faults; what happens between them follows the clock of the machine. A change gets GROUP_COUNT groups of faults, a release
CLUSTER_MINUTES (120), a new cluster every GROUPS_OF_A_LIFE.
"""

import os
import pathlib
import random
import shutil
import time

import pytest

from tests.cluster.faults import inflict, plan
from tests.cluster.history import Producers, Readers, lost_and_doubled, problems_of
from tests.cluster.shard import pause, running_shard
from tests.cluster.steps import BOUNDS, MODEL, Watch, refusal_of
from tests.models.spin import IS_THERE
from tests.models.traces import TraceChecker
from tests.support.etcd import ETCD, MISSING
from tests.torture.seeds import pick_seed

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=MISSING), pytest.mark.timeout(900)]

GROUP_COUNT = 3
GROUPS_OF_A_LIFE = 8
TOPIC = "Checked"
LOCAL_SHARE = 0.2
WELL_SECONDS = (1.0, 6.0)  # between two groups


def check_a_life(directory: pathlib.Path, seed: int, group_count: int) -> str:
    """One cluster under so many groups of faults, and the judgement; its figures."""
    dice = random.Random(seed)
    story = []
    with running_shard(directory) as shard:
        addresses = {name: shard.client(name).target for name in shard.names}
        with Readers(addresses) as readers, Watch(shard) as watch:
            with Producers(shard.gateway, TOPIC, local_share=LOCAL_SHARE, seed=seed) as producers:
                producers.wait_for(50)
                for group in plan(seed, group_count):
                    story.append(inflict(shard, group))
                    shard.wait_for_leader()
                    producers.wait_for(20)
                    pause(dice.uniform(*WELL_SECONDS))
                shard.wait_until_whole()
                producers.wait_for(20)
            shard.settle()
            seen, told = readers.counts, watch.told()
        epochs = {name: len(status.epochs) for name in shard.names if (status := shard.status(name)) is not None}
    problems = problems_of(shard.stores, TOPIC, producers, readers)
    assert problems == [], "\n".join([f"seed {seed}", *problems, *map(str, story), shard.log()])
    refusal = refusal_of(told, TraceChecker(MODEL, directory / "model", BOUNDS)) if IS_THERE else ""
    assert refusal == "", f"seed {seed}: this run is no behaviour of {MODEL}: {refusal}\n{told}"
    lost, doubled = lost_and_doubled(shard.stores["r1"], TOPIC, producers)
    replicated = sum(one.is_replicated for one in producers.acknowledged)
    silences = sorted(second for second in producers.silences() if second >= 1)
    return (
        f"seed {seed}: {group_count} groups of faults, {max(epochs.values())} epochs, "
        f"{len(producers.acknowledged)} acknowledged, {replicated} of them replicated, "
        f"{len(producers.failures)} failed calls, {min(seen.values())} records read on each replica at least, "
        f"{lost} lost, {doubled} doubled; silences {[round(second, 1) for second in silences]}"
    )


def test_no_acknowledged_message_is_lost_under_random_faults(tmp_path: pathlib.Path) -> None:
    seed = pick_seed("a shard under random faults")
    print(check_a_life(tmp_path, seed, GROUP_COUNT))


@pytest.mark.release
@pytest.mark.timeout(24 * 3600)
def test_no_acknowledged_message_is_lost_in_hours_of_random_faults(tmp_path: pathlib.Path) -> None:
    seed = pick_seed("hours of random faults")
    until = time.monotonic() + 60 * float(os.environ.get("CLUSTER_MINUTES") or 120)
    life = 0
    while time.monotonic() < until:
        directory = tmp_path / str(life)
        directory.mkdir()
        print(check_a_life(directory, seed + life, GROUPS_OF_A_LIFE), flush=True)
        shutil.rmtree(directory)
        life += 1


def test_a_seed_gives_the_same_plan_of_faults_again() -> None:
    assert plan(7, 20) == plan(7, 20)
    assert plan(7, 20) != plan(8, 20)
