"""A log in memory, and lives on it that end with the test."""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.schedule_svc.memory_life import MemoryLife, MemoryLog
from tests.support.memory_log import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands."""
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> MemoryLog:
    """An empty log."""
    return MemoryLog(clock)


@pytest.fixture
def begin(log: MemoryLog, tmp_path: pathlib.Path) -> Iterator[Callable[..., MemoryLife]]:
    """Begins lives on the log; the one before is killed."""
    lives: list[MemoryLife] = []

    def new_life(**options: Any) -> MemoryLife:
        if lives:
            lives.pop().end(is_clean=False)
        lives.append(MemoryLife(log, tmp_path / "timers", **options))
        return lives[-1]

    yield new_life
    for life in lives:
        life.end(is_clean=False)


@pytest.fixture
def life(begin: Callable[..., MemoryLife]) -> MemoryLife:
    """A life on the empty log."""
    return begin()
