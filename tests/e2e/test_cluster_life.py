"""`reput cluster` as a process: what it leaves behind when it stops or is killed, and how it goes on."""

import pathlib
import shutil
import signal

import pytest

from reput_client import AppendClient, NewMessage, QueryClient
from tests.support.cluster import Cluster, running_cluster
from tests.support.processes import descendants_of, wait_until_gone
from tests.support.waiting import WAIT_SECONDS_MAX

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd (Debian: etcd-server)"),
    pytest.mark.timeout(600),
]


def test_a_cluster_stops_without_a_trace_goes_on_and_dies_without_one(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "c"
    with running_cluster(directory, replica_count=2) as cluster:
        cluster.wait_until_whole()
        processes = descendants_of(cluster.process.pid)
        assert len(processes) >= 2 * 3 + 2, "supervisor, log and followers of two replicas, a gateway, etcd"
        with AppendClient(cluster.status()["gateway"]) as client:
            client.append([NewMessage("Kept", b"kept", keys=["k1"])])
        assert cluster.stop() == 0
        wait_until_gone(processes)
        assert not cluster.port_file.exists()

    again = Cluster(directory, replica_count=2)
    try:
        again.wait_until_whole()
        with QueryClient(again.status()["gateway"]) as client:
            assert [message.body for message in client.by_key("Kept", "k1")] == [b"kept"]
        processes = descendants_of(again.process.pid)
    finally:
        again.process.send_signal(signal.SIGKILL)
        again.process.wait(WAIT_SECONDS_MAX)
    wait_until_gone(processes)


def test_one_replica_alone_takes_replicated_appends(tmp_path: pathlib.Path) -> None:
    with running_cluster(tmp_path / "c", replica_count=1) as cluster:
        assert cluster.wait_until_whole() == "r1"
        with AppendClient(cluster.status()["gateway"]) as client:
            (receipt,) = client.append([NewMessage("Alone", b"alone")])
        assert receipt.queue_offset == 0
