"""Memory and CPU of processes and their descendants, from /proc; runs processes, and ends them by pid."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence

STOP_SECONDS_MAX = 60.0  # a broker with a large store flushes it first
TICKS = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and its living descendants."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in pathlib.Path(f"/proc/{parent}/task").iterdir():
                found.extend(int(child) for child in (task / "children").read_text().split())
    return found


def living(pids: Sequence[int]) -> list[int]:
    """Those of the processes that still exist."""
    return [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()]


def memory_mib(pids: Sequence[int], kind: str = "Rss") -> float:
    """Total memory of processes, in MiB: `Rss`, or `Pss`, which counts a shared page once."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(f"{kind}:"):
                    total += int(line.split()[1])
    return total / 1024


def cpu_seconds(pids: Sequence[int]) -> float:
    """CPU time that processes have used so far, in user and kernel mode."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def written_mib(pids: Sequence[int]) -> float:
    """What processes have written to files so far, in MiB, counted by pages as they become dirty."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines():
                if line.startswith("write_bytes:"):
                    total += int(line.split()[1])
    return total / (1 << 20)


def thread_count(pid: int) -> int:
    """Threads of a process."""
    return len(os.listdir(f"/proc/{pid}/task"))


def end(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
    """Ends one process that was started here, and waits until it is gone."""
    if process.poll() is None:
        process.send_signal(number)
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended after the block."""
    try:
        yield process
    finally:
        end(process)


def run(command: Sequence[str], timeout_seconds: float, **options: object) -> bytes:
    """The stdout of a command.

    Raises:
        RuntimeError: it failed or took too long; with the end of its output.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    try:
        out, err = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{command[0]} took more than {timeout_seconds:g} s: {' '.join(command)}") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{(err + out)[-3000:].decode()}")
    return out


def wait_for(condition: object, what: str, seconds: float, poll_seconds: float = 0.02) -> None:
    """Returns once `condition()` is true; RuntimeError after `seconds`."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {seconds:g} s for {what}")
        time.sleep(poll_seconds)
