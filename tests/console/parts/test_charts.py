"""Geometry of charts and places."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.pages.message import DRAWN_ENTRY_COUNT_MAX, index_place
from console.parts.charts import bars, line, log_scale, nice_maximum, queue_scale
from reput.gateway.v1 import gateway_service_pb2 as pb


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50))
def test_bars_fill_the_chart_in_proportion(values: list[int]) -> None:
    drawn = bars(values, 600, 100)

    assert [bar.count for bar in drawn] == values
    for bar, value in zip(drawn, values, strict=True):
        assert 0 <= bar.x <= bar.x + bar.width <= 600.01
        assert bar.y + bar.height == pytest.approx(100, abs=0.02)
        assert (bar.height > 0) == (value > 0)
    if max(values):
        assert max(bar.height for bar in drawn) == pytest.approx(100)


@given(st.floats(1e-6, 1e15))
def test_a_scale_is_round_and_not_far_above(value: float) -> None:
    top = nice_maximum(value)
    assert value <= top * 1.0000001
    assert top <= max(10 * value, 1)


def test_a_line_ends_at_the_right_edge_and_leaves_out_what_is_too_old() -> None:
    drawn = line([(0, 5.0), (100, 5.0), (200, 10.0)], 150, 300, 60)

    assert drawn is not None
    assert drawn.path == "M100.0 30.0L300.0 0.0"
    assert (drawn.latest, drawn.maximum) == (10.0, 10.0)
    assert line([(0, 1.0)], 100, 300, 60) is None


@given(st.integers(0, 2**60), st.integers(1, 4 << 20), st.integers(1, 2**31))
def test_a_record_lies_in_the_file_that_begins_at_or_before_it(offset: int, size: int, file_size: int) -> None:
    scale = log_scale(offset, size, file_size)

    begin = int(scale.name.removeprefix("commitlog/"))
    assert begin % file_size == 0
    assert begin + scale.at == offset
    assert 0 <= scale.at < file_size
    assert 0 <= scale.mark_percent <= scale.mark_percent + scale.width_percent <= 100.01


def test_the_queue_mark_is_where_the_message_is() -> None:
    scale = queue_scale("T/0", 100, 200, 150)
    assert (scale.mark_percent, scale.width_percent) == (50.0, 1.0)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 5_000])
def test_a_chain_is_drawn_bounded_and_says_what_it_leaves_out(length: int) -> None:
    answer = pb.ExplainQueryResponse()
    lookup = answer.shards.add(broker_name="broker-a").lookups.add(key="k", key_hash=7, slot=2, slot_count=5)
    lookup.visits.add(name="20260101", chain_entry_count=length, same_hash_count=min(1, length), candidate_count=1)
    lookup.visits.add(name="other", passed_over=pb.PASSED_OVER_TIME)

    place = index_place(answer, "broker-a")

    assert place is not None
    assert (place.visited_count, place.passed_over_count, place.chain_entry_count) == (1, 1, length)
    left_out = sum(int(entry.label) for entry in place.entries if entry.label)
    assert len([entry for entry in place.entries if not entry.label]) + left_out == length
    assert len(place.entries) <= DRAWN_ENTRY_COUNT_MAX
    assert index_place(answer, "broker-b") is None
