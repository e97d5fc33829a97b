"""Queue files behind the log's front go, a few a second, and what is left says the right range at once."""

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from consumequeue_svc.servicer import ConsumeQueueServicer
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from store.errors import OffsetOutOfRangeError
from tests.consumequeue_svc.test_servicer import Context
from tests.support.builders import Clock, follow, open_queues, queue_bytes
from tests.support.dispatches import make_request

UNITS_PER_FILE = 20
REQUESTS = [make_request(n, queue_id=n % 2, queue_offset=n // 2) for n in range(130)]  # 65 units each: 4 files


def file_names(root, queue_id=0):
    return sorted(name.rpartition("/")[2] for name in queue_bytes(root) if f"/{queue_id}/" in name)


def tick(builder, clock, first):
    clock.seconds += 1
    builder.apply([], REQUESTS[-1].next_offset, first, REQUESTS[-1].next_offset)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def builder(tmp_path, clock):
    builder = open_queues(tmp_path, REQUESTS, clock=clock)
    follow(builder, REQUESTS)
    return builder


# The unit n of queue 0 is the record 2n at byte 200 n.
@pytest.mark.parametrize(
    ("first", "file_count", "min_offset"),
    [
        (0, 4, 0),
        (200, 4, 1),
        (3_800, 4, 19),
        (3_801, 3, 20),
        (4_000, 3, 20),
        (4_001, 3, 21),
        (12_000, 1, 60),
        (13_000, 1, 65),
    ],
)
def test_files_all_of_whose_units_point_before_the_log_go_but_never_the_last(
    tmp_path, builder, clock, first, file_count, min_offset
):
    tick(builder, clock, first)

    assert file_names(tmp_path) == [f"{n * 400:020d}" for n in range(4)][4 - file_count :]
    units = builder._table.queue("orders", 0).units
    assert (units.min_offset(first), units.end) == (min_offset, 65)
    assert units.begin == (4 - file_count) * UNITS_PER_FILE


def test_ranges_are_right_before_any_file_is_gone(tmp_path, builder, clock):
    """min offsets follow the log's front, not the files."""
    servicer = ConsumeQueueServicer(builder.progress, lambda units, _: [u.commit_log_offset for u in units])
    servicer.open(builder._table)
    builder.progress.see_log(5_000, REQUESTS[-1].next_offset)

    queues = servicer.ListQueues(pb.ListQueuesRequest(), None).queues
    below = servicer.GetQueueUnits(pb.GetQueueUnitsRequest(topic="orders", queue_id=0, queue_offset=3), None)

    assert [(q.queue_id, q.min_offset, q.max_offset) for q in queues] == [(0, 25, 65), (1, 25, 65)]
    assert (list(below.units), below.min_offset, below.max_offset) == ([], 25, 65)
    assert len(file_names(tmp_path)) == 4


def test_a_time_search_follows_the_front_that_the_log_reports(builder):
    """Between two heartbeats the log may have retired what the search reads."""

    def read_times(units, _):
        if any(unit.commit_log_offset < 5_000 for unit in units):
            raise OffsetOutOfRangeError("gone", firstOffset=5_000, lastOffset=13_000)
        return [unit.commit_log_offset for unit in units]

    servicer = ConsumeQueueServicer(builder.progress, read_times)
    servicer.open(builder._table)
    request = pb.SearchOffsetRequest(topic="orders", queue_id=0, time=Timestamp(nanos=1_000_000))

    assert servicer.SearchOffset(request, Context()).queue_offset == 25
