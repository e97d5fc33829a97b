"""Chores: done again and again, tried again after a failure, ended by a refused flush."""

import threading
from collections.abc import Callable

import pytest
import structlog

from commitlog_svc.housekeeping import Chore, Housekeeper
from store.errors import DiskFullError, FlushFailedError
from tests.support.waiting import WAIT_SECONDS_MAX


class Worker:
    """Work that fails as told and says when it was done so often."""

    def __init__(self, errors: list[Exception | None], wanted_count: int) -> None:
        self._errors = errors
        self._wanted_count = wanted_count
        self.count = 0
        self.done = threading.Event()

    def __call__(self) -> None:
        error = self._errors[self.count] if self.count < len(self._errors) else None
        self.count += 1
        if self.count >= self._wanted_count:
            self.done.set()
        if error is not None:
            raise error


def leaping_clock() -> Callable[[], float]:
    """Each look is ten seconds later: no chore ever has to wait."""
    now = [0.0]

    def look() -> float:
        now[0] += 10.0
        return now[0]

    return look


@pytest.mark.parametrize("error", [DiskFullError("no space left"), OSError(5, "EIO"), ValueError("a bug")])
def test_a_chore_that_fails_is_tried_again_said_once_and_keeps_no_other_from_its_turn(error: Exception) -> None:
    failing, other = Worker([error] * 5, 7), Worker([], 7)
    refused: list[FlushFailedError] = []
    with structlog.testing.capture_logs() as logs:
        keeper = Housekeeper([Chore("a", 1.0, failing), Chore("b", 1.0, other)], refused.append, leaping_clock())
        keeper.start()
        assert failing.done.wait(WAIT_SECONDS_MAX)
        assert other.done.wait(WAIT_SECONDS_MAX)
        keeper.close()
    assert refused == []
    assert [entry["chore"] for entry in logs if entry["event"] == "housekeeping.failed"] == ["a"]


def test_a_refused_flush_ends_all_chores() -> None:
    error = FlushFailedError("the disk refused")
    first, second = Worker([None, error], 2), Worker([], 1)
    refused: list[FlushFailedError] = []
    told = threading.Event()

    def on_flush_failed(error: FlushFailedError) -> None:
        refused.append(error)
        told.set()

    keeper = Housekeeper([Chore("a", 1.0, first), Chore("b", 1.0, second)], on_flush_failed, leaping_clock())
    keeper.start()
    assert told.wait(WAIT_SECONDS_MAX)
    keeper.close()
    assert refused == [error]
    assert (first.count, second.count) == (2, 1)


def test_a_failing_chore_without_an_interval_pauses() -> None:
    now = [0.0]
    worker = Worker([DiskFullError("no space left")], 2)
    keeper = Housekeeper([chore := Chore("a", 0.0, worker)], lambda error: None, lambda: now[0])
    keeper.start()
    while chore.next_at == 0.0:
        assert not worker.done.wait(0.01), "tried again at once"
    assert chore.next_at == 1.0
    now[0] = 1.0
    assert worker.done.wait(WAIT_SECONDS_MAX)
    keeper.close()


def test_closing_one_that_never_started_is_fine() -> None:
    Housekeeper([], lambda error: None).close()
