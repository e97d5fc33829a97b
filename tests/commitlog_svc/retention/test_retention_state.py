"""Ages: what really passed counts, whatever the wall clock says.

Retention's memory: events that account for every missing byte, whatever a crash or a stranger did.
"""

import dataclasses
import itertools
import random
from collections import Counter
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from commitlog_svc.retention.retention_state import (
    BELIEVED_MILLIS_MAX,
    DISK_CLEAN,
    DISK_CLEAN_FORCIBLY,
    EVENT_COUNT_MAX,
    EXPIRED,
    FILE_NAME,
    MERGE_MILLIS,
    OUTSIDE,
    REASONS,
    AgeClock,
    ClockReading,
    RetentionEvent,
    RetentionState,
    add_event,
    events_that_happened,
    merge_events,
    read_boot_id,
    read_retention_state,
    write_retention_state,
)
from store.files.file_system import RealFileSystem

YEARS_10_MILLIS = 10 * 365 * 86_400_000
HOUR_MILLIS = 3_600_000


@dataclasses.dataclass
class Clocks:
    wall: int = 1_700_000_000_000
    boot: int = 50_000
    boot_id: str = "a"

    def start(self) -> AgeClock:
        return AgeClock(lambda: self.wall, lambda: self.boot, self.boot_id)


@pytest.mark.parametrize("jump_millis", [YEARS_10_MILLIS, -2 * HOUR_MILLIS, -YEARS_10_MILLIS, 59_999])
def test_a_jump_while_running_ages_nothing(jump_millis: int) -> None:
    clocks = Clocks()
    clock = clocks.start()
    clocks.boot += 1000
    clocks.wall += 1000 + jump_millis

    assert 1000 == clock.now_millis() == clock.read().age_millis


@pytest.mark.parametrize("jump_millis", [YEARS_10_MILLIS, -2 * HOUR_MILLIS])
def test_a_restart_within_one_boot_counts_what_passed_in_between(jump_millis: int) -> None:
    clocks = Clocks()
    last = clocks.start().read()
    clocks.boot += 5000
    clocks.wall += jump_millis
    clock = clocks.start()
    clock.resume(last)

    assert last.age_millis + 5000 == clock.now_millis()


@pytest.mark.parametrize(
    ("difference_millis", "believed_millis"),
    [
        (0, 0),
        (HOUR_MILLIS, HOUR_MILLIS),
        (BELIEVED_MILLIS_MAX, BELIEVED_MILLIS_MAX),
        (BELIEVED_MILLIS_MAX + 1, 0),
        (YEARS_10_MILLIS, 0),
        (-1, 0),
        (-2 * HOUR_MILLIS, 0),
    ],
)
def test_across_boots_the_wall_clock_is_believed_within_a_week(difference_millis: int, believed_millis: int) -> None:
    clocks = Clocks()
    last = clocks.start().read()
    clocks.boot, clocks.boot_id = 700, "b"
    clocks.wall += difference_millis
    clock = clocks.start()
    clock.resume(last)
    clocks.boot += 30

    assert last.age_millis + believed_millis + 30 == clock.now_millis()


def test_a_jump_of_a_minute_is_told_once_and_slow_drift_is_not() -> None:
    clocks = Clocks()
    clock = clocks.start()
    with capture_logs() as logs:
        for _ in range(100):
            clocks.boot += 600_000
            clocks.wall += 601_000
            clock.read()
    assert [] == logs

    clocks.wall -= HOUR_MILLIS
    with capture_logs() as logs:
        clock.read()
        clock.read()

    assert [("clock.jumped", -HOUR_MILLIS)] == [(line["event"], line["jump_millis"]) for line in logs]


def test_a_jump_between_two_processes_is_told() -> None:
    clocks = Clocks()
    last = clocks.start().read()
    clocks.wall += YEARS_10_MILLIS
    with capture_logs() as logs:
        clocks.start().resume(last)

    assert ["clock.jumped"] == [line["event"] for line in logs]


def test_it_never_runs_backwards_even_if_the_boot_clock_does() -> None:
    clocks = Clocks()
    clock = clocks.start()
    last = dataclasses.replace(clock.read(), age_millis=77, boot_millis=clocks.boot + 5)
    clock.resume(last)
    clocks.boot -= 1000

    assert 77 == clock.now_millis()


def test_a_system_without_a_boot_id_is_a_new_boot_each_time(tmp_path: Path) -> None:
    assert read_boot_id(tmp_path / "none") != read_boot_id(tmp_path / "none")
    (tmp_path / "id").write_text("0c2a\n")
    assert "0c2a" == read_boot_id(tmp_path / "id")


REAL = RealFileSystem()
NOW = 1_700_000_000_000


