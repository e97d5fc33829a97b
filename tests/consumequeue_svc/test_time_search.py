"""SearchOffset against brute force, with equal times, and against what the real broker answered."""

import bisect
import random

import pytest

from consumequeue_svc import time_search
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.time_search import (
    RUN_COUNT_MAX,
    UNSEEN,
    Boundary,
    RisingRun,
    RisingRuns,
    runs_of_state,
    search_offset,
)
from store.derive.dispatch_columns import DispatchColumns
from store.files.file_system import RealFileSystem
from tests.support.dispatches import make_request, requests_of
from tests.support.fixture_stores import read_rows
from tests.support.readers import QueueReader

RISING = (RisingRun(0, 0, 1 << 62),)


def brute_force(positions, times, minimum, maximum, time, boundary):
    if boundary is Boundary.LOWER:
        at = bisect.bisect_left(times, time)
        return positions[at] if at < len(times) else maximum
    at = bisect.bisect_right(times, time)
    return positions[at - 1] if at else minimum


@pytest.mark.parametrize("boundary", Boundary)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 63, 64, 65, 128, 1000, pytest.param(5000, marks=pytest.mark.long)])
def test_any_time_in_queues_of_any_length(tmp_path, count, boundary):
    random_ = random.Random(count)
    times = sorted(random_.choices(range(1000, 1000 + max(count // 3, 2) * 2, 2), k=count))
    table = ConsumeQueueTable(tmp_path, RealFileSystem(), 20 * 50)
    table.apply(DispatchColumns.of([make_request(n) for n in range(count)] or [make_request(0, sys_flag=4)]))
    if not count:
        return
    units = table.queue("orders", 0).units
    rounds = 0

    def read_times(found):
        nonlocal rounds
        rounds += 1
        return [times[unit.commit_log_offset // 100] for unit in found]

    for log_first in {0, count // 3 * 100, (count - 1) * 100}:
        first = log_first // 100
        for time in {0, *times[:: max(1, count // 25)], *(t + 1 for t in times[:: max(1, count // 25)]), 10**9}:
            rounds = 0
            found = search_offset(units, log_first, time, boundary, read_times, RISING).queue_offset
            wanted = brute_force(range(first, count), times[first:], first, count, time, boundary)
            assert found == wanted
            assert rounds <= 4


@pytest.mark.parametrize("boundary", Boundary)
def test_fillers_in_between_are_stepped_over(tmp_path, boundary):
    table = ConsumeQueueTable(tmp_path, RealFileSystem(), 20 * 50)
    positions = [7, 8, 20, 21, 150, 400]
    table.apply(DispatchColumns.of([make_request(n, queue_offset=position) for n, position in enumerate(positions)]))
    times = [10, 10, 20, 30, 30, 40]

    for time in range(5, 45):
        found = search_offset(
            table.queue("orders", 0).units,
            0,
            time,
            boundary,
            lambda us: [times[u.commit_log_offset // 100] for u in us],
            RISING,
        ).queue_offset
        assert found == brute_force(positions, times, 7, 401, time, boundary)


def test_the_brokers_own_answers(broker_store):
    """All 96 rows agree with brute force, so none needs an exception."""
    times = {r.commit_log_offset: r.store_time_millis for r in requests_of(broker_store)}
    reader = QueueReader(broker_store)
    rows = [row for row in read_rows("broker.queries.jsonl") if row["mode"] == "offset_for_time"]
    assert len(rows) == 96

    for row in rows:
        units = reader.queue(row["topic"], row["queue_id"])
        found = search_offset(
            units, 0, row["timestamp"], Boundary.LOWER, lambda us: [times[u.commit_log_offset] for u in us]
        ).queue_offset
        assert found == row["offset"]


def first_or_last(times, minimum, time, boundary):
    """By the contract: the first message stored at or after a time, or the last at or before it."""
    numbers = range(minimum, len(times))
    if boundary is Boundary.LOWER:
        return next((n for n in numbers if times[n] >= time), len(times))
    return next((n for n in reversed(numbers) if times[n] <= time), minimum)


def falling_times(random_, count):
    """A clock that is set back now and then, by a little and by much, and one wild record."""
    now, times = 1_000_000, []
    for _ in range(count):
        now += random_.choice((0, 0, 1, 3))
        if random_.random() < 0.02:
            now -= random_.choice((1, 5, 500))
        times.append(now)
    times[count // 3] = 2_524_608_000_000  # the year 2050
    return times


@pytest.mark.parametrize("boundary", Boundary)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_seen", [True, False])
def test_store_times_that_fall_hide_no_message_from_a_search_by_time(tmp_path, boundary, seed, is_seen):
    """Two queues share the log, so that a run begins at a record of the other one, too."""
    random_ = random.Random(seed)
    count = random_.choice((5, 64, 130, 300))
    times = falling_times(random_, count)
    queue_of = [random_.randrange(2) for _ in range(count)]
    next_offsets = [0, 0]
    requests = []
    for number, queue_id in enumerate(queue_of):
        request = make_request(
            number, queue_id=queue_id, queue_offset=next_offsets[queue_id], time_millis=times[number]
        )
        requests.append(request)
        next_offsets[queue_id] += 1
    table = ConsumeQueueTable(tmp_path, RealFileSystem(), 20 * 50)
    runs = RisingRuns()
    for begin in range(0, count, 7):
        columns = DispatchColumns.of(requests[begin : begin + 7])
        runs.note(columns)
        table.apply(columns)
    assert runs_of_state(runs.state()) == runs.runs
    for queue_id in {*queue_of}:
        mine = [n for n in range(count) if queue_of[n] == queue_id]
        own_times = [times[n] for n in mine]
        for log_first in {0, count // 2 * 100}:
            minimum = sum(1 for n in mine if n * 100 < log_first)
            if minimum == len(mine):
                continue
            for time in {
                0,
                1 << 45,
                *(t + step for t in random_.sample(own_times, min(20, len(mine))) for step in (-1, 0, 1)),
            }:
                found = search_offset(
                    table.queue("orders", queue_id).units,
                    log_first,
                    time,
                    boundary,
                    lambda units: [times[unit.commit_log_offset // 100] for unit in units],
                    runs.runs if is_seen else (UNSEEN,),
                )
                assert found == (first_or_last(own_times, minimum, time, boundary), True), (queue_id, log_first, time)


def test_a_long_queue_that_was_not_seen_says_that_the_position_is_not_proven(tmp_path, monkeypatch):
    monkeypatch.setattr(time_search, "LINEAR_COUNT_MAX", 99)
    table = ConsumeQueueTable(tmp_path, RealFileSystem(), 20 * 50)
    table.apply(DispatchColumns.of([make_request(n) for n in range(100)]))
    units = table.queue("orders", 0).units
    found = search_offset(units, 0, 50, Boundary.LOWER, lambda us: [u.commit_log_offset // 100 for u in us])
    assert found == (50, False)


def test_more_falls_than_are_kept_make_the_rest_unproven_and_never_wrong():
    runs = RisingRuns()
    requests = [make_request(n, time_millis=10_000_000 - n) for n in range(RUN_COUNT_MAX + 50)]
    for begin in range(0, len(requests), 100):
        runs.note(DispatchColumns.of(requests[begin : begin + 100]))
    assert len(runs.runs) == RUN_COUNT_MAX
    assert [run.rises for run in runs.runs[-2:]] == [True, False]
    runs.forget_before(500 * 100 + 1)
    assert runs.runs[0].begin_offset == 500 * 100
    runs.cut(700 * 100)
    assert runs.runs[-1].begin_offset == 699 * 100
