"""Making a summary from entries, with the kernel, compiled or not, and without: the filter and the times that it proves."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.derive.index_summary import KERNEL, SummaryMaker
from store.format.derived.index_layout import (
    TIME_DIFF_SECONDS_MAX,
    IndexEntry,
    IndexHeader,
    decode_index_entry,
    encode_index_entry,
)
from store.format.derived.index_summary import (
    PAGE_SIZE,
    TIME_UNKNOWN_EARLY,
    TIME_UNKNOWN_LATE,
    TimeSpan,
    block_count_of,
    block_of,
    decode_summary_header,
    encode_summary,
    index_header_crc,
    spread,
    word_masks,
)

T0 = 1_700_000_000_000
HASHES = st.one_of(st.integers(0, 20), st.integers(0, 2**31 - 1), st.just(2**31 - 1))
SECONDS = st.one_of(st.integers(0, 3), st.integers(0, 10**6), st.just(TIME_DIFF_SECONDS_MAX))
ENTRIES = st.lists(st.builds(IndexEntry, HASHES, st.integers(0, 2**62), SECONDS, st.just(0)), max_size=60)


def header_of(entries, begin_millis=T0):
    return IndexHeader(begin_millis, begin_millis + 1, 3, 99, 1, len(entries) + 1)


def make(entries, run, begin_millis=T0):
    maker = SummaryMaker(header_of(entries, begin_millis))
    data = b"".join(map(encode_index_entry, entries))
    for at in range(0, len(data), run * 20):
        assert maker.add(data[at : at + run * 20]) == 0
    return maker


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=ENTRIES, run=st.integers(1, 60))
def test_the_filter_holds_each_hash_by_its_definition_and_nothing_else(kernel_form, entries, run):
    maker = make(entries, run)
    block_count = block_count_of(len(entries))
    words = [0] * (block_count * 8)
    for entry in entries:
        bits = spread(entry.key_hash)
        for place, mask in enumerate(word_masks(bits)):
            words[block_of(bits, block_count) * 8 + place] |= mask

    made = maker.encode(TimeSpan(5, 6))

    header = decode_summary_header(made[:PAGE_SIZE])
    assert header == (index_header_crc(header_of(entries)), 5, 6, 3, 99, len(entries), block_count)
    assert made == encode_summary(header, b"".join(word.to_bytes(4, "little") for word in words))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=ENTRIES, run=st.integers(1, 60))
def test_times_are_said_only_where_an_entry_proves_them(kernel_form, entries, run):
    maker = make(entries, run)
    others = entries[1:]
    unproven = [entry.commit_log_offset for entry in others if entry.time_diff_seconds == 0]

    span = maker.span()

    assert maker.unproven_offset == max(unproven, default=-1)
    assert span.begin_millis == (TIME_UNKNOWN_EARLY if unproven else T0)
    if any(entry.time_diff_seconds == TIME_DIFF_SECONDS_MAX for entry in others):
        assert span.end_millis == TIME_UNKNOWN_LATE
    else:
        seconds = max((entry.time_diff_seconds for entry in others), default=None)
        assert span.end_millis == (T0 if seconds is None else T0 + seconds * 1000 + 999)


def test_without_a_begin_to_measure_from_nothing_is_known(kernel_form):
    assert make([IndexEntry(1, 2, 3, 0)] * 3, 2, begin_millis=0).span() == (TIME_UNKNOWN_EARLY, TIME_UNKNOWN_LATE)


@pytest.mark.parametrize(
    "bad",
    [
        IndexEntry(-1, 5, 1, 0),
        IndexEntry(1, -5, 1, 0),
        IndexEntry(1, 5, -1, 0),
        IndexEntry(1, 5, 1, -1),
        IndexEntry(1, 5, 1, 4),
        IndexEntry(1, 5, 1, 2**31 - 1),
    ],
)
@pytest.mark.parametrize("first_run", [1, 3, 7])
def test_an_entry_that_cannot_be_is_named(kernel_form, bad, first_run):
    entries = [IndexEntry(n, n, 1, 0) for n in range(7)]
    entries[3] = bad
    maker = SummaryMaker(header_of(entries))
    data = b"".join(map(encode_index_entry, entries))
    found = maker.add(data[: first_run * 20]) or maker.add(data[first_run * 20 :])
    assert found == 4


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200).map(lambda data: data[: len(data) // 20 * 20]), number=st.integers(1, 2**31))
def test_any_bytes_reach_no_word_outside_and_are_judged_alike(load_kernel, data, number):
    kernel = load_kernel(KERNEL)
    words, facts = np.zeros(16, dtype=np.uint32), np.array([0, -1, 0], dtype=np.int64)
    found = kernel.add_entries(np.frombuffer(data, dtype=np.uint32), number, words[:8], facts)
    assert not words[8:].any()
    entries = [decode_index_entry(data, at) for at in range(0, len(data), 20)]
    bad = [number + index for index, e in enumerate(entries) if min(e) < 0 or e.previous >= number + index]
    assert found == (bad[0] if bad else 0)


@pytest.mark.parametrize(("number", "words", "facts"), [(0, 8, 3), (1, 7, 3), (1, 8, 2)])
def test_arguments_that_do_not_fit_are_refused(load_kernel, number, words, facts):
    kernel = load_kernel(KERNEL)
    arrays = np.zeros(words, dtype=np.uint32), np.zeros(facts, dtype=np.int64)
    assert kernel.add_entries(np.zeros(5, dtype=np.uint32), number, *arrays) == -1
    assert not any(array.any() for array in arrays)
