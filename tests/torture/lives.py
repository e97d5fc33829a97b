"""Lives and deaths by the thousand: each life of `drivers.py` in a forked child of its own, with faults (`faulty_os.py`).

Theory of operation: `Lives` runs one server process that has imported everything and started no thread. For each life it
forks; the child lives on the store, tells what happened through a pipe, and ends, by itself or by its fault. So a life costs
a few milliseconds instead of an interpreter's start. The server ends with the test process, however that ends, and takes
the stores in memory with it.

    with Lives() as lives:
        told = lives.live(root, SCENARIOS["append"], faults={17: "kill"})
        assert told.was_killed and "m-000003" in told.acked

A life that does not end is killed after PATIENCE_SECONDS and counts as hanging; a quiet machine needs 0.03 s for one.
"""

import contextlib
import dataclasses
import gc
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.torture.store_check import Place

ROOT = Path(__file__).resolve().parents[2]
SHARED_MEMORY = Path("/dev/shm")
PATIENCE_SECONDS = 60.0
SLOW_SECONDS = 5.0


@dataclasses.dataclass(slots=True)
class Told:
    """What became of a life.

    Attributes:
        lines: what it said.
        exit_status: as `waitpid` gives it; negative: the signal.
        seconds: how long it took.
        hung: it had to be killed for taking too long.
    """

    lines: list[list[str]]
    exit_status: int
    seconds: float
    hung: bool

    @property
    def acked(self) -> dict[str, Place]:
        """What was acknowledged, by message id."""
        return {row[1]: Place(int(row[2]), int(row[3]), int(row[4])) for row in self.lines if row[0] == "ack"}

    @property
    def refused(self) -> dict[str, str]:
        """What was refused: the error's class by message id."""
        return {row[1]: row[2] for row in self.lines if row[0] == "refused"}

    @property
    def refused_unwritten(self) -> set[str]:
        """Those whose refusal says that nothing was written."""
        return {row[1] for row in self.lines if row[0] == "refused" and row[3] == "none"}

    @property
    def calls(self) -> list[list[str]]:
        """The trace, when it was asked for: name, path, position, size."""
        return [row[1:] for row in self.lines if row[0] == "call"]

    @property
    def was_killed(self) -> bool:
        """By its own fault."""
        return self.exit_status == -signal.SIGKILL and not self.hung

    @property
    def call_count(self) -> int:
        """Calls that change the disk, of a life that came to its end."""
        return int(self.rows("calls")[0][0])

    def rows(self, kind: str) -> list[list[str]]:
        """The lines of a kind, without the kind."""
        return [row[1:] for row in self.lines if row[0] == kind]


class Lives:
    """See the top of this file."""

    def __init__(self) -> None:
        in_memory = SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK)
        self._scratch = Path(tempfile.mkdtemp(prefix="reput-test-", dir=SHARED_MEMORY)) if in_memory else None
        environ = dict(os.environ) | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos")))}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.lives", str(self._scratch or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            cwd=ROOT,
        )

    def live(
        self,
        root: Path,
        life: Any,
        *,
        faults: Mapping[int, str] | None = None,
        seed: int = 0,
        trace: bool = False,
    ) -> Told:
        """One life on the store; returns when it is over."""
        order = {
            "root": str(root),
            "life": dataclasses.asdict(life),
            "faults": list((faults or {}).items()),
            "seed": seed,
            "trace": trace,
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(order).encode() + b"\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, "the server of lives has died"
        return Told(**json.loads(answer))

    @contextlib.contextmanager
    def directory(self, fallback: Path) -> Iterator[Path]:
        """A directory in memory, where a flush costs nothing, for the time of the block; `fallback` where there is none."""
        if self._scratch is None:
            yield fallback
            return
        path = Path(tempfile.mkdtemp(dir=self._scratch))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def __enter__(self) -> "Lives":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()  # that is its end
        self._server.wait(2 * PATIENCE_SECONDS)


def _serve(scratch: str) -> None:
    """The server: an order a line on stdin, an answer a line on what was stdout; the end of stdin is its end."""
    from tests.torture import drivers, faulty_os  # noqa: F401  # everything is imported before the first fork

    # One life here: what a process loads and prepares once is there for each fork, and no search for garbage touches it.
    with tempfile.TemporaryDirectory(prefix="reput-test-") as directory:
        drivers.live(Path(directory), drivers.SCENARIOS["append"], lambda line: None)
    assert threading.active_count() == 1, "a fork of several threads may hang"
    gc.freeze()
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        for line in sys.stdin.buffer:
            told = _fork_life(json.loads(line))
            os.write(answers, json.dumps(dataclasses.asdict(told)).encode() + b"\n")
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def _fork_life(order: dict[str, Any]) -> Told:
    reader, writer = os.pipe()
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            _child(order, writer)
        finally:
            os._exit(1)
    os.close(writer)
    parts: list[bytes] = []
    hung = False
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, begun + PATIENCE_SECONDS - time.monotonic()))
        if not ready:
            hung = True
            os.kill(pid, signal.SIGKILL)
            break
        part = os.read(reader, 1 << 16)
        if not part:
            break
        parts.append(part)
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    lines = [row.split(" ") for row in b"".join(parts).decode().splitlines()]
    return Told(lines, os.waitstatus_to_exitcode(status), time.monotonic() - begun, hung)


def _child(order: dict[str, Any], writer: int) -> None:
    from tests.torture import drivers
    from tests.torture.faulty_os import Call, FaultyOs, install

    def say(line: str) -> None:
        os.write(writer, line.encode() + b"\n")

    def on_call(_: int, call: Call) -> None:
        say(f"call {call.name} {call.path} {call.position} {call.size_bytes}")

    for number in range(3):  # what services log is not told here
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    faults = {int(number): action for number, action in order["faults"]}
    faulty = FaultyOs(order["root"], faults, order["seed"], on_call if order["trace"] else None)
    install(faulty)
    drivers.live(Path(order["root"]), drivers.Life(**order["life"]), say)
    for offence in faulty.offences:
        say(f"offence {offence}")
    say(f"calls {faulty.call_count}")
    os._exit(0)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):  # the test process has gone
        _serve(sys.argv[1])
