"""A shard with three replicas goes from a release to today's, replica by replica, and back, while clients send and consume.

A replica has all its services. Producers send one message after the other, a group consumes. The judges: the files of all
replicas (tests/cluster/history.py), and what the group was given and has acknowledged:

- each acknowledged message reaches the group
- no message is given by a pop that began after its acknowledgement was answered
- no append fails, but for reasons that pass while a gateway is replaced
"""

import pathlib

import pytest

from tests.cluster.history import Producers, problems_of
from tests.cluster.shard import GATEWAY
from tests.cluster.whole_shard import MESSAGES_BETWEEN, Group, WholeShard, roll
from tests.support.etcd import ETCD, MISSING
from tests.support.releases import COMMITS, ROOT, environ_of, tree_of

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=MISSING), pytest.mark.timeout(600)]

TOPIC = "Rolling"
PROCESSES = ("r1", "r2", "r3", GATEWAY)


def judge(shard: WholeShard, producers: Producers, group: Group) -> None:
    shard.settle()
    print(
        f"{producers.longest_silence():.1f} s without acknowledgements, {len(producers.acknowledged)} acknowledged, "
        f"{len(producers.failures)} failed calls, {len(group.given)} given, {len(group.acked)} consumed"
    )
    assert group.problems() == []
    assert problems_of(shard.stores, TOPIC, producers) == []


def go(version: str, tmp_path: pathlib.Path, *, and_back: bool) -> None:
    before = dict.fromkeys(PROCESSES, environ_of(tree_of(version)))
    shard = WholeShard(tmp_path, environs=before)
    try:
        with Group(shard.gateway, TOPIC) as group:
            with Producers(shard.gateway, TOPIC, count=2) as producers:
                producers.wait_for(MESSAGES_BETWEEN)
                roll(shard, producers, dict.fromkeys(PROCESSES, environ_of(ROOT)), gateway_at=1)
                if and_back:
                    roll(shard, producers, before, gateway_at=2)
            group.wait_for([one.key for one in producers.acknowledged])
        judge(shard, producers, group)
    finally:
        shard.close()


@pytest.mark.parametrize("version", COMMITS)
def test_a_shard_with_replicas_is_upgraded_from_a_release_under_load(version: str, tmp_path: pathlib.Path) -> None:
    go(version, tmp_path, and_back=False)


@pytest.mark.release
@pytest.mark.parametrize("version", COMMITS)
def test_a_shard_with_replicas_is_upgraded_and_taken_back_under_load(version: str, tmp_path: pathlib.Path) -> None:
    go(version, tmp_path, and_back=True)
