"""Budgets are clamped, and never keep a scan from moving on."""

from gateway.ports.deadline import Deadline
from gateway.search.question import (
    BYTES_DEFAULT,
    BYTES_MAX,
    MILLIS_DEFAULT,
    MILLIS_MAX,
    RECORDS_DEFAULT,
    RECORDS_MAX,
    Budgets,
    Meter,
)
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb

HUGE = 1 << 40


def meter(budgets: Budgets, allowed_seconds: float = 1000.0) -> tuple[Meter, list[float]]:
    now = [0.0]
    return Meter(budgets, Deadline.after(allowed_seconds, lambda: now[0])), now


def test_zero_is_the_default_and_above_the_most_is_clamped():
    for budgets, records, size_bytes, millis in (
        (Budgets(), RECORDS_DEFAULT, BYTES_DEFAULT, MILLIS_DEFAULT),
        (Budgets(HUGE, HUGE, HUGE), RECORDS_MAX, BYTES_MAX, MILLIS_MAX),
        (Budgets(5, 6, 7), 5, 6, 7),
    ):
        counted, now = meter(budgets)
        assert (counted.free_records, counted.free_bytes) == (records, size_bytes)
        now[0] = millis / 1000 - 0.0001
        assert not counted.time_is_over
        now[0] = millis / 1000
        assert counted.time_is_over


def test_time_is_over_a_fifth_before_the_deadline():
    counted, now = meter(Budgets(), 1.0)
    now[0] = 0.79
    assert not counted.time_is_over
    now[0] = 0.81
    assert counted.time_is_over


def test_nothing_stops_a_scan_that_has_not_moved():
    counted, now = meter(Budgets(1, 1, 1))
    now[0], counted.record_count = 10.0, 1
    assert counted.stop() is None
    counted.has_moved = True
    assert counted.stop() == gateway_pb.SEARCH_STOP_RECORDS
    counted.record_count = 0
    assert counted.stop() == gateway_pb.SEARCH_STOP_TIME
