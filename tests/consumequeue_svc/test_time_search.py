"""SearchOffset against brute force, with equal times, and against what the real broker answered."""

import bisect
import random

import pytest

from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.time_search import Boundary, search_offset
from store.derive.dispatch_columns import DispatchColumns
from store.files.file_system import RealFileSystem
from tests.support.dispatches import make_request, requests_of
from tests.support.fixture_stores import read_rows
from tests.support.readers import QueueReader


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
            found = search_offset(units, log_first, time, boundary, read_times)
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
        )
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
        )
        assert found == row["offset"]
