"""A Spark standalone cluster on loopback: a master and workers as processes of their own, gone after the block."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark

from benchmarks import processes
from pipeline.java_home import java_home
from tests.support.ports import free_port

HOME = Path(pyspark.__file__).parent
START_SECONDS_MAX = 90.0
WORKER_MEMORY = "1g"


class Cluster:
    """A running one.

    Args:
        work: for logs and the workers' own files.
    """

    def __init__(self, work: Path) -> None:
        self._work = work
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self.log = work / "master.log"

    def environment(self) -> dict[str, str]:
        """For everything that is started from here: only this cluster's settings, nothing but loopback."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return kept | {
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._work / "local"),
            "PYSPARK_PYTHON": sys.executable,
        }

    def start(self, worker_count: int) -> None:
        """Start it; returns when all workers are registered."""
        self._spark_class("master", "Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        self._wait(lambda: "I have been elected leader" in self._text(self.log), "the master")
        for number in range(worker_count):
            self._spark_class(
                f"worker-{number}", "Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1",
                "--memory", WORKER_MEMORY, "--work-dir", str(self._work / f"worker-{number}"), self.url,
            )  # fmt: skip
        self._wait(lambda: self._text(self.log).count("Registering worker") == worker_count, "the workers")

    def worker_ports(self) -> set[str]:
        """Ports of the workers that executors of the last application ran on."""
        return set(re.findall(r"Launching executor \S+ on worker worker-\S+-(\d+)", self._text(self.log)))

    def stop(self) -> None:
        """End all of it by process id, executors first with their workers."""
        family = [pid for process in self._processes for pid in processes.family(process.pid)]
        for process in reversed(self._processes):
            processes.end(process)
        processes.wait_for(lambda: not processes.living(family), "the cluster's processes", processes.STOP_SECONDS_MAX)

    def _spark_class(self, name: str, kind: str, *arguments: str) -> None:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}", *arguments]
        settings: Mapping[str, str] = {"SPARK_DAEMON_MEMORY": "512m", "SPARK_NO_DAEMONIZE": "1"}
        with open(self._work / f"{name}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment() | settings
                )
            )

    def _wait(self, condition: object, what: str) -> None:
        def is_done() -> bool:
            for process in self._processes:
                if process.poll() is not None:
                    logs = "\n".join(self._text(path)[-2000:] for path in self._work.glob("*.log"))
                    raise RuntimeError(f"{what} ended with {process.returncode}:\n{logs}")
            assert callable(condition)
            return bool(condition())

        processes.wait_for(is_done, what, START_SECONDS_MAX, poll_seconds=0.1)

    @staticmethod
    def _text(path: Path) -> str:
        return path.read_text(errors="replace") if path.exists() else ""


@contextlib.contextmanager
def running_cluster(work: Path, worker_count: int = 2) -> Iterator[Cluster]:
    """A cluster that is gone after the block."""
    work.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(work)
    try:
        cluster.start(worker_count)
        yield cluster
    finally:
        cluster.stop()
