"""Processes that stand still: what a hung service looks like to the others."""

import os
import pathlib
import signal
import time

HALT_SECONDS_MAX = 30


def halt(pid: int) -> None:
    """Stop a process, and return once each of its threads stands still: the signal itself comes back at once."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + HALT_SECONDS_MAX
    while any(
        (task / "stat").read_text().rpartition(")")[2].split()[0] != "T"
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def resume(pid: int) -> None:
    """Let a process that was halted go on."""
    os.kill(pid, signal.SIGCONT)
