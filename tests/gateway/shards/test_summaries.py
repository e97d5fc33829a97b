"""Shards that need not be asked: never at the price of a match, and calls are counted."""

import threading
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.ports.chain import Concern
from gateway.ports.deadline import Deadline
from gateway.ports.shard import BuildProgress, search_key
from gateway.ports.shards import FanOut, Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import query_by_key
from gateway.queries.page import PageTokens
from gateway.shards.summaries import FILTER_PAGES, HELD_SECONDS_MAX, FilterCache, Summaries
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1 import message_pb2
from store.errors import RecordNotFoundError
from store.format.derived.index_layout import index_key, key_hash
from store.format.derived.index_summary import (
    PAGE_SIZE,
    SummaryHeader,
    block_of,
    encode_summary,
    key_bits,
    spread,
    word_masks,
)
from tests.gateway.memory_shard import MemoryShard, candidates, late, with_keys
from tests.support.waiting import WAIT_SECONDS_MAX

SECONDS_MAX = 600
TOPIC = "orders"


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def filter_of(hashes, block_count):
    words = [0] * (8 * block_count)
    for hash_ in hashes:
        bits = spread(hash_)
        for place, mask in enumerate(word_masks(bits)):
            words[block_of(bits, block_count) * 8 + place] |= mask
    header = SummaryHeader(0, 0, 0, 0, 0, len(hashes), block_count)
    return encode_summary(header, b"".join(word.to_bytes(4, "little") for word in words))[PAGE_SIZE:]


@dataclass
class Index:
    """An index in memory: (time, key) of each record, an offset of 100 bytes each, four records a file."""

    records: list[tuple[int, str]] = field(default_factory=list)
    search_count: int = 0
    page_count: int = 0
    knows_later: bool = True
    knows_spans: bool = True
    has_filters: bool = True
    fails: bool = False

    def _files(self):
        return [self.records[at : at + 4] for at in range(0, len(self.records), 4)]

    def search(self, topic, key, window, *, below_offset, count_max, deadline, explain=False, summarize=False):
        self.search_count += 1
        found = [n * 100 for n, (time, own) in enumerate(self.records) if own == key and window.holds(time)][::-1]
        end = len(self.records) * 100
        progress = BuildProgress(end, end, catching_up=False)
        return candidates(
            found[:count_max], len(found) > count_max, progress, summary=self._held() if summarize else None
        )

    def shard(self, broker_name="a"):
        return with_pages(with_keys(MemoryShard([]).shard(broker_name), self), self)

    def _held(self):
        *sealed, newest = self._files() or [[]]
        if len(newest) == 4:  # a message without keys has made the next file
            sealed, newest = [*sealed, newest], []
        rows = [
            index_pb.IndexSummary.Sealed(
                name=f"file-{number}",
                header_crc=number,
                begin_time_millis=min(file)[0] if self.knows_spans else None,
                end_time_millis=max(file)[0] if self.knows_spans else None,
                block_count=2 if self.has_filters else 0,
            )
            for number, file in enumerate(sealed)
        ]
        times = [time for time, _ in newest]
        later = self.records[-1][0] if self.records and self.knows_later else None
        begin, end = (min(times), max(times)) if times and self.knows_spans else (None, None)
        return index_pb.IndexSummary(
            sealed=rows,
            next_offset=len(self.records) * 100,
            later_times_millis=later,
            has_newest=bool(newest),
            newest_begin_time_millis=begin,
            newest_end_time_millis=end,
        )

    def filter_pages(self, request, deadline):
        self.page_count += 1
        if self.fails:
            raise RecordNotFoundError("gone")
        if request.first_page > 1:
            return b""
        file = self._files()[request.header_crc]
        return filter_of([key_hash(index_key(TOPIC, key)) for _, key in file], 2)

    def progress(self, past_offset, wait_seconds, deadline):
        raise AssertionError("nobody waits here")


@pytest.fixture
def filters():
    cache = FilterCache(wanted_count=2)
    yield cache
    cache.close()


def with_pages(shard, double):
    return shard.serving(FILTER_PAGES, late(double, "filter_pages"))


def summarized(broker_name, index, filters, clock):
    """The shard of an index, whose calls go by its summaries."""
    return index.shard(broker_name).with_link(Concern.SUMMARIES, Summaries(broker_name, filters, clock))


def ask(shard, key, begin, end, **more):
    window = TimeWindow(begin, end)
    return search_key(
        shard, TOPIC, key, window, below_offset=None, count_max=1000, deadline=Deadline.after(SECONDS_MAX), **more
    )


def offsets(shard, key, begin, end):
    return list(ask(shard, key, begin, end).answer.commit_log_offsets)


