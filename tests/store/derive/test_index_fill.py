"""Filling an index file gives what planning and committing runs gives: with the kernel, compiled or not, and without."""

import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from store.derive.index_fill import KERNEL, IndexFiller
from store.derive.index_state import IndexFileState

HASHES = st.one_of(st.integers(0, 20), st.integers(0, 2**31 - 1), st.just(2**31 - 1), st.just(0))
TIMES = st.one_of(
    st.integers(-10, 10**13), st.integers(0, 2**62), st.sampled_from([-(2**63), -(2**63) + 1, -(2**62), 2**63 - 1])
)
KEYS = st.lists(st.tuples(HASHES, st.integers(0, 2**62), TIMES), max_size=80)


def _columns(keys):
    hashes, offsets, times = zip(*keys, strict=True) if keys else ((), (), ())
    return np.array(hashes, dtype=np.int32), np.array(offsets, dtype=np.int64), np.array(times, dtype=np.int64)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=KEYS, slot_count=st.integers(1, 50), run=st.integers(1, 80), end=st.integers(-5, 10**13))
@example(keys=[(1, 0, 1), (2, 9, 2)], slot_count=3, run=1, end=0)  # a file goes on
def test_any_keys_in_any_runs_make_the_same_file(kernel_form, keys, slot_count, run, end):
    planned = IndexFileState.seeded(slot_count, 100, end_time_millis=end, end_commit_log_offset=7)
    filled = IndexFileState.seeded(slot_count, 100, end_time_millis=end, end_commit_log_offset=7)
    filler = IndexFiller(filled, 80)
    expected, made = b"", b""
    for at in range(0, len(keys), run):
        hashes, offsets, times = _columns(keys[at : at + run])
        made += filler.fill(hashes, offsets, times)
    if keys:
        hashes, offsets, times = _columns(keys)
        plan = planned.plan(hashes.astype(np.int64), offsets, times)
        planned.commit(plan)
        expected = plan.data

    assert made == expected
    assert filled.header == planned.header
    assert np.array_equal(filled.heads, planned.heads)


@pytest.mark.parametrize(
    "change",
    [
        {"offsets": np.zeros(1, dtype=np.int64)},
        {"times_millis": np.zeros(3, dtype=np.int64)},
        {"entries": np.zeros(9, dtype=np.uint32)},
        {"heads": np.zeros(0, dtype=np.int32)},
        {"first_number": 0},
        {"first_number": 2**31 - 2},
    ],
)
def test_arguments_that_do_not_fit_are_refused_and_nothing_is_touched(load_kernel, change):
    kernel = load_kernel(KERNEL)
    arguments = {
        "hashes": np.array([1, 2], dtype=np.int32),
        "offsets": np.zeros(2, dtype=np.int64),
        "times_millis": np.zeros(2, dtype=np.int64),
        "first_number": 1,
        "begin_millis": 0,
        "heads": np.zeros(4, dtype=np.int32),
        "entries": np.zeros(10, dtype=np.uint32),
    } | change

    assert kernel.fill_entries(*arguments.values()) == -1

    assert not arguments["heads"].any()
    assert not arguments["entries"].any()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hashes=st.lists(st.integers(-(2**31), -1), min_size=1, max_size=5))
def test_a_negative_hash_reaches_no_byte_outside(load_kernel, hashes):
    kernel = load_kernel(KERNEL)
    count = len(hashes)
    heads = np.zeros(3, dtype=np.int32)
    kernel.fill_entries(
        np.array(hashes, dtype=np.int32), np.zeros(count, np.int64), np.zeros(count, np.int64), 1, 0, heads,
        np.zeros(5 * count, dtype=np.uint32),
    )  # fmt: skip
    assert heads.max() == count


def _as_java(value):
    return (value + 2**63) % 2**64 - 2**63


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    begin=st.one_of(st.integers(-5, 5), st.integers(1, 2**63 - 1)), time=TIMES, offset=st.integers(-(2**63), 2**63 - 1)
)
def test_seconds_and_offsets_are_those_of_javas_arithmetic_at_every_edge_of_64_bits(load_kernel, begin, time, offset):
    entries = np.zeros(5, dtype=np.uint32)
    load_kernel(KERNEL).fill_entries(
        np.array([7], dtype=np.int32), np.array([offset], np.int64), np.array([time], np.int64), 9, begin,
        np.zeros(3, dtype=np.int32), entries,
    )  # fmt: skip

    difference = _as_java(time - begin)
    seconds = min(max(difference // 1000, 0), 2**31 - 1) if begin > 0 else 0
    assert struct.pack(">iqii", 7, offset, seconds, 0) == entries.tobytes()
