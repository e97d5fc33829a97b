"""The units of a batch by queue are those that `place_unit` gives record by record, whatever the records say."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.derive.dispatch_columns import DispatchColumns
from store.derive.queue_placement import place_unit
from store.derive.queue_runs import place_ext_runs, place_runs
from store.format.derived.queue_ext import QueueExtUnit, lay_out
from store.format.derived.queue_unit import UNIT
from tests.support.dispatches import make_request

INT32S = st.integers(-(1 << 31), (1 << 31) - 1)
INT64S = st.integers(-(1 << 63), (1 << 63) - 1)
POSITIONS = st.integers(-2, 4) | st.sampled_from([(1 << 63) - 1, -(1 << 63), (1 << 63) - 2]) | INT64S


@st.composite
def request_lists(draw):
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["a", "b", "", "%RETRY%g"]),
                st.sampled_from([0, 1, -1]) | INT32S,
                POSITIONS,
                st.sampled_from([0, 4, 8, 12]) | INT32S,
                INT64S,
            ),
            max_size=30,
        )
    )
    return [
        make_request(n, topic=topic, queue_id=queue_id, queue_offset=position, sys_flag=sys_flag)._replace(
            tags_code=tags_code, record_size_bytes=(n * 7919) % 5000 + 1
        )
        for n, (topic, queue_id, position, sys_flag, tags_code) in enumerate(rows)
    ]


@settings(deadline=None)
@given(request_lists())
def test_every_unit_comes_once_in_its_queue_and_in_log_order(requests):
    expected = defaultdict(list)
    for request in requests:
        placed = place_unit(request)
        if placed is not None:
            expected[placed.topic, placed.queue_id].append((placed.queue_offset, placed.unit))

    found = {}
    for topic, queue_id, runs in place_runs(DispatchColumns.of(requests)):
        assert (topic, queue_id) not in found
        found[topic, queue_id] = [
            (position + at // 20, bytes(units[at : at + 20]))
            for position, units in runs
            for at in range(0, len(units), 20)
        ]
        for position, units in runs:
            assert position > 0 or len(units) == 20 or (position == 0 and len(units) >= 20)

    assert found == expected


def test_a_queue_that_simply_goes_on_is_one_run():
    requests = [make_request(n, queue_id=n % 2, queue_offset=7 + n // 2) for n in range(100)]

    placed = list(place_runs(DispatchColumns.of(requests)))

    assert [(queue_id, [(run.queue_offset, len(run.units)) for run in runs]) for _, queue_id, runs in placed] == [
        (0, [(7, 50 * 20)]),
        (1, [(7, 50 * 20)]),
    ]


@pytest.mark.parametrize("sys_flags", [[], [4], [12, 4]])
def test_nothing_to_place_is_no_queue(sys_flags):
    requests = [make_request(n, sys_flag=sys_flag) for n, sys_flag in enumerate(sys_flags)]

    assert list(place_runs(DispatchColumns.of(requests))) == []


def test_units_of_consumequeueext_lie_as_rocketmq_lays_them_out():
    file_size_bytes = 4 * 20 + 4
    requests = [
        make_request(n, queue_id=n % 2, queue_offset=n // 2)._replace(tags_code=n * 1001 - 9, store_time_millis=n + 5)
        for n in range(23)
    ]

    placed = list(place_ext_runs(DispatchColumns.of(requests), file_size_bytes))

    assert [queue_id for _, queue_id, _, _ in placed] == [0, 1]
    for _, queue_id, ((position, units),), (ext,) in placed:
        of_queue = [request for request in requests if request.queue_id == queue_id]
        wanted = [QueueExtUnit(request.tags_code, request.store_time_millis) for request in of_queue]
        data, addresses = lay_out(wanted, 0, file_size_bytes)
        assert position == 0
        assert [tags_code for _, _, tags_code in UNIT.iter_unpack(units)] == addresses
        bare = b"".join(data[at : at + 80] for at in range(0, len(data), file_size_bytes))  # without the ends of files
        assert bytes(ext) == bare
