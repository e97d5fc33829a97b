"""`reput cluster` as a process: what it leaves behind when it stops or is killed, and how it goes on."""

import os
import pathlib
import select
import shutil
import signal
from collections.abc import Iterable

import pytest

from reput_client import AppendClient, NewMessage, QueryClient
from tests.support.cluster import Cluster, running_cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd (Debian: etcd-server)"),
    pytest.mark.timeout(600),
]
END_SECONDS_MAX = 30


def descendants_of(pid: int) -> list[int]:
    """All processes below a process."""
    children = [
        int(child)
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return children + [each for child in children for each in descendants_of(child)]


def wait_until_gone(pids: Iterable[int]) -> None:
    """Return once all have ended; fail when one lives on."""
    for pid in pids:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ended, _, _ = select.select([watched], [], [], END_SECONDS_MAX)
            assert ended, f"process {pid} lives on: {pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()!r}"
        finally:
            os.close(watched)


def test_a_cluster_stops_without_a_trace_goes_on_and_dies_without_one(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "c"
    with running_cluster(directory, replica_count=2) as cluster:
        cluster.wait_until_whole()
        processes = descendants_of(cluster.process.pid)
        assert len(processes) >= 2 * 6 + 2, "services and supervisors of two replicas, a gateway, etcd"
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
        again.process.wait(END_SECONDS_MAX)
    wait_until_gone(processes)


def test_one_replica_alone_takes_replicated_appends(tmp_path: pathlib.Path) -> None:
    with running_cluster(tmp_path / "c", replica_count=1) as cluster:
        assert cluster.wait_until_whole() == "r1"
        with AppendClient(cluster.status()["gateway"]) as client:
            (receipt,) = client.append([NewMessage("Alone", b"alone")])
        assert receipt.queue_offset == 0
