"""The table of recent unique keys against a plain list."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_svc.append import layout
from commitlog_svc.append.recent_keys import KERNEL, MODULUS, KeyHash, RecentKeys
from tests.commitlog_svc.batches import BatchRun, columns_of
from tests.commitlog_svc.support import new_message
from tests.commitlog_svc.twins import request_of
from tests.support.kernels import FORMS, LoadKernel

KEY_COUNT = 64


def test_the_newest_are_always_found_first_ones_first() -> None:
    recent = RecentKeys(KeyHash(1_234_567_890_123_456_789), KEY_COUNT)
    rng = random.Random(7)
    noted: list[tuple[str, int]] = []
    offset = 1 << 50
    for _ in range(2000):
        key = str(rng.randrange(500)) if rng.random() < 0.5 else str(rng.random())
        recent.note("t", key, offset)
        noted.append((key, offset))
        offset += rng.randint(91, 1 << 20)
        newest = noted[-KEY_COUNT:]
        key = rng.choice(newest)[0]
        found = list(recent.candidates("t", key))
        assert next(place for name, place in newest if name == key) in found
        assert found == sorted(found)


def test_one_key_again_and_again_takes_few_slots() -> None:
    recent = RecentKeys(KeyHash(), KEY_COUNT)
    for number in range(KEY_COUNT):
        recent.note("t", "same", number * 100)

    assert 8 == len(list(recent.candidates("t", "same")))
    assert 0 == next(recent.candidates("t", "same"))


def test_the_hash_is_the_polynomial() -> None:
    factor = 1_000_003
    expected = 0
    for word in (int.from_bytes(b"abcdefgh", "little"), int.from_bytes(b"i", "little"), 9):
        expected = (expected * factor + word) % MODULUS
    begin = KeyHash(factor).of_topic("t")

    key_hash = KeyHash(factor)
    assert (begin * pow(factor, 3, MODULUS) + expected) % MODULUS == key_hash.of("t", "abcdefghi")
    assert key_hash.of("ta", "b") != key_hash.of("t", "ab")


@pytest.mark.parametrize("factor", [2, 3, (1 << 61) - 2, (1 << 60) + 12345, 0x123456789ABCDEF])
def test_the_kernel_hashes_the_same(load_kernel: LoadKernel, factor: int) -> None:
    run = BatchRun(load_kernel, columns_of({"t": 1}))
    hashes = np.zeros(1, dtype=np.int64)

    @settings(deadline=None)
    @given(st.binary(min_size=1, max_size=70), st.integers(0, MODULUS - 1))
    def check(data: bytes, start: int) -> None:
        assert run.scan(request_of(new_message(topic="t", unique_key="k" * len(data)))) == 1
        begin = run.rows[0, layout.UNIQUE_KEY_BEGIN]
        run.records[begin : begin + len(data)] = list(data)  # a client's keys are text; these are any bytes
        hashes[0] = start
        assert run.kernel.fill(run.batch, b"", 0, hashes, factor) == 1
        assert KeyHash(factor)._goes_on(start, data) == run.rows[0, layout.KEY_HASH]

    check()


@pytest.mark.parametrize("kernel_form", FORMS, indirect=True)
def test_the_kernel_enters_and_finds_the_same(kernel_form: str) -> None:
    rng = random.Random(3)
    key_hash = KeyHash(987_654_321)
    plain, fast = RecentKeys(key_hash, KEY_COUNT), RecentKeys(key_hash, KEY_COUNT)
    offset = 0
    for _ in range(300):
        keys = [str(rng.randrange(100)) for _ in range(rng.randint(1, 10))]
        rows = np.zeros((16, layout.ROW_COLUMN_COUNT), dtype=np.int64)
        begin = offset
        for index, key in enumerate(keys):
            rows[index, layout.KEY_HASH] = key_hash.of("t", key)
            rows[index, layout.COMMIT_LOG_OFFSET] = offset
            offset += 1000
        is_known = len(set(keys)) < len(keys) or any(any(plain.candidates("t", key)) for key in keys)
        is_known = is_known or any(0 in plain.candidates("t", key) for key in keys)
        assert is_known == fast.may_hold(rows, len(keys))
        if not plain._newer.has_room(len(keys), offset):  # a kernel's batch is never torn between two tables
            plain._make_room(KEY_COUNT, begin, offset)
        for index, key in enumerate(keys):
            plain.note("t", key, int(rows[index, layout.COMMIT_LOG_OFFSET]))
        assert fast.note_rows(rows, len(keys), begin, offset)
        assert np.array_equal(plain._newer.slots, fast._newer.slots)
        assert np.array_equal(plain._older.slots, fast._older.slots)


@pytest.mark.parametrize(
    ("columns", "rows", "scratch"), [(layout.ROW_COLUMN_COUNT - 1, 4, 64), (layout.ROW_COLUMN_COUNT, 3, 64)]
)
def test_rows_that_do_not_fit_change_no_table_of_keys(
    load_kernel: LoadKernel, columns: int, rows: int, scratch: int
) -> None:
    kernel = load_kernel(KERNEL)
    slots = np.zeros(8, dtype=np.int64)
    table = np.ones((rows, columns), dtype=np.int64)

    assert kernel.note(slots, 0, 8, table, 4) == 0
    assert kernel.may_hold(slots, slots, table, 4, np.zeros(scratch, dtype=np.int64)) == 1
    assert not slots.any()


def test_a_scratch_without_room_for_all_rows_says_that_a_key_may_be_known(load_kernel: LoadKernel) -> None:
    table = np.zeros((4, layout.ROW_COLUMN_COUNT), dtype=np.int64)
    table[:, layout.KEY_HASH] = range(4)
    empty = np.zeros(8, dtype=np.int64)

    found = [load_kernel(KERNEL).may_hold(empty, empty, table, 4, np.zeros(size, dtype=np.int64)) for size in (8, 16)]

    assert found == [1, 0]
