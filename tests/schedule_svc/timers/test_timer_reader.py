"""The reader of the timer topic: how much it does at once, and what it does without room for its files."""

import pathlib
import shutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from reput.schedule.v1 import schedule_service_pb2 as pb
from schedule_svc.servicer import ScheduleServicer
from schedule_svc.timers import roller, timer_index, timer_reader
from schedule_svc.timers.timer_reader import FILES_AGAIN_MILLIS
from schedule_svc.transactions.checker import CheckGateways
from services.following.follower_process import FollowerState
from tests.schedule_svc.memory_life import ROLL_AFTER_MILLIS, MemoryLife, MemoryLog, timed
from tests.support.memory_log import START_MILLIS, ManualClock

HOUR_MILLIS = 3_600_000


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and files are small."""
    monkeypatch.setattr(timer_reader, "PAGE_COUNT_MAX", 10)
    monkeypatch.setattr(timer_reader, "WORK_PAGE_COUNT", 3)
    monkeypatch.setattr(roller, "PASS_COUNT_MAX", 10)
    monkeypatch.setattr(timer_index, "MEMORY_COUNT_MAX", 8)
    monkeypatch.setattr(timer_index, "FRESH_COUNT_MAX", 3)


def test_after_lost_files_a_call_reads_some_pages_and_is_called_again_at_once(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock
) -> None:
    log.write([timed(f"t{number}", START_MILLIS + HOUR_MILLIS) for number in range(75)])
    life = begin()
    index = life.kinds.timers.book.index
    ends = []
    while not life.kinds.timers.book.is_known:
        assert life.kinds.reader.work() <= clock.now or index.next_queue_offset == 75
        ends.append(index.next_queue_offset)
    assert ends == [30, 60, 75]


def test_a_call_rolls_some_old_records_and_is_called_again_at_once(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock
) -> None:
    life = begin()
    log.write([timed(f"t{number}", START_MILLIS + HOUR_MILLIS) for number in range(25)])
    life.work()
    clock.now += ROLL_AFTER_MILLIS + 1_000
    rolled = []
    while life.kinds.reader.work() <= clock.now:
        rolled.append(sum(message.queue_offset >= 25 for message in log.written))
        life.follow()  # the next ones when Reput has shown those
    assert rolled[0] == 10
    assert sum(message.queue_offset >= 25 for message in log.written) == 25


def last_error(life: MemoryLife) -> str:
    """What the status says."""
    servicer = ScheduleServicer(life.progress, CheckGateways(), lambda: False)
    servicer.state = lambda: FollowerState("serving", 0, "")
    servicer.open(life.kinds)
    context: Any = SimpleNamespace()
    return servicer.GetStatus(pb.GetStatusRequest(), context).last_error


def fill_disk(directory: pathlib.Path) -> None:
    """No file can be written there."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.write_text("in the way")


@pytest.mark.parametrize("is_full_at_the_start", [False, True])
def test_without_room_for_its_files_timers_are_kept_in_memory_and_delivered(
    log: MemoryLog,
    begin: Callable[..., MemoryLife],
    clock: ManualClock,
    tmp_path: pathlib.Path,
    is_full_at_the_start: bool,
) -> None:
    directory = tmp_path / "timers"
    if is_full_at_the_start:
        log.write([timed(f"a{number}", START_MILLIS + number * 100 + 1) for number in range(40)])
        begin().work()
        fill_disk(directory)
        life = begin()
    else:
        life = begin()
        fill_disk(directory)
        log.write([timed(f"a{number}", START_MILLIS + number * 100 + 1) for number in range(40)])
    log.write([timed(f"b{number}", START_MILLIS + HOUR_MILLIS + number) for number in range(40)])
    for _ in range(4):
        life.kinds.reader.work()  # raises nothing, and is not slowed by it
    assert life.kinds.timers.book.is_known
    assert "their files cannot be written" in last_error(life)
    clock.now += 10_000
    life.work()
    assert len({message.unique_key for message in log.delivered()}) == len(list(log.delivered())) == 40
    # It goes on when there is room again.
    directory.unlink()
    clock.now += FILES_AGAIN_MILLIS
    life.kinds.reader.work()
    assert sum(1 for _ in directory.glob("*.run")) >= 1
    assert last_error(life) == ""
    life = begin()
    assert life.kinds.timers.book.index.next_queue_offset == 80  # nothing is read again
    clock.now += HOUR_MILLIS
    life.work()
    assert len({message.unique_key for message in log.delivered()}) == len(list(log.delivered())) == 80


def test_old_records_are_stored_again_once_while_files_cannot_be_written(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock, tmp_path: pathlib.Path
) -> None:
    life = begin()
    log.write([timed(f"t{number}", START_MILLIS + HOUR_MILLIS) for number in range(25)])
    life.work()
    fill_disk(tmp_path / "timers")
    clock.now += ROLL_AFTER_MILLIS + 1_000
    for _ in range(9):
        life.work()
        clock.now += FILES_AGAIN_MILLIS
    (tmp_path / "timers").unlink()
    clock.now += HOUR_MILLIS
    life.work()
    assert len({message.unique_key for message in log.delivered()}) == len(list(log.delivered())) == 25


def test_entries_in_memory_are_merged_while_files_cannot_be_written(
    log: MemoryLog, begin: Callable[..., MemoryLife], tmp_path: pathlib.Path
) -> None:
    life = begin()
    fill_disk(tmp_path / "timers")
    log.write([timed(f"t{number}", START_MILLIS + HOUR_MILLIS + number) for number in range(300)])
    for _ in range(11):
        life.kinds.reader.work()
    index = life.kinds.timers.book.index
    assert (index.count(), index.next_queue_offset) == (300, 300)
    assert len(index._all_runs) <= 8  # of 30 pages: what is due is looked for in all of them
