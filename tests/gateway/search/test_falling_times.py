"""Searches by time in logs whose store times fall, with a builder that is behind or not: whole, or PARTIAL."""

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.ports.deadline import Deadline
from gateway.ports.shard import BuildProgress
from gateway.ports.shards import FanOut
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_queue_offset import outcome_of, search_offset
from gateway.search.question import Budgets, OffsetWindow, SearchQuestion
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from tests.gateway.memory_shard import MemoryShard
from tests.gateway.search.searching import Searcher, brute_force, found_offsets
from tests.support.falling_times import falling_times, moments_of

TOPIC = "orders"
QUEUE_COUNT = 3
RECORD_COUNT = 150
BEGIN_MILLIS = 1_700_000_000_000


class BuildingShard(MemoryShard):
    """A shard whose queues have only the first records of the log.

    Attributes:
        built_count: so many.
    """

    built_count: int

    @classmethod
    def of(cls, records, built_count):
        shard = cls(records, {TOPIC: QUEUE_COUNT})
        shard.built_count = built_count
        return shard

    @property
    def progress_now(self) -> BuildProgress:
        built = self.records[: self.built_count]
        after = self.records[self.built_count :]
        newest_millis = built[-1].store_time_millis if built else None
        return BuildProgress(after[0].commit_log_offset if after else self._end, self._end, False, newest_millis)

    def _queue(self, topic, queue_id):
        every = self.records
        try:
            self.records = every[: self.built_count]
            return super()._queue(topic, queue_id)
        finally:
            self.records = every

    def list_queues(self, topic, deadline):
        every = self.records
        try:
            self.records = every[: self.built_count]
            return super().list_queues(topic, deadline)
        finally:
            self.records = every


def log_of(records, times, seed):
    """A log with these store times, its messages dealt out to the queues at random."""
    random_, counts, model = random.Random(seed), [0] * QUEUE_COUNT, records[0]
    log = []
    for number, millis in enumerate(times):
        queue_id = random_.randrange(QUEUE_COUNT)
        log.append(
            replace(
                model,
                topic=TOPIC,
                queue_id=queue_id,
                queue_offset=counts[queue_id],
                commit_log_offset=number * model.store_size_bytes,
                store_time_millis=millis,
            )
        )
        counts[queue_id] += 1
    return log


def one_queue(records, times):
    return [replace(each, queue_id=0, queue_offset=n) for n, each in enumerate(log_of(records, times, seed=1))]


@pytest.fixture
def search(fan_out, sandbox):
    def run(shard, question, **fields):
        pages = list(Searcher({"a": shard}, fan_out, sandbox).pages(question, **fields))
        return pages, {page.completeness for page in pages}

    return run


@pytest.fixture(scope="module")
def threads():
    pool = FanOut(4)
    yield pool
    pool.close()


def test_a_window_before_the_newest_built_time_was_complete_while_the_builder_was_behind_a_fall(records, search):
    """The clock was set back by an hour; the records since then are not built, and two of them lie in the window."""
    log = one_queue(records, [5_000, 3_605_000, 6_000, 7_000])
    question = SearchQuestion(TOPIC, times=TimeWindow(None, 10_000))

    pages, verdicts = search(BuildingShard.of(log, 2), question)
    assert len(found_offsets(pages)) == 1
    assert verdicts == {message_pb2.COMPLETENESS_PARTIAL}
    pages, verdicts = search(BuildingShard.of(log, 4), question)
    assert (len(found_offsets(pages)), verdicts) == (3, {message_pb2.COMPLETENESS_COMPLETE})


def test_the_last_position_at_a_time_was_final_while_the_builder_was_behind_a_fall(records, fan_out, sandbox, deadline):
    log = one_queue(records, [5, 900, 6])

    def ask(built_count, boundary):
        shards = Searcher({"a": BuildingShard.of(log, built_count)}, fan_out, sandbox).shards
        found = search_offset(shards, TOPIC, 0, 10, boundary=boundary, broker_name="", deadline=deadline)
        return found.answer.queue_offset, outcome_of("a", found, boundary).complete

    assert ask(2, gateway_pb.BOUNDARY_UPPER) == (0, False)
    assert ask(3, gateway_pb.BOUNDARY_UPPER) == (2, True)
    # The first message at or after a time stays the first one, whatever comes behind it.
    assert ask(2, gateway_pb.BOUNDARY_LOWER) == (1, True)


