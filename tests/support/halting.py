"""Processes that stand still: what a hung service looks like to the others."""

import contextlib
import os
import pathlib
import signal

from tests.support.waiting import wait_until


def halt(pid: int) -> None:
    """Stop a process, and return once each of its threads stands still: the signal itself comes back at once."""
    os.kill(pid, signal.SIGSTOP)
    tasks = pathlib.Path(f"/proc/{pid}/task")

    def is_halted(task: pathlib.Path) -> bool:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
        return True

    def stands_still() -> bool:
        return all(is_halted(task) for task in tasks.iterdir())

    wait_until(stands_still, f"process {pid} stands still", poll_seconds=0.001)


def resume(pid: int) -> None:
    """Let a process that was halted go on."""
    os.kill(pid, signal.SIGCONT)
