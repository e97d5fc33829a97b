"""A Spark standalone cluster on loopback: a master and workers as processes of their own, gone after the block.

The workers may share no directory with the driver: then each of them sees an empty one in its place, a mount of its own.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import processes
from pipeline.spark_session import java_home
from tests.pipeline.spark_home import spark_environment
from tests.support.ports import free_port
from tests.support.waiting import WAIT_SECONDS_MAX

WORKER_MEMORY = "1g"
EXECUTOR = b"CoarseGrainedExecutorBackend"
# `$0` is hidden from the command that follows, by an empty file system that nobody else sees.
HIDE = ("unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')


def can_hide() -> bool:
    """Whether this machine lets a process have mounts of its own."""
    try:
        return subprocess.run([*HIDE[:-2], "-c", "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class Cluster:
    """A running one.

    Args:
        work: for logs and the workers' own files.
        hidden: a directory that the workers, and so executors, do not see.
        further: more of the environment of everything that is started from here.

    Attributes:
        work: as given.
        hidden: as given.
    """

    def __init__(self, work: Path, hidden: Path | None = None, further: Mapping[str, str] | None = None) -> None:
        self.work = work
        self.hidden = hidden
        self._further = dict(further or {})
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self.log = work / "master.log"

    def environment(self) -> dict[str, str]:
        """For everything that is started from here: only this cluster's settings, nothing but loopback."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return (
            kept
            | spark_environment()
            | {
                "JAVA_HOME": str(java_home()),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LOCAL_DIRS": str(self.work / "local"),
                "PYSPARK_PYTHON": sys.executable,
                **self._further,
            }
        )

    def start(self, worker_count: int) -> None:
        """Start it; returns when all workers are registered."""
        self._spark_class("master", "Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        self._wait(lambda: "I have been elected leader" in self._text(self.log), "the master")
        for number in range(worker_count):
            self._spark_class(
                f"worker-{number}", "Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1",
                "--memory", WORKER_MEMORY, "--work-dir", str(self.work / f"worker-{number}"), self.url,
            )  # fmt: skip
        self._wait(lambda: self._text(self.log).count("Registering worker") == worker_count, "the workers")

    def worker_ports(self) -> set[str]:
        """Ports of the workers that executors of the last application ran on."""
        launched = re.findall(r"Launching executor (\S+)/\d+ on worker worker-\S+-(\d+)", self._text(self.log))
        return {port for application, port in launched if application == launched[-1][0]}

    def executors(self) -> list[list[int]]:
        """The process ids of the executors of each worker that is alive."""
        found = []
        for worker in self._workers:
            family = processes.family(worker.pid) if worker.poll() is None else []
            found.append([pid for pid in family if EXECUTOR in _command(pid)])
        return found

    def kill_worker(self, number: int) -> None:
        """Kill a worker; its executors end with it."""
        self._workers[number].kill()
        self._workers[number].wait()

    @property
    def _workers(self) -> list["subprocess.Popen[bytes]"]:
        return self._processes[1:]

    def stop(self) -> None:
        """End all of it by process id, executors first with their workers."""
        family = [pid for process in self._processes for pid in processes.family(process.pid)]
        for process in reversed(self._processes):
            processes.end(process)
        processes.wait_for(lambda: not processes.living(family), "the cluster's processes", processes.STOP_SECONDS_MAX)

    def _spark_class(self, name: str, kind: str, *arguments: str) -> None:
        environment = self.environment()
        command = [
            f"{environment['SPARK_HOME']}/bin/spark-class",
            f"org.apache.spark.deploy.{kind.lower()}.{kind}",
            *arguments,
        ]
        if self.hidden is not None and kind == "Worker":
            command = [*HIDE, str(self.hidden), *command]
        settings: Mapping[str, str] = {
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_DAEMON_JAVA_OPTS": environment["SPARK_SUBMIT_OPTS"],
            "SPARK_NO_DAEMONIZE": "1",
        }
        with open(self.work / f"{name}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment | settings)
            )

    def _wait(self, condition: object, what: str) -> None:
        def is_done() -> bool:
            for process in self._processes:
                if process.poll() is not None:
                    logs = "\n".join(self._text(path)[-2000:] for path in self.work.glob("*.log"))
                    raise RuntimeError(f"{what} ended with {process.returncode}:\n{logs}")
            assert callable(condition)
            return bool(condition())

        processes.wait_for(is_done, what, WAIT_SECONDS_MAX, poll_seconds=0.1)

    @staticmethod
    def _text(path: Path) -> str:
        return path.read_text(errors="replace") if path.exists() else ""


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextlib.contextmanager
def running_cluster(
    work: Path, worker_count: int = 2, hidden: Path | None = None, further: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """A cluster that is gone after the block; see `Cluster`."""
    work.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(work, hidden, further)
    try:
        cluster.start(worker_count)
        yield cluster
    finally:
        cluster.stop()
