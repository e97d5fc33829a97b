"""What RocketMQ does with acknowledged messages when the master of a replicated broker is killed.

The facts stand in docs/durability.md, beside what Reput promises.
"""

import pathlib
import signal
from collections import Counter
from collections.abc import Callable

import pytest

from benchmarks.load import TOPIC
from benchmarks.sides import remoting
from benchmarks.sides.acknowledged import Acknowledged, Send, sender_to_any
from benchmarks.sides.controller_mode import IN_SYNC, Replica, running_controller_cluster
from tests.rocketmq import broker_calls, real_broker
from tests.rocketmq.broker_load import Broker
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.release,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]

# More than the kernel keeps for a slave that does not read.
COUNT, BODY = 300, "x" * 100_000
FAILOVERS, SETTLED_COUNT = 3, 100


def names_in(store: pathlib.Path) -> Counter[str]:
    """How often each message is in the log of a store."""
    return Counter(one.properties["KEYS"] for one in broker_calls.stored(store, TOPIC))


def send_all(port: int, prefix: str, count: int = COUNT, body: str = BODY) -> list[str]:
    """Send messages; the names of all: each is acknowledged."""
    names = [f"{prefix}-{number}" for number in range(count)]
    for name in names:
        broker_calls.send_to(port, TOPIC, 0, body, KEYS=name)
    return names


def log_end(port: int) -> int:
    """Where a broker's log ends (bytes)."""
    return int(remoting.runtime_info(port)["commitLogMaxOffset"])


def test_a_sync_master_with_default_settings_acknowledges_what_its_slave_does_not_have(tmp_path: pathlib.Path) -> None:
    """`inSyncReplicas` is 1, and the master counts: SYNC_MASTER waits for no slave."""
    sizes = {"mappedFileSizeCommitLog": 64 << 20}
    master = Broker(tmp_path / "master", tmp_path / "names", brokerRole="SYNC_MASTER", **sizes)
    roles = {"brokerRole": "SLAVE", "brokerId": 1, **sizes}
    slave = Replica(tmp_path / "slave", tmp_path / "work", real_broker.name_server(), **roles)
    try:
        master.start()
        slave.start_broker()
        remoting.create_topic(master.broker_port, TOPIC, 1)
        send_all(master.broker_port, "before", 10, "small")
        wait_until(lambda: log_end(slave.broker_port) == log_end(master.broker_port), "the slave follows")
        slave.send_signal(signal.SIGSTOP)
        acknowledged = send_all(master.broker_port, "while")
        end = log_end(master.broker_port)
        master.kill()
        slave.send_signal(signal.SIGCONT)
        wait_until(stands_still(slave.broker_port), "the slave has read what the kernel kept for it", poll_seconds=1.0)
        assert log_end(slave.broker_port) < end
        with pytest.raises(remoting.RefusedError, match=r"slave|REJECTREQUEST"):
            broker_calls.send(slave.broker_port, TOPIC, "refused: nobody leads")
        lacking = set(acknowledged) - set(names_in(tmp_path / "slave"))
        print(f"SYNC_MASTER: {len(lacking)} of {COUNT} acknowledged messages are on the killed master only")
        assert lacking
    finally:
        slave.stop()
        master.stop()


def stands_still(port: int) -> Callable[[], bool]:
    """A question: whether a broker's log ends where it ended when this was asked before."""
    ends: list[int] = []

    def is_still() -> bool:
        ends.append(log_end(port))
        return len(ends) > 1 and ends[-1] == ends[-2]

    return is_still


def test_controller_mode_with_default_settings_loses_acknowledged_messages_with_the_master(
    tmp_path: pathlib.Path,
) -> None:
    """A slave that lags stays in the set for 15 s and may be elected; the old master then cuts its log to that slave's."""
    with running_controller_cluster(tmp_path, 2) as cluster:
        master = cluster.wait_until_whole()
        (slave,) = (one for one in cluster.replicas if one is not master)
        remoting.create_topic(master.broker_port, TOPIC, 1)
        send_all(master.broker_port, "before", 10, "small")
        wait_until(lambda: log_end(slave.broker_port) == log_end(master.broker_port), "the slave follows")
        slave.send_signal(signal.SIGSTOP)
        acknowledged = send_all(master.broker_port, "while")
        master.send_signal(signal.SIGKILL)
        slave.send_signal(signal.SIGCONT)
        wait_until(lambda: cluster.master() is slave, cluster.sync_state, poll_seconds=0.2)
        after = sender_to_any([slave.broker_port])
        wait_until(lambda: takes(after, "after"), "the new master takes messages", poll_seconds=0.2)
        master.start_broker()
        cluster.wait_until_whole()
        lost = set(acknowledged) - set(names_in(slave.store))
        print(f"controller mode: {len(lost)} of {COUNT} acknowledged messages are lost")
        assert lost
        assert lost.isdisjoint(names_in(master.store)), "the old master has cut them, too"


def takes(send: Send, name: str) -> bool:
    """Whether a message is acknowledged."""
    try:
        send(name)
    except (OSError, remoting.RefusedError):
        return False
    return True


def test_controller_mode_that_waits_for_all_in_sync_replicas_stores_messages_sent_again_twice(
    tmp_path: pathlib.Path,
) -> None:
    """Nothing acknowledged is lost; a producer that got no answer sends again, and RocketMQ does not look for its key."""
    with running_controller_cluster(tmp_path, **IN_SYNC) as cluster:
        remoting.create_topic(cluster.wait_until_whole().broker_port, TOPIC, 1)
        producers = Acknowledged([sender_to_any(cluster.ports) for _ in range(4)], (OSError, remoting.RefusedError))
        with producers:
            for _ in range(FAILOVERS):
                producers.wait_for(SETTLED_COUNT)
                killed = cluster.wait_until_whole()
                killed.send_signal(signal.SIGKILL)
                producers.wait_for(SETTLED_COUNT)
                killed.start_broker()
                cluster.wait_until_whole()
            producers.wait_for(SETTLED_COUNT)
        found = names_in(cluster.wait_until_whole().store)
        lost = set(producers.names) - set(found)
        twice = sum(1 for count in found.values() if count > 1)
        print(f"allAckInSyncStateSet: {len(producers.names)} acknowledged, {len(lost)} lost, {twice} stored twice")
        assert not lost
