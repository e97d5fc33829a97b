"""Virtual time is exact, the simulated gateway finds what is there, and the page takes its tables."""

import time

import pytest

from benchmarks.simulation import report
from benchmarks.simulation.measure import CallCost, load
from benchmarks.simulation.scenarios import (
    SCENARIOS,
    SKIPPING,
    World,
    by_key,
    measure,
    under_load,
)
from benchmarks.simulation.virtual_time import VirtualFanOut, VirtualTime
from gateway.ports.deadline import Deadline
from store.errors import StoreError

# Each call takes 10 ms, of which 1 ms is the gateway's CPU; the front takes 2 ms.
COSTS = {
    name: CallCost((10.0, 10.0), 1.0, 1)
    for name in (
        *("search_none", "search_1", "search_64", "get", "get_many_1", "get_many_64"),
        *("units", "queue_counts", "list_queues"),
    )
} | {"front": CallCost((2.0, 2.0), 2.0, 1)}


def test_what_sleeps_at_the_same_time_takes_the_time_of_one_and_threads_are_limited():
    virtual = VirtualTime(counts_cpu=False)

    def ask(thread_count):
        begin = virtual.now
        fan_out = VirtualFanOut(virtual, thread_count)
        answers = fan_out.ask(range(9), lambda number: virtual.sleep(1.0) or number)
        assert answers == list(range(9))
        return virtual.now - begin

    real = time.monotonic()
    # The caller asks one itself, eight are left for the pool.
    assert [virtual.run(lambda count=count: ask(count)) for count in (1, 2, 4, 8, 64)] == [8.0, 4.0, 2.0, 1.0, 1.0]
    assert time.monotonic() - real < 20


def test_the_cpu_does_one_thing_after_the_other():
    virtual = VirtualTime(counts_cpu=False)
    fan_out = VirtualFanOut(virtual, 8)
    virtual.run(lambda: fan_out.ask(range(5), lambda _: virtual.use_cpu(0.5)))
    assert virtual.now == virtual.cpu_seconds == 2.5


def test_what_runs_between_two_sleeps_is_counted():
    virtual = VirtualTime()

    def burn():
        begin = time.thread_time()
        while time.thread_time() - begin < 0.01:
            pass

    fan_out = VirtualFanOut(virtual, 8)
    virtual.run(lambda: fan_out.ask(range(3), lambda _: burn()))
    assert 0.03 <= virtual.now < 0.3
    assert virtual.cpu_seconds == pytest.approx(virtual.now)


def test_an_error_of_a_shard_is_its_answer_and_any_other_ends_the_simulation():
    virtual = VirtualTime(counts_cpu=False)
    fan_out = VirtualFanOut(virtual, 2)

    def fail(number):
        virtual.sleep(1.0)
        if number == 2:
            raise StoreError("two")
        return number

    answers = virtual.run(lambda: fan_out.ask(range(4), fail))
    assert [answers[0], answers[1], answers[3]] == [0, 1, 3]
    assert isinstance(answers[2], StoreError)

    def break_down():
        virtual.sleep(1.0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        virtual.run(lambda: virtual.start(break_down))


@pytest.mark.parametrize("shard_count", [1, 3, 20])
def test_a_query_by_key_finds_every_match_with_the_calls_that_it_needs(shard_count):
    world = World(COSTS, shard_count, counts_cpu=False)
    world.place(SCENARIOS[1])
    holders = sum(shard.match_count for shard in world.shards)
    deadline = Deadline.after(30.0, world.virtual.clock)

    answer = world.virtual.run(lambda: by_key(64)(world._asked, deadline))

    assert len(answer.entries) == holders == min(shard_count, 8)
    assert world.meters.call_count == shard_count + holders
    # Search and read, each on all shards at once, on 64 threads and one CPU.
    assert 0.0199 <= world.virtual.now <= 0.020 + 0.001 * world.meters.call_count


def test_shards_that_cannot_hold_the_key_are_not_called():
    figures = {scenario.skips: measure(COSTS, scenario, 200, 5) for scenario in (SCENARIOS[1], SKIPPING[0])}

    assert figures[False].call_count == 208
    assert figures[True].call_count < 30
    assert figures[True].cpu_millis < figures[False].cpu_millis


def test_a_page_of_a_thousand_shards_holds_little_more_than_a_page():
    figures = measure(COSTS, SCENARIOS[2], 1_000, 1)

    assert figures.loaded_bytes_max < 1_000 * 3 * 2_000
    assert figures.call_count < 1_000 * 2 + 64


def test_a_shard_that_hangs_is_named_and_costs_others_little():
    def hangs(world):
        world.shards[-1].hangs = True

    without, with_guard = (
        under_load(COSTS, SCENARIOS[0], 3, 20.0, 200, prepare=hangs, is_guarded=is_guarded)
        for is_guarded in (False, True)
    )

    assert without.partial_share == with_guard.partial_share == 1.0
    assert without.p50_millis > 20_000
    assert with_guard.p50_millis < 1_000


def test_the_measured_file_has_what_the_simulation_needs():
    measured = load()

    assert measured.calls.keys() == COSTS.keys()
    assert all(list(cost.latencies_millis) == sorted(cost.latencies_millis) for cost in measured.calls.values())


def test_the_page_has_a_place_for_each_part_and_nothing_else_of_it_changes():
    page = report.PAGE.read_text(encoding="utf-8")
    marks = ("machine", "check", "queries", "threads", "bad shard", "memory")

    changed = report.with_parts(page, {name: f"| {name} |" for name in marks})

    assert all(f"<!-- simulated: {name} -->\n| {name} |\n<!-- end -->" in changed for name in marks)
    assert report.with_parts(changed, {name: f"| {name} |" for name in marks}) == changed
    with pytest.raises(KeyError):
        report.with_parts(page, {"unknown": ""})
