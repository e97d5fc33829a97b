"""Meters count what was given to them, also from many threads, and never make more series than their bound.

Refusals inside answers are counted by code, from 0.
"""

import threading

import grpc
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from apache.rocketmq.v2 import rocketmq_pb2
from reput.gateway.v1 import gateway_service_pb2
from services.methods import short_name
from services.observing.meters import APPEND_REFUSED, SERIES_COUNT_MAX, Counter, Histogram, Meters, refusal_counter
from services.observing.metrics import MeterCollector
from services.serving.calls.open_work import OpenWork
from services.serving.interceptors import StatusInterceptor
from services.serving.lanes import Lanes
from services.status import CODE_BY_ERROR, to_status
from store.errors import DiskFullError, StoreError, StoreRecoveringError


def shown(meters: Meters) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    registry = CollectorRegistry()
    registry.register(MeterCollector(meters))
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_value_is_counted_in_the_first_bucket_that_holds_it():
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.11, 1.0, 1.01):
        histogram.observe(value)

    counts, total = histogram.read()

    assert counts == [2, 2, 1], "bounds are inclusive, as Prometheus' `le` is"
    assert abs(total - 2.27) < 1e-9


def test_the_page_shows_buckets_that_add_up_the_sum_and_the_count():
    meters = Meters()
    family = meters.histogram("x_seconds", "Time.", ("mode",), (0.1, 1.0))
    for value in (0.05, 0.5, 2.0):
        family.of("sync").observe(value)
    meters.counter("things", "Things.").of().add(3)

    page = shown(meters)

    sync = ("mode", "sync")
    assert page["reput_x_seconds_bucket", (("le", "0.1"), sync)] == 1
    assert page["reput_x_seconds_bucket", (("le", "1.0"), sync)] == 2
    assert page["reput_x_seconds_bucket", (("le", "+Inf"), sync)] == 3
    assert page["reput_x_seconds_count", (sync,)] == 3
    assert page["reput_x_seconds_sum", (sync,)] == 2.55
    assert page["reput_things_total", ()] == 3


def test_nothing_is_lost_between_threads():
    histogram, counter = Histogram(), Counter()

    def work() -> None:
        for _ in range(2_000):
            histogram.observe(0.003)
            counter.add(2)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(histogram.read()[0]) == 16_000
    assert counter.read() == 32_000


def test_more_labels_than_the_bound_are_counted_together():
    meters = Meters()
    family = meters.counter("calls", "Calls.", ("method", "code"))
    for number in range(SERIES_COUNT_MAX * 3):
        family.of(f"m{number}", "OK").add()

    labels = dict(family.items())

    assert len(labels) == SERIES_COUNT_MAX
    assert sum(counter.read() for counter in labels.values()) == SERIES_COUNT_MAX * 3
    assert labels["other", "other"].read() > 1


def test_every_method_of_a_gateway_has_room_for_every_code():
    """A code that came late must not hide in `other`: an alert asks for DATA_LOSS by its name."""
    meters = Meters()
    StatusInterceptor(OpenWork(), Lanes(4), meters)
    (ended,) = [family for family in meters.counters if family.name == "rpc_ended"]
    methods = [
        short_name(f"/{service.full_name}/{method.name}")
        for module in (gateway_service_pb2, rocketmq_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    wanted = {(method, code.name) for method in methods for code in grpc.StatusCode}
    assert len(wanted) > SERIES_COUNT_MAX
    for labels in wanted:
        ended.of(*labels).add()

    assert {labels: counter.read() for labels, counter in ended.items()} == dict.fromkeys(wanted, 1)


def test_a_gauge_that_fails_or_is_not_known_is_left_out_and_the_others_stay():
    meters = Meters()
    meters.number("reput_bad", "Fails.", lambda: 1 / 0)
    meters.number("reput_unknown", "Not known.", lambda: None)
    meters.gauge("reput_good", "Is there.", lambda: {("a",): 5}, ("what",))

    page = shown(meters)

    assert page["reput_good", (("what", "a"),)] == 5
    assert not [name for name, _ in page if name in ("reput_bad", "reput_unknown")]
    assert page["reput_gauge_failures_total", ()] == 1


def counts(method: str) -> dict[str, int]:
    return {labels[1]: counter.read() for labels, counter in APPEND_REFUSED.items() if labels[0] == method}


def test_every_code_is_there_before_its_first_refusal() -> None:
    refusal_counter("Test/Declared")

    assert counts("Test/Declared") == dict.fromkeys({code.name for code in CODE_BY_ERROR.values()} | {"UNKNOWN"}, 0)


def test_a_refusal_is_counted_under_its_code() -> None:
    count = refusal_counter("Test/Counted")
    for error in (StoreRecoveringError(""), DiskFullError(""), StoreRecoveringError(""), StoreError("")):
        count(to_status(error).code)
    count(grpc.StatusCode.OUT_OF_RANGE.value[0])
    count(4711)

    assert {code: number for code, number in counts("Test/Counted").items() if number} == {
        "UNAVAILABLE": 2,
        "RESOURCE_EXHAUSTED": 1,
        "INTERNAL": 1,
        "OUT_OF_RANGE": 1,
        "UNKNOWN": 1,
    }
