"""SearchOffset and time spans against a scan of all messages: any queue, any front, any time."""

import tempfile
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.servicer import ConsumeQueueServicer
from consumequeue_svc.time_search import Boundary, RisingRun, search_offset, time_span
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.following.follower_progress import FollowerProgress
from store.derive.dispatch_columns import DispatchColumns
from store.errors import OffsetOutOfRangeError
from store.files.file_system import RealFileSystem
from store.format.derived.queue_unit import UNIT_SIZE_BYTES
from tests.support.dispatches import RECORD_SIZE_BYTES, make_request

RISING = (RisingRun(0, 0, 1 << 62),)

BEGIN_MILLIS = 1_700_000_000_000
BOUNDARIES = {Boundary.LOWER: gateway_pb.BOUNDARY_LOWER, Boundary.UPPER: gateway_pb.BOUNDARY_UPPER}


class Context:
    """A call without a deadline."""

    def time_remaining(self):
        return None


@st.composite
def queues(draw):
    """Positions and store times of a queue's messages, units a file, and how many at the front the log has dropped.

    Steps of 0 ms make equal stamps, steps of several positions make holes, which lie at file edges as often as not.
    """
    steps = draw(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 1, 1, 1, 2, 5])), min_size=1, max_size=60))
    position, time = draw(st.integers(0, 9)), BEGIN_MILLIS
    messages = []
    for millis, positions in steps:
        time += millis
        messages.append((position, time))
        position += positions
    dropped = draw(st.integers(0, len(messages)))
    return messages, draw(st.integers(1, 8)), dropped


def open_table(root, messages, unit_count):
    table = ConsumeQueueTable(root, RealFileSystem(), unit_count * UNIT_SIZE_BYTES)
    requests = [
        make_request(number, queue_offset=position, time_millis=time)
        for number, (position, time) in enumerate(messages)
    ]
    table.apply(DispatchColumns.of(requests))
    return table


def scan(messages, end, time, boundary):
    """What the answer must be."""
    if boundary is Boundary.LOWER:
        return next((position for position, stored in messages if stored >= time), end)
    minimum = messages[0][0] if messages else end
    return next((position for position, stored in reversed(messages) if stored <= time), minimum)


def times_of(messages):
    """Every time that could make a difference: each stamp, and a millisecond beside it."""
    stamps = {stored for _, stored in messages}
    return sorted({stamp + beside for stamp in stamps for beside in (-1, 0, 1)} | {0, BEGIN_MILLIS * 2})


@settings(deadline=None)
@given(queues())
def test_any_time_finds_what_a_scan_of_all_messages_finds(queue):
    messages, unit_count, dropped = queue
    with tempfile.TemporaryDirectory() as root:
        table = open_table(Path(root), messages, unit_count)
        units = table.queue("orders", 0).units
        kept, end = messages[dropped:], messages[-1][0] + 1
        log_first_offset = dropped * RECORD_SIZE_BYTES

        def read_times(found):
            assert all(unit.commit_log_offset >= log_first_offset for unit in found), "the log has dropped that one"
            return [messages[unit.commit_log_offset // RECORD_SIZE_BYTES][1] for unit in found]

        for time in times_of(messages):
            for boundary in Boundary:
                found = search_offset(units, log_first_offset, time, boundary, read_times, RISING).queue_offset
                assert found == scan(kept, end, time, boundary), (time - BEGIN_MILLIS, boundary)
        span = time_span(units, log_first_offset, read_times)
        assert span == ((kept[0][1], kept[-1][1]) if kept else None)
        table.close()


@settings(deadline=None)
@given(queues(), st.data())
def test_the_rpc_says_so_also_when_the_logs_front_moves_under_it(queue, data):
    """The builder hears of the front once a second; the log itself refuses what it has dropped since."""
    messages, unit_count, dropped = queue
    heard = data.draw(st.integers(0, dropped))
    with tempfile.TemporaryDirectory() as root:
        table = open_table(Path(root), messages, unit_count)
        kept, end = messages[dropped:], messages[-1][0] + 1
        log_first_offset, log_end_offset = dropped * RECORD_SIZE_BYTES, len(messages) * RECORD_SIZE_BYTES

        def read_times(found, _):
            if any(unit.commit_log_offset < log_first_offset for unit in found):
                raise OffsetOutOfRangeError("dropped", firstOffset=log_first_offset, lastOffset=log_end_offset)
            return [messages[unit.commit_log_offset // RECORD_SIZE_BYTES][1] for unit in found]

        progress = FollowerProgress()
        progress.see_log(heard * RECORD_SIZE_BYTES, log_end_offset)
        progress.advance(log_end_offset, messages[-1][1])
        servicer = ConsumeQueueServicer(progress, read_times)
        servicer.open(table)
        time = data.draw(st.sampled_from(times_of(messages)))
        boundary = data.draw(st.sampled_from(Boundary))
        moment = Timestamp(seconds=time // 1000, nanos=time % 1000 * 1_000_000)
        request = pb.SearchOffsetRequest(topic="orders", time=moment, boundary=BOUNDARIES[boundary])

        answer = servicer.SearchOffset(request, Context())

        assert answer.queue_offset == scan(kept, end, time, boundary)
        assert (answer.min_offset, answer.max_offset) == (kept[0][0] if kept else end, end)
        spans = [answer.first_store_time, answer.last_store_time]
        assert answer.HasField("first_store_time") == answer.HasField("last_store_time") == bool(kept)
        if kept:
            assert [span.ToMilliseconds() for span in spans] == [kept[0][1], kept[-1][1]]
        assert (answer.next_offset, answer.log_end_offset, answer.catching_up) == (
            log_end_offset,
            log_end_offset,
            False,
        )
        assert answer.built_up_to_time.ToMilliseconds() == messages[-1][1]
        table.close()


@pytest.mark.parametrize("boundary", Boundary)
def test_equal_stamps_over_several_files_are_told_apart_by_the_millisecond(tmp_path, boundary):
    """A thousand messages of one millisecond in files of ten, one before and one behind."""
    messages = [(0, 10), *((position, 20) for position in range(1, 1001)), (1001, 30)]
    units = open_table(tmp_path, messages, 10).queue("orders", 0).units

    def ask(time):
        times = [message[1] for message in messages]
        found = search_offset(
            units, 0, time, boundary, lambda us: [times[u.commit_log_offset // 100] for u in us], RISING
        )
        return found.queue_offset

    lower = {9: 0, 10: 0, 11: 1, 19: 1, 20: 1, 21: 1001, 30: 1001, 31: 1002}
    upper = {9: 0, 10: 0, 11: 0, 19: 0, 20: 1000, 21: 1000, 30: 1001, 31: 1001}
    expected = lower if boundary is Boundary.LOWER else upper
    assert {time: ask(time) for time in expected} == expected
