"""Memory, descriptors and threads of the processes of a shard, life by life, and the rule by which they are flat.

A life is cut into quarters of its time. It is flat when the median of its last quarter is at most FLAT_RATIO times that of its
second one and the floor of the measure: the first quarter fills caches and pools, and small numbers tremble.
"""

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import processes
from tests.support.background import Background

FLAT_RATIO = 1.1
JUDGED_SECONDS_MIN = 180.0  # a shorter life has not filled its caches
QUARTER_COUNT = 4
SAMPLE_COUNT = 600  # of a run; not more often than each second
SAMPLE_SECONDS_MIN = 1.0
OWN_MODULE = "-m"


class Measures(NamedTuple):
    """What a process takes at a moment, or a floor of each."""

    pss_mib: float
    descriptors: float
    threads: float


# A page that two processes share counts half until one of them is killed; pools grow with the first load after a failover.
FLOOR = Measures(pss_mib=24, descriptors=24, threads=12)


class Sample(NamedTuple):
    """Measures, and when (seconds)."""

    at: float
    measures: Measures


class Life(NamedTuple):
    """A process: the member of the shard, what it runs, and its number."""

    member: str
    what: str
    pid: int


def quarters(samples: Sequence[Sample]) -> list[Measures]:
    """The medians of the four quarters of a life's time; the one before where a quarter has no sample."""
    begin, end = samples[0].at, samples[-1].at
    quarter = max(end - begin, 1e-9) / QUARTER_COUNT
    found: list[Measures] = []
    for number in range(QUARTER_COUNT):
        rows = [each.measures for each in samples if min(int((each.at - begin) / quarter), QUARTER_COUNT - 1) == number]
        found.append(Measures(*map(statistics.median, zip(*rows, strict=True))) if rows else found[-1])
    return found


def growth_problems(lives: Mapping[Life, Sequence[Sample]]) -> list[str]:
    """The lives that were long enough to be judged and are not flat."""
    problems = []
    for life, samples in lives.items():
        if not is_judged(samples):
            continue
        _, second, _, last = quarters(samples)
        problems += [
            f"{life.member} {life.what} (process {life.pid}): {name} went from {before:g} to {after:g}"
            for name, before, after, floor in zip(Measures._fields, second, last, FLOOR, strict=True)
            if after > before * FLAT_RATIO + floor
        ]
    return problems


def is_judged(samples: Sequence[Sample]) -> bool:
    """Whether a life was long enough."""
    return samples[-1].at - samples[0].at >= JUDGED_SECONDS_MIN


class Watch(Background):
    """Samples the processes of members until the end of the block.

    Args:
        pid_of: the process that was started for each member, by name; a member may be away.
        members: their names.
        seconds: of the run.
    """

    def __init__(self, pid_of: Callable[[str], int], members: Iterable[str], seconds: float) -> None:
        self.lives: dict[Life, list[Sample]] = {}
        self._pid_of = pid_of
        self._members = list(members)
        self._seconds_between = max(SAMPLE_SECONDS_MIN, seconds / SAMPLE_COUNT)
        super().__init__([self._run])

    def _run(self) -> None:
        while not self.stopping.wait(self._seconds_between):
            for member in self._members:
                try:
                    pids = processes.family(self._pid_of(member))
                except AssertionError:  # it is being replaced, and the new one has not been started
                    continue
                for pid in pids:
                    with contextlib.suppress(OSError):  # it has just ended
                        self._sample(member, pid)

    def _sample(self, member: str, pid: int) -> None:
        pss_mib = processes.memory_mib([pid], "Pss")
        if not pss_mib:
            return  # it has ended and is not collected yet
        measures = Measures(pss_mib, len(os.listdir(f"/proc/{pid}/fd")), processes.thread_count(pid))
        self.lives.setdefault(Life(member, _what_runs(pid), pid), []).append(Sample(time.monotonic(), measures))


def _what_runs(pid: int) -> str:
    """The module that a process of ours runs: the first of several services that share it."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    rest = words[words.index(OWN_MODULE) + 1 :] if OWN_MODULE in words else words
    return rest[1] if rest[0] == "deploy.beside" else rest[0]