def event(begin: int, end: int, reason: str = EXPIRED, at: int = NOW, **lost: int) -> RetentionEvent:
    return RetentionEvent(at, begin, end, (end - begin) // 100, reason, lost)


def test_neighbours_of_one_kind_within_ten_minutes_are_one() -> None:
    assert (event(0, 200, at=NOW + 5),) == add_event((event(0, 100),), event(100, 200, at=NOW + 5))


@pytest.mark.parametrize(
    "other",
    [
        event(100, 200, DISK_CLEAN),
        event(100, 200, at=NOW + MERGE_MILLIS + 1),
        event(100, 200, at=NOW - 1),
        event(100, 200, index=7),
        event(300, 400),
    ],
)
def test_events_that_differ_stay_two(other: RetentionEvent) -> None:
    assert (event(0, 100), other) == add_event((event(0, 100),), other)


def holes(events: tuple[RetentionEvent, ...]) -> Counter[str]:
    """What each builder lost, in bytes, as the metrics count it: byte by byte."""
    return Counter(
        builder
        for e in events
        for builder, next_offset in e.lost_builder_next_offsets.items()
        for offset in range(e.begin_offset, e.end_offset)
        if offset >= next_offset
    )


def test_what_a_builder_lost_is_the_sum_of_both() -> None:
    first = event(0, 100, DISK_CLEAN_FORCIBLY, index=40)
    second = event(100, 200, DISK_CLEAN_FORCIBLY, at=NOW + 1, index=150)

    merged = add_event((first,), second)

    assert 1 == len(merged)
    assert {"index": 60 + 50} == holes(merged)


def test_what_was_whole_is_no_hole_when_it_is_merged_with_one() -> None:
    """Nothing new is lost by merging: the counter that pages must not rise."""
    assert {"index": 60} == holes((merge_events(event(0, 100, index=40), event(100, 300)),))
    assert {"index": 10} == holes((merge_events(event(0, 200), event(200, 300, index=290)),))


def test_merging_keeps_every_builder_s_sum() -> None:
    rng = random.Random(4711)
    events: tuple[RetentionEvent, ...] = ()
    expected: Counter[str] = Counter()
    begin = 0
    for i in range(3 * EVENT_COUNT_MAX):
        end = begin + rng.randrange(1, 60)
        builders = rng.sample(("index", "consumequeue"), rng.randrange(3))
        lost = {builder: rng.randrange(max(0, begin - 50), end + 5) for builder in builders}
        new = event(begin, end, rng.choice(REASONS), NOW + i * rng.choice((1, 2 * MERGE_MILLIS)), **lost)
        expected += holes((new,))
        events = add_event(events, new)
        assert expected == holes(events)
        begin = end


def test_the_oldest_are_merged_rather_than_forgotten() -> None:
    rng = random.Random(4711)
    events: tuple[RetentionEvent, ...] = ()
    for i in range(3 * EVENT_COUNT_MAX):
        events = add_event(events, event(i * 100, i * 100 + 100, rng.choice(REASONS), NOW + i * 2 * MERGE_MILLIS))

    assert EVENT_COUNT_MAX == len(events)
    assert 0 == events[0].begin_offset
    assert all(earlier.end_offset == later.begin_offset for earlier, later in itertools.pairwise(events))
    assert 3 * EVENT_COUNT_MAX == sum(kept.file_count for kept in events)
    assert DISK_CLEAN_FORCIBLY == events[0].reason, "a merged event says the worst"


# Events written, where the log began then, where it begins now -> events that are true.
@pytest.mark.parametrize(
    ("written", "remembered", "first_offset", "expected"),
    [
        ((), -1, 0, ()),
        ((), -1, 500, ()),  # a foreign store that does not begin at 0
        ((), 0, 0, ()),
        ((), 0, 300, (event(0, 300, OUTSIDE),)),
        ((event(0, 200),), 100, 200, (event(0, 200),)),
        ((event(0, 200),), 100, 100, (event(0, 100),)),  # killed before the second file went
        ((event(0, 100),), 0, 0, ()),  # killed before any went
        ((event(0, 100), event(100, 300, DISK_CLEAN)), 100, 200, (event(0, 100), event(100, 200, DISK_CLEAN))),
        ((event(0, 100), event(100, 200, DISK_CLEAN)), 100, 0, ()),  # brought back from a copy
        ((event(0, 100),), 0, 300, (event(0, 100), event(100, 300, OUTSIDE))),
        ((event(500, 600),), 500, 600, (event(500, 600),)),
    ],
)
def test_a_start_believes_the_files(
    written: tuple[RetentionEvent, ...], remembered: int, first_offset: int, expected: tuple[RetentionEvent, ...]
) -> None:
    assert expected == events_that_happened(written, remembered, first_offset, 100, NOW)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    events = (event(0, 100), event(100, 300, DISK_CLEAN_FORCIBLY, index=0, consumequeue=170))
    for state in (
        RetentionState(),
        RetentionState(events, 300, {300: 17, 400: 99}, ClockReading(5, "boot", 6, 7)),
    ):
        write_retention_state(REAL, tmp_path, state)
        assert state == read_retention_state(REAL, tmp_path)


def test_no_damage_stops_a_start(tmp_path: Path) -> None:
    state = RetentionState((event(0, 100, index=3),), 100, {100: 17}, ClockReading(5, "boot", 6, 7))
    write_retention_state(REAL, tmp_path, state)
    whole = (tmp_path / FILE_NAME).read_bytes()
    rng = random.Random(4711)
    texts = [whole[:size] for size in range(len(whole))]
    texts += [b"[]", b"{}", b"null", b'{"events":[{}],"first_offset":0,"files_seen_millis":{},"clock":null}']
    for junk in (b"null", b"[]", b"{}", b'"x"', b"-1", b"1e999", b"NaN"):
        texts += [whole.replace(value, junk, 1) for value in (b"5", b"100", b"[{", b'"expired"', b"{")]
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] = rng.randrange(256)
        texts.append(bytes(damaged))
    for text in texts:
        (tmp_path / FILE_NAME).write_bytes(text)
        assert isinstance(read_retention_state(REAL, tmp_path), RetentionState)
