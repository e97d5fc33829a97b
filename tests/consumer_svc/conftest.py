"""A log in memory, and lives on it that end with the test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.consumer_svc.memory_log import LogLife, ManualClock, MemoryLog


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands."""
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> MemoryLog:
    """An empty log."""
    return MemoryLog(clock)


@pytest.fixture
def begin(log: MemoryLog) -> Iterator[Callable[..., LogLife]]:
    """Begins lives on the log."""
    lives: list[LogLife] = []

    def new_life(**options: Any) -> LogLife:
        lives.append(LogLife(log, **options))
        return lives[-1]

    yield new_life
    for life in lives:
        life.close()


@pytest.fixture
def life(begin: Callable[..., LogLife]) -> LogLife:
    """A life on the empty log; three attempts for each message."""
    return begin()
