"""Spark in a process of its own: a session that stays warm while a row is measured and ends with the row.

    python -m benchmarks.sides.spark_side        one JSON request a line on stdin, one JSON answer a line on stdout

The tasks are in spark_tasks.py. An answer has `seconds`, the task's own values, and `worker_mib`: the peak memory of a
single Python worker during the task.
"""

import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import processes
from benchmarks.load import environment

ANSWER_SECONDS_MAX = 900.0
SAMPLE_SECONDS = 0.05
CORES = 2


class SparkSide:
    """The process, as the benchmark sees it; see `running_spark`."""

    def __init__(self, work: pathlib.Path, master: str = "") -> None:
        work.mkdir(parents=True, exist_ok=True)
        self._work = work
        with open(work / "spark.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.sides.spark_side", str(work), master],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment(),
            )  # fmt: skip

    def ask(self, task: str, **arguments: Any) -> dict[str, Any]:
        """Runs a task; returns its answer.

        Raises:
            RuntimeError: it failed, or took too long.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write((json.dumps({"task": task, **arguments}, default=str) + "\n").encode())
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_SECONDS_MAX)
        line = self.process.stdout.readline() if ready else b""
        answer: dict[str, Any] = json.loads(line) if line else {"error": "no answer"}
        if "error" in answer:
            said = (self._work / "spark.log").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{task}: {answer['error']}\n{said}")
        return answer

    def end(self) -> None:
        """Ends the process and its descendants."""
        family = processes.family(self.process.pid)
        with contextlib.suppress(BrokenPipeError):
            assert self.process.stdin is not None
            self.process.stdin.close()  # then it ends by itself, and Java with it
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(processes.STOP_SECONDS_MAX)
        processes.end(self.process)
        processes.wait_for(lambda: not processes.living(family), "Spark's processes", processes.STOP_SECONDS_MAX)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def running_spark(work: pathlib.Path, master: str = "") -> Iterator[SparkSide]:
    """A session that ends with the block.

    Args:
        work: directory for its files.
        master: of a cluster; empty: this machine alone.
    """
    side = SparkSide(work, master)
    try:
        yield side
    finally:
        side.end()


class WorkerWatch:
    """The peak memory of a single Python worker of this process's Spark, sampled while the watch is open."""

    def __init__(self) -> None:
        self.greatest_mib = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "WorkerWatch":
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopping.wait(SAMPLE_SECONDS):
            for pid in processes.family(os.getpid())[1:]:
                with contextlib.suppress(OSError):
                    command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    if command[1:2] == [b"-m"] and command[2].startswith(b"pyspark"):  # the JVM's names pyspark, too
                        self.greatest_mib = max(self.greatest_mib, processes.memory_mib([pid]))


def serve(work: pathlib.Path, master: str) -> None:
    """Answers requests until stdin ends."""
    from benchmarks.sides import spark_tasks

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output goes to stderr, so stdout has only answers
    tasks = spark_tasks.Tasks(work, CORES, master)
    try:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                function = getattr(tasks, request.pop("task"))
                with WorkerWatch() as watch:
                    start = time.perf_counter()
                    said = function(**request) or {}
                    seconds = time.perf_counter() - start
                answer = {"seconds": seconds, "worker_mib": watch.greatest_mib} | said
            except Exception as error:  # the row reports it
                answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
            print(json.dumps(answer), file=answers, flush=True)
    finally:
        tasks.end()


if __name__ == "__main__":
    serve(pathlib.Path(sys.argv[1]), sys.argv[2])
