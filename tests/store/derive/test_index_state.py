"""How many index files the entries of a log make.

IndexFileState against the rules of RocketMQ's IndexFile, one key at a time.
"""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.derive.index_state import (
    IndexFileState,
    entries_per_file,
    heads_before_entries,
    heads_from_entries,
    index_file_count,
    is_followed,
)
from store.format.derived.index_layout import IndexHeader
from tests.store.derive import oracle


@pytest.mark.parametrize(
    ("entry_count", "is_followed", "file_count"),
    [(0, False, 0), (0, True, 1), (1, False, 1), (1, True, 1), (3, False, 1), (3, True, 2), (4, True, 2), (6, True, 3)],
)
def test_a_full_file_is_followed_by_another_only_with_a_record_behind_it(entry_count, is_followed, file_count):
    assert entries_per_file(4) == 3
    assert index_file_count(entry_count, 4, is_followed=is_followed) == file_count


@pytest.mark.parametrize(
    ("last_record", "last_key", "expected"), [(-1, -1, False), (0, -1, True), (0, 0, False), (100, 0, True)]
)
def test_only_a_record_behind_the_last_key_follows(last_record, last_key, expected):
    assert is_followed(last_record, last_key) is expected


SLOTS, ENTRIES = 5, 12
T0 = 1_700_000_000_000


def by_the_book(slots, entry_max, seed, keys):
    """Entries, heads and header, one key after the other."""
    file = oracle.IndexFile(slots, entry_max, seed)
    for key in keys:
        if not file.is_full:
            file.put(*key)
    return file.entries, file.slots, IndexHeader(*file.header)


def put(state, keys):
    columns = np.array(keys, dtype=np.int64).reshape(-1, 3).T
    run = state.plan(columns[0], columns[1], columns[2])
    state.commit(run)
    return list(struct.iter_unpack(">iqii", run.data))


keys_strategy = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**40), st.integers(T0 - 10**13, T0 + 10**13)), max_size=20
)


@given(keys=keys_strategy, cut=st.integers(0, 20), end_time=st.sampled_from([0, T0, T0 + 10**12]))
def test_any_keys_in_any_two_runs_give_what_the_book_says(keys, cut, end_time):
    state = IndexFileState.seeded(SLOTS, ENTRIES, end_time_millis=end_time, end_commit_log_offset=77)
    expected = by_the_book(SLOTS, ENTRIES, (end_time, 77), keys)

    entries = put(state, keys[:cut]) + put(state, keys[cut:])

    assert (entries, state.heads.tolist(), state.header) == expected


def test_the_first_entry_of_a_store_holds_no_seconds_and_the_next_count_from_it():
    state = IndexFileState.seeded(SLOTS, ENTRIES)

    entries = put(state, [(1, 0, T0), (2, 100, T0 + 1999)])

    assert [entry[2] for entry in entries] == [0, 1]


def test_the_first_entry_of_a_later_file_counts_from_the_end_of_the_file_before():
    state = IndexFileState.seeded(SLOTS, ENTRIES, end_time_millis=T0, end_commit_log_offset=500)

    entries = put(state, [(1, 600, T0 + 7500), (2, 700, T0 + 9500)])

    assert [entry[2] for entry in entries] == [7, 2]
    assert state.header.begin_time_millis == T0 + 7500
    assert state.header.begin_commit_log_offset == 600


def test_a_clock_that_steps_back_gives_zero_seconds():
    state = IndexFileState.seeded(SLOTS, ENTRIES)

    assert [entry[2] for entry in put(state, [(1, 0, T0), (2, 100, T0 - 5000)])] == [0, 0]


def test_a_full_file_takes_no_more():
    state = IndexFileState.seeded(SLOTS, 3)

    assert len(put(state, [(1, 0, T0)] * 5)) == 2
    assert state.room == 0
    assert put(state, [(1, 0, T0)]) == []


@pytest.mark.parametrize("stale", [-1, 99])
def test_a_head_that_cannot_be_is_taken_for_none(stale):
    state = IndexFileState(SLOTS, ENTRIES, IndexHeader(0, 0, 0, 0, 0, 0), np.full(SLOTS, stale, dtype=np.int32))

    assert put(state, [(1, 0, T0)])[0][3] == 0
    assert state.head(2) == 0


def test_a_plan_that_is_not_committed_changes_nothing():
    state = IndexFileState.seeded(SLOTS, ENTRIES)
    before = (state.header, state.heads.tolist())

    state.plan(*np.array([[1, 0, T0]], dtype=np.int64).T)

    assert (state.header, state.heads.tolist()) == before


@given(keys=keys_strategy, cut=st.integers(0, 11))
def test_heads_made_again_from_entries_are_the_same(keys, cut):
    state = IndexFileState.seeded(SLOTS, ENTRIES)
    entries = put(state, keys)
    data = b"".join(struct.pack(">iqii", *entry) for entry in entries)
    heads = np.zeros(SLOTS, dtype=np.int32)

    opened = heads_from_entries(SLOTS, data[: cut * 20], 1, heads)
    opened += heads_from_entries(SLOTS, data[cut * 20 :], 1 + min(cut, len(entries)), heads)

    assert heads.tolist() == state.heads.tolist()
    assert opened == state.header.used_slot_count


@given(keys=keys_strategy, cut=st.integers(0, 11))
def test_heads_before_some_entries_are_found_from_these_entries_alone(keys, cut):
    state = IndexFileState.seeded(SLOTS, ENTRIES)
    put(state, keys[:cut])
    before, count = state.heads.copy(), state.header.entry_count
    data = b"".join(struct.pack(">iqii", *entry) for entry in put(state, keys[cut:]))

    heads_before_entries(SLOTS, data, count, state.heads)

    assert state.heads.tolist() == before.tolist()


@pytest.mark.parametrize("before", [None, IndexHeader(T0, T0 + 1, 5, 77, 1, 2)])
def test_a_new_file_starts_where_the_file_before_ends(before):
    expected = IndexHeader(T0 + 1, T0 + 1, 77, 77, 0, 1) if before else IndexHeader(0, 0, 0, 0, 0, 1)
    assert IndexFileState.behind(SLOTS, ENTRIES, before).header == expected
