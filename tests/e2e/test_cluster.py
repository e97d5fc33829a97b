"""`reput cluster`: three replicas whose leader is killed, stopped and moved under load; what was acknowledged stays.

One cluster serves all tests; each begins when all replicas are in sync. Figures are printed: `pytest -rP`.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reput_client import AppendClient, Consumer, FlushMode, NewMessage, QueryClient
from services.calling.commitlog import CommitLogClient
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import OK
from services.rocketmq.fastjson import loads
from services.serving.server import IN_SYNC_NAME
from tests.gateway.remoting.requests import V2, DoorClient, send_fields
from tests.support.cluster import Cluster, Load, running_cluster
from tests.support.command import run_command
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd (Debian: etcd-server)"),
    pytest.mark.timeout(600),
]

# The promise is 10 s with default timeouts; a test beside others on a busy machine is slower.
SILENCE_SECONDS_MAX = 30.0
UNIT = struct.Struct(">qiq")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster") / "c", remoting_port="0") as running:
        yield running


def units_of(store: str, topic: str) -> dict[str, list[tuple[int, int, int]]]:
    """The units of each queue of a topic, from the files."""
    units = {}
    for queue in sorted((pathlib.Path(store) / "consumequeue" / topic).glob("*")):
        data = b"".join(file.read_bytes() for file in sorted(queue.iterdir()))
        units[queue.name] = [unit for unit in UNIT.iter_unpack(data) if unit[1] > 0]
    return units


def check_replicas(cluster: Cluster, topic: str, acknowledged: list[str]) -> None:
    """Every acknowledged message is in the log of each replica once, and its queues are equal."""
    cluster.wait_until_whole()
    stores = {name: one["store"] for name, one in cluster.replicas().items()}

    def are_equal() -> bool:
        first, *others = (units_of(store, topic) for store in stores.values())
        return all(other == first for other in others) and sum(map(len, first.values())) >= len(set(acknowledged))

    wait_until(
        are_equal, lambda: {name: {q: len(u) for q, u in units_of(s, topic).items()} for name, s in stores.items()}
    )
    offsets = [unit[0] for units in units_of(stores["r1"], topic).values() for unit in units]
    for name, one in cluster.replicas().items():
        client = CommitLogClient(one["address"])
        keys = Counter(message.unique_key for message in client.get_many(offsets, omit_bodies=True, timeout_seconds=60))
        client.close()
        lost = [key for key in acknowledged if key not in keys]
        twice = [key for key, count in keys.items() if count > 1]
        assert (lost, twice) == ([], []), f"{name}: lost {lost[:5]}, twice {twice[:5]}"


def test_killing_the_leader_loses_nothing_that_was_acknowledged(cluster: Cluster) -> None:
    leader = cluster.wait_until_whole()
    with Load(cluster.status()["gateway"], "Killed") as load:
        load.wait_for(200)
        cluster.kill(leader)
        load.wait_for(200)
        cluster.wait_for_leader()  # the killed one is back after a second, and may stand, too
    print(f"killed: {load.longest_silence_seconds():.1f} s without acknowledgements, {len(load.failures)} failed calls")

    check_replicas(cluster, "Killed", load.acknowledged)
    assert load.longest_silence_seconds() < SILENCE_SECONDS_MAX
    with QueryClient(cluster.status()["gateway"]) as client:
        key = load.acknowledged[-1]
        assert [message.body for message in client.by_key("Killed", key)] == [key.encode()]


def test_a_client_of_the_name_server_goes_on_at_the_same_address_when_the_leader_was_killed(cluster: Cluster) -> None:
    leader = cluster.wait_until_whole()
    nameserver, door = (cluster.status()[name] for name in ("nameserver", "remoting"))
    with contextlib.closing(DoorClient(nameserver)) as names, contextlib.closing(DoorClient(door)) as client:

        def is_routed() -> bool:
            answer = names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
            return answer.code == OK and [one["brokerAddrs"] for one in loads(answer.body)["brokerDatas"]] == [
                {"0": door}
            ]

        def is_sent() -> bool:
            return bool(client.call(V2, b"body", **send_fields("Routed")).code == OK)

        wait_until(is_routed, cluster.log)
        wait_until(is_sent, cluster.log)
        cluster.kill(leader)
        cluster.wait_for_leader()
        wait_until(is_sent, cluster.log)
        wait_until(is_routed, cluster.log)


def test_a_leader_that_is_stopped_beyond_its_lease_acknowledges_nothing_when_it_goes_on(cluster: Cluster) -> None:
    leader = cluster.wait_until_whole()
    pid = cluster.replicas()[leader]["pid"]
    with Load(cluster.status()["gateway"], "Stopped") as load:
        load.wait_for(100)
        os.kill(pid, signal.SIGSTOP)
        try:
            follower = cluster.wait_for_leader(besides=[leader])
            load.wait_for(100)
        finally:
            os.kill(pid, signal.SIGCONT)
        load.wait_for(100)
        assert cluster.wait_for_leader() == follower
    print(
        f"stopped: {load.longest_silence_seconds():.1f} s without acknowledgements, {len(load.failures)} failed calls"
    )

    check_replicas(cluster, "Stopped", load.acknowledged)


def test_two_changes_of_the_leader_in_a_row_lose_nothing(cluster: Cluster) -> None:
    first = cluster.wait_until_whole()
    with Load(cluster.status()["gateway"], "Twice") as load:
        load.wait_for(100)
        cluster.kill(first)
        load.wait_for(100)  # any of the three leads then: the killed one is back after a second, and may stand, too
        cluster.kill(cluster.wait_for_leader())
        load.wait_for(100)
    print(f"twice: {load.longest_silence_seconds():.1f} s without acknowledgements, {len(load.failures)} failed calls")

    check_replicas(cluster, "Twice", load.acknowledged)


def test_a_planned_change_of_the_leader_fails_no_append(cluster: Cluster) -> None:
    leader = cluster.wait_until_whole()
    to = next(name for name in cluster.replicas() if name != leader)
    command = ["lead", "--to", to, "--address", cluster.status()["gateway"]]
    with Load(cluster.status()["gateway"], "Planned") as load:
        load.wait_for(100)
        moved = run_command(*command)
        load.wait_for(100)
    assert moved.returncode == 0, moved.stderr
    assert moved.stdout.startswith(f"{to} leads in epoch ")
    print(
        f"planned: {load.longest_silence_seconds():.1f} s without acknowledgements, {len(load.failures)} failed calls"
    )

    assert [str(failure) for failure in load.failures] == []
    check_replicas(cluster, "Planned", load.acknowledged)
    assert cluster.wait_for_leader() == to


def test_a_leader_that_leaves_before_it_is_stopped_fails_no_append(cluster: Cluster) -> None:
    """What a pod does before it ends: it asks the coordinator alone, then the process ends as on SIGTERM."""
    leader = cluster.wait_until_whole()
    replicas = cluster.replicas()
    # A follower hears from the leader that it is in sync, after the leader has written it.
    for name, one in replicas.items():
        wait_until(lambda one=one: _health(one["address"]) == "SERVING", f"{name} knows that it is in sync")
    follower = next(name for name in replicas if name != leader)
    command = ["lead", "--coordinator", cluster.status()["coordinator"], "--leave"]
    with Load(cluster.status()["gateway"], "Left") as load:
        load.wait_for(100)
        before, left = run_command(*command, follower), run_command(*command, leader)
        load.wait_for(100)
    assert before.stdout == f"{follower} does not lead\n"
    # The last name is the first choice: a roll-out has restarted it already.
    successor = max(name for name in replicas if name != leader)
    assert left.stdout.startswith(f"{successor} leads in epoch ")

    assert [str(failure) for failure in load.failures] == []
    check_replicas(cluster, "Left", load.acknowledged)
    assert cluster.wait_for_leader() == successor
    wait_until(lambda: _health(cluster.replicas()[leader]["address"]) == "SERVING", "it is in sync again")


def _health(address: str) -> str:
    """What a readiness probe of a commit log with replicas is told."""
    with grpc.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service=IN_SYNC_NAME)
        answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=WAIT_SECONDS_MAX)
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


def test_consumers_and_messages_that_wait_go_on_at_the_next_leader(cluster: Cluster) -> None:
    leader = cluster.wait_until_whole()
    gateway = cluster.status()["gateway"]
    with AppendClient(gateway, timeout_seconds=60.0) as client:
        late = NewMessage("Consumed", b"late", unique_key="late", delay_level=3)
        client.append([late], flush_mode=FlushMode.REPLICATED, deduplicate=True)
    received: Counter[str] = Counter()
    with Load(gateway, "Consumed", thread_count=1) as load, Consumer(gateway, "billing", {"Consumed": "*"}) as consumer:

        def take_until(is_enough: Callable[[], bool]) -> None:
            deadline = time.monotonic() + WAIT_SECONDS_MAX
            while not is_enough():
                assert time.monotonic() < deadline, (len(received), len(load.acknowledged), load.failures[-2:])
                delivery = consumer.take(timeout_seconds=1)
                if delivery is not None:
                    received[delivery.message.body.decode()] += 1
                    delivery.ack()

        take_until(lambda: len(received) >= 20)
        cluster.kill(leader)
        load.wait_for(50)
        known = list(load.acknowledged)
        take_until(lambda: {*known, "late"} <= received.keys())
    print(f"consumed: {len(received)} messages, {sum(received.values()) - len(received)} of them again")

    check_replicas(cluster, "Consumed", [*load.acknowledged, "late"])


def test_a_replica_with_an_emptied_store_joins_again(cluster: Cluster) -> None:
    leader = cluster.wait_until_whole()
    name = next(name for name in cluster.replicas() if name != leader)
    store = pathlib.Path(cluster.replicas()[name]["store"])
    with Load(cluster.status()["gateway"], "Emptied") as load:
        load.wait_for(50)
        cluster.kill(name)
        wait_until(lambda: cluster.replicas()[name]["role"] == "away", cluster.log)
        shutil.rmtree(store, ignore_errors=True)
        load.wait_for(50)

    check_replicas(cluster, "Emptied", load.acknowledged)


def test_status_shows_the_role_and_the_lag_of_each_replica(cluster: Cluster) -> None:
    leader = cluster.wait_until_whole()
    shown = run_command("status", "--address", cluster.status()["gateway"], "-o", "json")
    assert shown.returncode == 0, shown.stderr
    status = json.loads(shown.stdout)

    (row,) = [row for row in status["services"] if row["service"] == "commitlog"]
    assert (row["replica"], row["role"]) == (leader, "leader")
    assert {one["replica"]: (one["role"], one["in_sync"]) for one in status["replicas"]} == {
        name: ("leader" if name == leader else "follower", True) for name in cluster.replicas()
    }