def drain(filters):
    """Returns once every fetch that was begun has ended."""
    filters._thread.submit(lambda: None).result(WAIT_SECONDS_MAX)


def test_a_window_in_the_past_that_nothing_overlaps_costs_no_call(filters):
    index, clock = Index([(1000 + n * 10, "k") for n in range(10)]), Clock()
    keys = summarized("a", index, filters, clock)

    assert offsets(keys, "k", 0, 999) == []
    assert index.search_count == 1, "nothing is known yet"
    skipped = ask(keys, "k", 0, 999, explain=True)
    assert index.search_count == 1
    assert skipped.passed_over == gateway_pb.PASSED_OVER_TIME
    assert skipped.answer.explanation.key_hash == key_hash("orders#k")
    assert (skipped.progress.next_offset, skipped.progress.is_behind, skipped.answer.next_page_token) == (
        1000,
        False,
        "",
    )

    clock.seconds = HELD_SECONDS_MAX
    ask(keys, "k", 0, 999)
    assert index.search_count == 2, "what is old does not count"
    ask(keys, "k", 0, 999)
    assert index.search_count == 2


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (None, None),  # no end: later records count
        (0, None),
        (5_000, 6_000),  # the future
        (0, 1090),  # a record stored in the same millisecond as the newest may still come
        (1085, 1089),  # inside the newest file
        (1000, 1000),  # inside a sealed one
        (None, 1000),
    ],
)
def test_whatever_may_hold_a_match_is_asked(filters, begin, end):
    index = Index([(1000 + n * 10, "k") for n in range(10)])
    keys = summarized("a", index, filters, Clock())
    for count in range(1, 4):
        ask(keys, "k", begin, end)
        assert index.search_count == count


@pytest.mark.parametrize("unknown", ["knows_later", "knows_spans"])
def test_what_is_not_known_means_asking(filters, unknown):
    index = replace(Index([(1000 + n * 10, "k") for n in range(10)]), **{unknown: False})
    keys = summarized("a", index, filters, Clock())
    for count in range(1, 4):
        ask(keys, "k", 0, 999)
        assert index.search_count == count


def test_a_filter_that_was_wanted_again_and_again_spares_the_calls(filters):
    index = Index([(1000 + n * 10, f"k{n}") for n in range(10)])
    keys = summarized("a", index, filters, Clock())
    for _ in range(3):  # to know what is held, and twice to want the filter
        ask(keys, "nobody", 1000, 1030)
    drain(filters)
    count = index.search_count
    assert ask(keys, "nobody", 1000, 1030, explain=True).passed_over == gateway_pb.PASSED_OVER_FILTER
    assert index.search_count == count
    assert offsets(keys, "k2", 1000, 1030) == [200]
    assert index.search_count == count + 1
    assert index.page_count == 1


def test_a_record_of_the_newest_records_millisecond_may_still_come(filters):
    index = Index([(1000 + n * 10, f"k{n}") for n in range(4)])  # the newest file is empty
    keys = summarized("a", index, filters, Clock())
    for _ in range(3):
        ask(keys, "late", 1000, 1029)
    drain(filters)
    assert ask(keys, "late", 1000, 1029, explain=True).passed_over == gateway_pb.PASSED_OVER_FILTER

    index.records.append((1030, "late"))

    assert offsets(keys, "late", 1000, 1030) == [400]


def test_filters_have_a_budget_and_a_file_without_one_is_asked(filters):
    small = FilterCache(bytes_max=2 * PAGE_SIZE, wanted_count=1)
    index = Index([(1000 + n * 10, f"k{n}") for n in range(17)])
    keys = summarized("a", index, small, Clock())
    for number in (0, 0, 1, 2):  # the first only tells what is held
        ask(keys, "nobody", 1000 + number * 40, 1030 + number * 40)
        drain(small)
    assert [name for _, name, _ in small._filters] == ["file-1", "file-2"]
    assert small._size_bytes == 2 * PAGE_SIZE
    small.want(("a", "huge", 0), 1 << 30, lambda page: pytest.fail("never fetched"))
    small.close()
    assert small.want(("a", "closed", 0), 1, lambda page: b"") is None

    index.has_filters = False
    keys = summarized("b", index, filters, Clock())
    for count in range(5):
        before = index.search_count
        ask(keys, "nobody", 1000, 1030)
        assert index.search_count == before + 1, count


