"""Stores for lives to begin with, and the judgement after the last one; and how long one test of them may take."""

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.torture.amount import level
from tests.torture.drivers import CHECK_LAYOUT, Life, message_id
from tests.torture.lives import SLOW_SECONDS, Lives, Told
from tests.torture.store_check import HEAD, Place, check_store, read_frames

TIME_LIMIT = pytest.mark.timeout(12 * 3600 if level() == "full" else 600)
LAST_LIFE = Life(first=900, count=2, turn_every=2)
LOADED_SECONDS = 4 * SLOW_SECONDS  # what a machine with more work than cores may make of 5 s


@dataclass(slots=True)
class History:
    """What the lives of one store have said so far.

    Attributes:
        acked: by message id.
        attempted: every id sent.
        refused: those whose refusal said that nothing was written.
    """

    acked: dict[str, Place] = field(default_factory=dict)
    attempted: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)

    def add(self, life: Life, told: Told) -> None:
        """One life more."""
        self.acked |= told.acked
        self.attempted.update(message_id(number) for number in range(life.first, life.first + life.count))
        self.refused |= told.refused_unwritten

    def copy(self) -> "History":
        """The same, to go on separately."""
        return History(dict(self.acked), set(self.attempted), set(self.refused))


def make_template(lives: Lives, scenario: str, root: Path) -> History:
    """The store that a scenario begins with; for most there is none."""
    history = History()
    before = {
        "truncate": Life(count=9, turn_every=4, is_clean_end=False),
        "recovery": Life(count=30, file_size_bytes=4096, body_bytes=700, turn_every=0, is_clean_end=False),
        "expiry": Life(count=14, file_size_bytes=4096, body_bytes=1200, turn_every=7, expires=True, is_clean_end=False),
    }.get(scenario)
    if before is not None:
        told = lives.live(root, before)
        assert len(told.acked) == before.count, told.lines
        history.add(before, told)
    if scenario == "truncate":
        tear_tail(root)
    return history


def tear_tail(root: Path) -> None:
    """Leaves the beginning of a large record behind the end of the log: more than the next record will overwrite."""
    frames = read_frames(root, [])
    end = frames[-1].commit_log_offset + frames[-1].size_bytes
    path = max(path for path in (root / "commitlog").iterdir() if int(path.name) <= end)
    at, size = end - int(path.name), path.stat().st_size
    whole_bytes = size - at - 8  # the largest that fits there
    with path.open("r+b") as file:
        file.seek(frames[-1].commit_log_offset - int(path.name))
        head = bytearray(file.read(HEAD.size))
        head[:4] = whole_bytes.to_bytes(4, "big")
        head[28:36] = end.to_bytes(8, "big")
        file.seek(at)
        file.write(head + b"torn" * ((whole_bytes * 3 // 4 - len(head)) // 4))


def copy_of(template: Path, target: Path) -> Path:
    """A fresh copy of a store, or nothing when there is none to copy."""
    shutil.rmtree(target, ignore_errors=True)
    if template.exists():
        shutil.copytree(template, target)
    return target


def judge(lives: Lives, root: Path, history: History, about: str, last: Life = LAST_LIFE) -> None:
    """One more life without faults: it recovers, appends, catches up and closes; then everything must be right."""
    told = lives.live(root, last)
    history.add(last, told)
    unwanted = [row for row in told.lines if row[0] not in ("ack", "recovered", "state", "done", "calls")]
    assert not unwanted, f"{about}: the restart says {unwanted}"
    assert len(told.acked) == last.count, f"{about}: the restart did not take new records: {told.lines}"
    assert ["state", "serving"] in told.lines, about
    assert told.seconds < LOADED_SECONDS, f"{about}: the restart took {told.seconds:.1f} s"
    problems = check_store(
        root, acked=history.acked, attempted=history.attempted, refused=history.refused, layout=CHECK_LAYOUT
    )
    assert not problems, f"{about}:\n" + "\n".join(problems)


def check_life(told: Told, about: str) -> None:
    """A life may end by its fault or by itself, but it neither hangs nor leaks errors, nor flushes what was refused."""
    assert not told.hung, f"{about}: hangs, after {told.lines[-1:]}"
    assert told.seconds < LOADED_SECONDS, f"{about}: took {told.seconds:.1f} s"
    assert not told.rows("stray"), f"{about}: {told.rows('stray')}"
    assert not told.rows("offence"), f"{about}: {told.rows('offence')}"


def choose(total: int, count: int, seed: int) -> list[int]:
    """`count` of the numbers 1..total, spread evenly from a random start; all of them when count reaches total."""
    if count >= total:
        return list(range(1, total + 1))
    start = random.Random(seed).random()
    return sorted({1 + int((start + n) * total / count) % total for n in range(count)})
