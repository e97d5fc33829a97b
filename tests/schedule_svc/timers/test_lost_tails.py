"""The log loses records that were written and not confirmed: what they said of timers does not count, and no timer is lost.

A power cut takes what was not flushed, a new leader what was not replicated. Reput shows neither: `MemoryLife.follow` stands
for what it has shown.
"""

import pathlib
import shutil
from collections.abc import Callable

import pytest

from schedule_svc.timers import timer_index
from tests.schedule_svc.memory_life import ROLL_AFTER_MILLIS, TARGET, MemoryLife, MemoryLog, timed
from tests.support.memory_log import START_MILLIS, ManualClock
from tests.support.waiting import WAIT_SECONDS_MAX

COUNT = 20
FAR_MILLIS = START_MILLIS + 100_000_000


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written and merged after a few messages."""
    monkeypatch.setattr(timer_index, "MEMORY_COUNT_MAX", 8)
    monkeypatch.setattr(timer_index, "FRESH_COUNT_MAX", 3)


def send(log: MemoryLog, due_millis: int) -> None:
    """COUNT messages with one time."""
    log.write([timed(f"t{number}", due_millis) for number in range(COUNT)])


def send_far(log: MemoryLog) -> None:
    """As many messages as the next file needs."""
    log.write([timed(f"far{number}", FAR_MILLIS + number) for number in range(9)])


def deliver(life: MemoryLife) -> None:
    """Append what is due."""
    assert life.writer is not None
    life.kinds.timers.work()
    life.writer.newest().result(WAIT_SECONDS_MAX)


def bodies_after(log: MemoryLog, life: MemoryLife) -> list[str]:
    """What was delivered in the end, before the far messages."""
    life.work()
    life.work()
    return sorted(message.body.decode() for message in log.delivered())


ALL = sorted(f"t{number}" for number in range(COUNT))


@pytest.mark.parametrize("end", ["kill", "stop", "files lost"])
def test_timers_whose_delivery_is_lost_with_the_tail_of_the_log_are_still_in_the_files(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock, tmp_path: pathlib.Path, end: str
) -> None:
    life = begin()
    send(log, START_MILLIS + 1_000)
    life.work()
    send_far(log)
    confirmed_end = log.end
    clock.now += 2_000
    life.follow()
    deliver(life)
    assert len(list(log.delivered())) == COUNT
    life.kinds.reader.work()  # new files, without those that were delivered
    if end == "stop":
        life.end(is_clean=True)
    log.cut(confirmed_end)
    if end == "files lost":
        shutil.rmtree(tmp_path / "timers")
    life = begin()
    clock.now += 60_000
    assert bodies_after(log, life) == ALL


def test_timers_whose_roll_is_lost_with_the_tail_of_the_log_are_still_in_the_files(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock
) -> None:
    life = begin()
    due_millis = START_MILLIS + 5 * 3_600_000
    send(log, due_millis)
    life.work()
    clock.now += ROLL_AFTER_MILLIS + 1_000
    life.follow()
    confirmed_end = log.end
    life.kinds.reader.work()
    assert log.end > confirmed_end
    log.cut(confirmed_end)
    life = begin()
    clock.now = due_millis + 60_000
    assert bodies_after(log, life) == ALL


def test_a_timer_whose_recall_is_lost_with_the_tail_of_the_log_is_still_in_the_files(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock
) -> None:
    life = begin()
    send(log, START_MILLIS + 1_000)
    life.work()
    send_far(log)
    confirmed_end = log.end
    life.follow()
    log.recent = None  # Reput does not show what follows
    for number in range(COUNT):
        life.kinds.recalls.recall(TARGET, f"t{number}", START_MILLIS + 1_000)
    clock.now += 2_000
    deliver(life)  # it takes those that were recalled, and delivers none
    life.kinds.reader.work()
    log.cut(confirmed_end)
    life = begin()
    assert bodies_after(log, life) == ALL


def test_files_count_when_reput_has_shown_what_they_rely_on(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock
) -> None:
    """Nothing is read again from then on, however often the life ends."""
    life = begin()
    send(log, START_MILLIS + 1_000)
    life.work()
    send_far(log)
    clock.now += 2_000
    life.follow()
    deliver(life)
    life.kinds.reader.work()
    life.follow()
    life.kinds.reader.work()
    index = begin().kinds.timers.book.index
    assert (index.next_queue_offset, index.count()) == (COUNT + 9, 9)


def test_a_life_whose_log_leads_no_more_has_its_old_files_count(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock
) -> None:
    """The records of another leader may lie where its own were: to hear of that place proves nothing."""
    life = begin()
    send(log, START_MILLIS + 1_000)
    life.work()
    send_far(log)
    confirmed_end = log.end
    clock.now += 2_000
    life.follow()
    deliver(life)
    life.kinds.reader.work()
    written_end = log.end
    log.cut(confirmed_end)
    while log.end < written_end:
        log.send("of another leader")
    life.leads = False
    life.follow()
    life.kinds.reader.work()
    life = begin()
    clock.now += 60_000
    assert bodies_after(log, life) == ALL


def test_a_reader_stops_for_a_while_when_much_is_in_memory_and_the_files_wait_for_the_log(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_index, "WAIT_COUNT_MAX", 30)
    monkeypatch.setattr("schedule_svc.timers.timer_reader.PAGE_COUNT_MAX", 10)
    life = begin()
    send(log, START_MILLIS + 1_000)
    life.work()
    log.write([timed(f"far{number}", FAR_MILLIS) for number in range(100)])
    clock.now += 2_000
    deliver(life)
    index = life.kinds.timers.book.index
    for _ in range(9):
        life.kinds.reader.work()
    assert COUNT + 30 <= index.next_queue_offset <= COUNT + 50
    life.follow()
    for _ in range(9):
        life.kinds.reader.work()
    assert index.next_queue_offset == COUNT + 100
