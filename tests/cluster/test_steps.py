"""What the processes of a shard say they did is a behaviour of the model of leadership, or the model refuses it."""

import dataclasses
import pathlib

import pytest

from commitlog_svc.replication.leading.record import ShardRecord
from deploy.processes import python_path
from tests.cluster.history import Producers
from tests.cluster.shard import pause, running_shard
from tests.cluster.steps import BOUNDS, MODEL, Confirmed, Led, Told, Watch, refusal_of
from tests.models.spin import IS_THERE, MISSING
from tests.models.traces import TraceChecker
from tests.support import etcd
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(etcd.ETCD is None, reason=etcd.MISSING),
    pytest.mark.skipif(not IS_THERE, reason=MISSING),
]

ALL = frozenset({"r1", "r2", "r3"})
PAIR = frozenset({"r2", "r3"})


def version(epoch: int, leader: str, in_sync: frozenset[str], hand_over_to: str = "") -> ShardRecord:
    return ShardRecord(epoch, leader, in_sync, hand_over_to=hand_over_to)


# r1 makes the shard and confirms; it is killed, r2 leads, takes r1 out and in again, and gives the lead to r3.
RUN = Told(
    ["r1", "r2", "r3"],
    [
        version(1, "r1", frozenset({"r1"})),
        version(1, "r1", frozenset({"r1", "r2"})),
        version(1, "r1", ALL),
        version(2, "r2", ALL),
        version(2, "r2", PAIR),
        version(2, "r2", ALL),
        version(2, "", ALL, "r3"),
        version(3, "r3", ALL),
    ],
    {1: [Led("r1", 0)], 2: [Led("r2", 500)], 3: [Led("r3", 900)]},
    {
        1: [Confirmed(frozenset({"r1"}), 100), Confirmed(ALL, 300), Confirmed(ALL, 400)],
        2: [Confirmed(ALL, 400), Confirmed(PAIR, 500), Confirmed(PAIR, 700), Confirmed(ALL, 800)],
        3: [Confirmed(ALL, 900), Confirmed(ALL, 1000)],
    },
)


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> TraceChecker:
    return TraceChecker(MODEL, tmp_path_factory.mktemp("steps"), BOUNDS)


def test_a_run_with_changes_of_the_set_and_two_leaders_after_the_first_is_a_behaviour(checker: TraceChecker) -> None:
    assert refusal_of(RUN, checker) == ""


def test_a_takeover_of_a_replica_that_is_not_in_the_set_is_refused(checker: TraceChecker) -> None:
    records = [*RUN.records[:5], version(3, "r1", PAIR)]
    told = dataclasses.replace(RUN, records=records, led={**RUN.led, 3: [Led("r1", 700)]})
    assert "TAKE_OVER" in refusal_of(told, checker)


def test_a_second_leader_of_an_epoch_is_refused(checker: TraceChecker) -> None:
    told = dataclasses.replace(RUN, led={**RUN.led, 2: [Led("r2", 500), Led("r3", 500)]})
    assert "ELECTED" in refusal_of(told, checker)


def test_an_epoch_that_leaves_one_out_is_refused(checker: TraceChecker) -> None:
    records = [dataclasses.replace(one, epoch=one.epoch + (one.epoch > 1)) for one in RUN.records]
    told = Told(RUN.names, records, {1: RUN.led[1], 3: RUN.led[2], 4: RUN.led[3]}, {})
    assert "TAKE_OVER" in refusal_of(told, checker)


@pytest.mark.parametrize("begin_offset", [0, 300, 399])
def test_a_leader_whose_log_ends_before_what_was_confirmed_is_refused(checker: TraceChecker, begin_offset: int) -> None:
    told = dataclasses.replace(RUN, led={**RUN.led, 2: [Led("r2", begin_offset)]})
    assert refusal_of(told, checker) != ""


def test_what_an_earlier_leader_confirms_beyond_the_log_of_the_next_one_is_refused(checker: TraceChecker) -> None:
    told = dataclasses.replace(RUN, confirmed={**RUN.confirmed, 1: [*RUN.confirmed[1], Confirmed(ALL, 600)]})
    assert refusal_of(told, checker) != ""


BROKEN_CODE = """
from commitlog_svc.replication.leader_side import LeaderSide
from commitlog_svc.replication.leading.replica_progress import ReplicaProgress

def progress(self, name):
    known = self._replicas.get(name) or ReplicaProgress(self._began_at, self._began_at)
    known.settled_offset = self.log.commits.flushed_offset
    return known

LeaderSide._progress = progress
"""


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_leader_that_confirms_before_the_others_have_it_is_found_out_by_the_model(
    tmp_path: pathlib.Path, checker: TraceChecker, is_broken: bool
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "sitecustomize.py").write_text(BROKEN_CODE if is_broken else "")
    environs = {"r1": {"PYTHONPATH": python_path({"PYTHONPATH": str(tmp_path / "code")})}}
    with running_shard(tmp_path / "shard", environs=environs) as shard, Watch(shard) as watch:
        assert shard.wait_until_whole() == "r1"
        with Producers(shard.gateway, "Told", local_share=0.5) as producers:
            producers.wait_for(10)
            with shard.stopped("r2"), shard.stopped("r3"):
                count = len(producers.acknowledged)
                wait_until(lambda: len(producers.acknowledged) > count, shard.log)
                pause(0.5)
                with shard.away("r1"):
                    pass
            shard.wait_for_leader()
            producers.wait_for(10)
        shard.wait_until_whole()
        told = watch.told()
    assert len(told.led) > 1
    assert (refusal_of(told, checker) != "") == is_broken