@st.composite
def searches(draw):
    seed = draw(st.integers(0, 10_000))
    fall_share = draw(st.sampled_from([0.0, 0.05, 0.3]))
    moments = moments_of(falling_times(BEGIN_MILLIS, RECORD_COUNT, seed, fall_share=fall_share), 20, seed)
    begin, end = draw(st.tuples(*[st.none() | st.sampled_from(moments)] * 2))
    if begin is not None and end is not None and begin > end:
        begin, end = end, begin
    queue_id = draw(st.none() | st.integers(0, QUEUE_COUNT - 1))
    offsets = OffsetWindow()
    if queue_id is not None:
        offsets = OffsetWindow(*draw(st.tuples(*[st.none() | st.integers(0, 60)] * 2)))
    built_count = draw(st.just(RECORD_COUNT) | st.integers(0, RECORD_COUNT))
    question = SearchQuestion(
        TOPIC, queue_id=queue_id, offsets=offsets, times=TimeWindow(begin, end), newest_first=draw(st.booleans())
    )
    return seed, fall_share, built_count, question


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(searches(), st.integers(1, 60), st.integers(0, 90))
def test_pages_that_say_complete_have_all_records_of_the_window_wherever_store_times_fall(
    records, sandbox, threads, asked, page_size, max_records
):
    seed, fall_share, built_count, question = asked
    times = falling_times(BEGIN_MILLIS, RECORD_COUNT, seed, fall_share=fall_share)
    log = log_of(records, times, seed)
    shard = BuildingShard.of(log, built_count)
    pages = list(Searcher({"a": shard}, threads, sandbox).pages(question, [Budgets(max_records)], page_size=page_size))
    found = found_offsets(pages)

    assert found == brute_force({"a": log[:built_count]}, question, lambda record: True)
    if all(page.completeness != message_pb2.COMPLETENESS_PARTIAL for page in pages):
        assert found == brute_force({"a": log}, question, lambda record: True)
        assert pages[-1].completeness == message_pb2.COMPLETENESS_COMPLETE
    if built_count == RECORD_COUNT:
        assert {page.completeness for page in pages} <= {
            message_pb2.COMPLETENESS_TRUNCATED,
            message_pb2.COMPLETENESS_COMPLETE,
        }


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    searches(),
    st.sampled_from([gateway_pb.BOUNDARY_LOWER, gateway_pb.BOUNDARY_UPPER]),
    st.integers(0, QUEUE_COUNT - 1),
    st.data(),
)
def test_a_position_that_is_complete_is_that_of_the_whole_log_wherever_store_times_fall(
    records, sandbox, threads, asked, boundary, queue_id, data
):
    seed, fall_share, built_count, _ = asked
    times = falling_times(BEGIN_MILLIS, RECORD_COUNT, seed, fall_share=fall_share)
    log = log_of(records, times, seed)
    queue = [each for each in log if each.queue_id == queue_id]
    moment = data.draw(st.sampled_from(moments_of(times, 20, seed)))
    shards = Searcher({"a": BuildingShard.of(log, built_count)}, threads, sandbox).shards
    found = search_offset(
        shards, TOPIC, queue_id, moment, boundary=boundary, broker_name="", deadline=Deadline.after(60)
    )

    if boundary == gateway_pb.BOUNDARY_LOWER:
        wanted = next((each.queue_offset for each in queue if each.store_time_millis >= moment), len(queue))
    else:
        wanted = next((each.queue_offset for each in reversed(queue) if each.store_time_millis <= moment), 0)
    if outcome_of("a", found, boundary).complete:
        assert found.answer.queue_offset == wanted
    else:
        assert built_count < RECORD_COUNT
