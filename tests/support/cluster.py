"""A running `reput cluster` for tests: etcd, replicas and a gateway, ended with the test; and producers that note answers."""

import contextlib
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from reput.commitlog.v1.commitlog_service_pb2 import GetStatusRequest
from reput_client import AppendClient, FlushMode, NewMessage, ReputClientError
from services.calling.commitlog import CommitLogClient
from services.rpcs.commitlog import GET_STATUS
from tests.support.failures import watch_log
from tests.support.waiting import wait_until

STOP_SECONDS_MAX = 60
SMALL_FILES = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(16 << 20),
    "REPUT_INDEX_HASH_SLOT_COUNT": "5000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "100000",
}


class Cluster:
    """A `reput cluster` with its status file.

    Args:
        directory: of the cluster.
        replica_count: its replicas.
        settings: `REPUT_...` environment variables.
        remoting_port: of the name server and of the remoting door, as their flags take it.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        replica_count: int = 3,
        settings: Mapping[str, str] | None = None,
        remoting_port: str = "off",
    ) -> None:
        self.directory = directory
        self.port_file = directory.with_name(f"{directory.name}.json")
        self._log_path = directory.with_name(f"{directory.name}.log")
        command = [sys.executable, "-m", "cli.main", "cluster", "--dir", str(directory), "--gateway-port", "0"]
        command += ["--replicas", str(replica_count), "--port-file", str(self.port_file)]
        command += ["--nameserver-port", remoting_port, "--remoting-port", remoting_port]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
        self._scratch = tempfile.TemporaryDirectory(prefix="reput-test-")
        environ |= {
            **SMALL_FILES,
            **(settings or {}),
            "TMPDIR": self._scratch.name,
        }  # what killed replicas leave behind
        watch_log(self._log_path)
        watch_log(directory / "logs")
        with open(self._log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ)
        try:
            wait_until(lambda: self.port_file.exists() or self.process.poll() is not None, self.log)
            assert self.process.poll() is None, f"ended with {self.process.returncode}"
        except AssertionError as error:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"reput cluster did not come up: {error}\n{self.log()}") from error

    def log(self) -> str:
        """The last lines of all processes."""
        paths = [self._log_path, *sorted((self.directory / "logs").glob("*.log"))]
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in paths if path.exists())

    def status(self) -> dict[str, Any]:
        """The status file."""
        status: dict[str, Any] = json.loads(self.port_file.read_text())
        return status

    def replicas(self) -> dict[str, dict[str, Any]]:
        """The replicas in it."""
        replicas: dict[str, dict[str, Any]] = self.status()["replicas"]
        return replicas

    def leader(self) -> str | None:
        """The name of the leader; None while there is none."""
        return next((name for name, one in self.replicas().items() if one["role"] == "leader"), None)

    def wait_for_leader(self, besides: Collection[str] = ()) -> str:
        """The name of the leader, once one leads that is none of these."""
        wait_until(lambda: self.leader() not in (None, *besides), self.log)
        leader = self.leader()
        assert leader is not None
        return leader

    def wait_until_whole(self) -> str:
        """Return once one replica leads and all are in sync; its name."""
        wait_until(self._is_whole, lambda: f"{self.replicas()}\n{self.log()}", poll_seconds=0.2)
        return self.wait_for_leader()

    def _is_whole(self) -> bool:
        replicas = self.replicas()
        leader = self.leader()
        if leader is None or any(one["role"] == "away" for one in replicas.values()):
            return False
        with contextlib.closing(CommitLogClient(replicas[leader]["address"])) as client:
            return set(client.call(GET_STATUS, GetStatusRequest(), 5).in_sync) == set(replicas)

    def kill(self, name: str) -> None:
        """Kill a replica."""
        os.kill(self.replicas()[name]["pid"], signal.SIGKILL)

    def stop(self) -> int:
        """Stop it in order; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS_MAX)


@contextlib.contextmanager
def running_cluster(
    directory: pathlib.Path,
    replica_count: int = 3,
    settings: Mapping[str, str] | None = None,
    remoting_port: str = "off",
) -> Iterator[Cluster]:
    """A cluster that is stopped after the block."""
    cluster = Cluster(directory, replica_count, settings, remoting_port)
    try:
        yield cluster
    finally:
        if cluster.process.poll() is None:
            cluster.process.send_signal(signal.SIGTERM)
            try:
                cluster.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                cluster.process.kill()
                cluster.process.wait()


class Load:
    """Producers that append one message after the other until they are stopped; an append that fails is sent again.

    Args:
        gateway: its address.
        topic: of the messages.
        thread_count: producers.

    Attributes:
        acknowledged: unique keys of messages whose append was answered as replicated.
        failures: appends that were answered with a failure.
    """

    def __init__(self, gateway: str, topic: str, thread_count: int = 4) -> None:
        self.acknowledged: list[str] = []
        self.failures: list[ReputClientError] = []
        self._gateway = gateway
        self._topic = topic
        self._answered_at: list[float] = []
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(thread_count)
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(STOP_SECONDS_MAX)
            assert not thread.is_alive()

    def wait_for(self, count: int) -> None:
        """Return once so many more appends are acknowledged."""
        target = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= target, lambda: f"{self.failures[-3:]}")

    def longest_silence_seconds(self) -> float:
        """The longest time between two acknowledgements, over all producers."""
        times = sorted(self._answered_at)
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def _run(self, number: int) -> None:
        with AppendClient(self._gateway, timeout_seconds=30.0) as client:
            count = 0
            while not self._stopping.is_set():
                key = f"{self._topic}-{number}-{count:06}"
                message = NewMessage(self._topic, key.encode(), unique_key=key, keys=[key])
                try:
                    client.append([message], flush_mode=FlushMode.REPLICATED, deduplicate=True)
                except ReputClientError as error:
                    self.failures.append(error)
                    self._stopping.wait(0.1)
                    continue
                self._answered_at.append(time.monotonic())
                self.acknowledged.append(key)
                count += 1