def test_a_filter_that_cannot_be_fetched_whole_is_none(filters):
    index = Index([(1000 + n * 10, f"k{n}") for n in range(10)], fails=True)
    keys = summarized("a", index, filters, Clock())
    for _ in range(6):
        ask(keys, "k2", 1000, 1030)
        drain(filters)
    assert index.search_count == 6
    assert index.page_count >= 2, "tried again"
    torn = filters.want(("a", "torn", 0), 130, lambda page: bytes(PAGE_SIZE) if page == 1 else b"")
    torn = torn or filters.want(("a", "torn", 0), 130, lambda page: bytes(PAGE_SIZE) if page == 1 else b"")
    torn.result(WAIT_SECONDS_MAX)
    assert filters.may_hold(("a", "torn", 0), key_bits(0), 130) is None


KEYS = st.sampled_from(["a", "b", "c"])
# Times rise, as in every log that this project's commit log writes.
LOGS = st.lists(st.tuples(st.integers(0, 30), KEYS), max_size=30)


@settings(max_examples=50, deadline=None)
@given(
    logs=st.lists(LOGS, min_size=3, max_size=3),
    later=st.lists(LOGS, min_size=3, max_size=3),
    questions=st.lists(
        st.tuples(KEYS, st.integers(-5, 700), st.one_of(st.none(), st.integers(0, 300)), st.booleans()),
        min_size=1,
        max_size=12,
    ),
)
def test_no_match_is_ever_missed_while_shards_grow(logs, later, questions):
    filters = FilterCache(wanted_count=1)
    indexes, shards, waiting = [Index() for _ in logs], [], [list(steps) for steps in later]
    for number, (index, steps) in enumerate(zip(indexes, logs, strict=True)):
        _grow(index, steps)
        shards.append(summarized(f"s{number}", index, filters, Clock()))
    try:
        for key, begin, length, grows in questions:
            if grows:
                for index, steps in zip(indexes, waiting, strict=True):
                    _grow(index, [steps.pop(0)] if steps else [])
            end = None if length is None else begin + length
            for index, keys in zip(indexes, shards, strict=True):
                assert offsets(keys, key, begin, end) == offsets(index.shard(), key, begin, end)
            drain(filters)
    finally:
        filters.close()


def _grow(index, steps):
    time = index.records[-1][0] if index.records else 0
    for step, key in steps:
        time += step
        index.records.append((time, key))


class Summarized(MemoryShard):
    """A shard over records of the fixture whose index says what it holds: all records in one sealed file."""

    def search(self, topic, key, window, *, summarize=False, **named):
        found = super().search(topic, key, window, **named)
        if not summarize:
            return found
        times = [record.store_time_millis for record in self.records]
        summary = found.answer.summary
        summary.next_offset, summary.later_times_millis = found.progress.next_offset, max(times) + 1000
        summary.sealed.add(name="all", header_crc=1, begin_time_millis=min(times), end_time_millis=max(times))
        return found

    def filter_pages(self, request, deadline):
        raise RecordNotFoundError("none")

    def shard(self, broker_name="broker-a"):
        return with_pages(super().shard(broker_name), self)


@pytest.mark.parametrize("count", [1, 3])
def test_a_query_asks_only_the_shards_whose_time_it_is(records, filters, count):
    third = len(records) // 3
    parts = [records[:third], records[third : 2 * third], records[2 * third :]]
    memories = [Summarized(part, topics={record.topic: 4 for record in records}) for part in parts]
    shards = [summarized(f"s{n}", memory, filters, Clock()) for n, memory in enumerate(memories)]
    pool, tokens = FanOut(4), PageTokens("a secret")
    record = next(record for record in parts[0] if record.keys)
    key, time = record.keys[0], record.store_time_millis
    window = TimeWindow(time, time)
    try:
        for _ in range(count):
            answer = query_by_key(
                Shards(shards, pool),
                tokens,
                record.topic,
                key,
                window,
                page_size_asked=1000,
                page_token="",
                deadline=Deadline.after(SECONDS_MAX),
            )
            assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE
            expected = [r for r in records if r.topic == record.topic and key in r.keys and r.store_time_millis == time]
            assert sorted(entry.record.commit_log_offset for entry in answer.entries) == sorted(
                r.commit_log_offset for r in expected
            )
    finally:
        pool.close()
    spans = [(part[0].store_time_millis, part[-1].store_time_millis) for part in parts]
    overlapping = [begin <= time <= end for begin, end in spans]
    calls = [memory.calls.count("search") for memory in memories]
    assert calls == [count if overlaps else 1 for overlaps in overlapping]


def test_searches_of_many_threads_share_one_cache(filters):
    index = Index([(1000 + n * 10, f"k{n}") for n in range(40)])
    keys = summarized("a", index, filters, Clock())
    failures = []

    def work(number):
        try:
            for at in range(40):
                begin = 1000 + (at * 7 + number) % 36 * 10
                expected = offsets(index.shard(), f"k{at}", begin, begin + 30)
                assert offsets(keys, f"k{at}", begin, begin + 30) == expected
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
