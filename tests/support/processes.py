"""The processes below one that a test started, and their end."""

import contextlib
import os
import pathlib
import select
from collections.abc import Iterable

from tests.support.waiting import WAIT_SECONDS_MAX

FIRST_NICENESS = -15


def children_of(pid: int) -> list[int]:
    """The living children of all threads of a process; a thread that has just ended has none."""
    children: list[int] = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children += map(int, (task / "children").read_text().split())
    return children


def descendants_of(pid: int) -> list[int]:
    """All living processes below a process; what has just ended has none below it."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        found = children_of(pid)
    return found + [each for child in found for each in descendants_of(child)]


def put_first(pids: Iterable[int], niceness: int = FIRST_NICENESS) -> None:
    """Let all threads of some processes, and what they begin, compute before other work of the machine, as far as root may.

    For comparisons of times: beside other tests a client waits for the processor, whoever else it waits for.
    """
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.setpriority(os.PRIO_PROCESS, int(task.name), niceness)


def wait_until_gone(pids: Iterable[int]) -> None:
    """Return once all have ended; fail when one lives on."""
    for pid in pids:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ended, _, _ = select.select([watched], [], [], WAIT_SECONDS_MAX)
            assert ended, f"process {pid} lives on: {pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()!r}"
        finally:
            os.close(watched)
