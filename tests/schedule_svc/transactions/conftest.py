"""A log in memory, and lives on it that end with the test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.schedule_svc.transactions.lives import LogLife, MemoryLog


@pytest.fixture
def log() -> MemoryLog:
    """An empty log."""
    return MemoryLog()


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
