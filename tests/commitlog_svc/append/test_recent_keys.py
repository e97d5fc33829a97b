"""The table of recent unique keys against a plain list."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_svc.append import layout, recent_keys
from commitlog_svc.append.recent_keys import BATCH_KERNEL, KERNEL, MODULUS, KeyHash, RecentKeys, seed_table
from commitlog_svc.lookup import TailStarts
from store.derive.record_dispatch import decode_dispatch
from store.format.topic import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.commitlog_svc.batches import BatchRun, columns_of
from tests.commitlog_svc.support import new_message
from tests.commitlog_svc.twins import request_of
from tests.store.walk.logs import BASE, ODD, V6, closed, frames_of, message, open_files
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


@pytest.mark.parametrize("factor", [2, (1 << 61) - 2, 0x123456789ABCDEF])
def test_the_kernel_hashes_the_keys_of_records_as_they_are_noted(load_kernel: LoadKernel, factor: int) -> None:
    messages = [
        message(),
        message(properties=""),
        message(
            properties="UNIQ_KEY\x01first\x02XUNIQ_KEY\x01no\x02UNIQ_KEY\x02UNIQ_KEY\x01last of two\x02UNIQ_KEY\x01\x02"
        ),
        message("T" * 127, "UNIQ_KEY\x01" + "k" * 200, body=b"", born_host=V6, store_host=V6, sys_flag=0x30),
    ]
    frames = frames_of(messages)
    data = b"junk" + b"".join(frames)
    rows = np.zeros((len(frames), layout.ROW_COLUMN_COUNT), dtype=np.int64)
    expected, at, key_hash = [], 4, KeyHash(factor)
    for frame in frames:
        request = decode_dispatch(data, at, BASE + at - 4)
        expected.append([key_hash.of(request.topic, request.unique_key), BASE + at - 4])
        at += len(frame)

    assert (len(frames), len(data)) == load_kernel(BATCH_KERNEL).hash_records(data, 4, BASE, factor, rows)
    assert expected == rows[:, [layout.KEY_HASH, layout.COMMIT_LOG_OFFSET]].tolist()


@pytest.mark.parametrize(
    "odd",
    [message(topic) for topic in (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, "订单")]
    + [message(properties="UNIQ_KEY\x01订单\x02")],
)
def test_the_kernel_leaves_records_to_the_plain_code_whose_key_is_not_in_its_bytes(
    load_kernel: LoadKernel, odd: Any
) -> None:
    frames = frames_of([message(), odd, message()])
    rows = np.zeros((3, layout.ROW_COLUMN_COUNT), dtype=np.int64)

    assert (1, len(frames[0])) == load_kernel(BATCH_KERNEL).hash_records(b"".join(frames), 0, BASE, 2, rows)
    assert not rows[1:].any()


def test_the_kernel_hashes_no_more_records_than_fit(load_kernel: LoadKernel) -> None:
    frames = frames_of([message()] * 3)
    size = len(frames[0])
    for row_count, column_count, size_bytes, expected in (
        (2, layout.ROW_COLUMN_COUNT, 3 * size, 2),
        (3, layout.ROW_COLUMN_COUNT, 3 * size - 1, 2),
        (3, layout.ROW_COLUMN_COUNT - 1, 3 * size, 0),
    ):
        rows = np.zeros((row_count, column_count), dtype=np.int64)
        found = load_kernel(BATCH_KERNEL).hash_records(b"".join(frames)[:size_bytes], 0, BASE, 2, rows)
        assert (expected, expected * size) == found


@pytest.mark.parametrize("kernel_form", ["plain twin", *FORMS], indirect=True)
def test_a_table_is_seeded_with_the_newest_records_of_the_tail(
    kernel_form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_keys, "TAIL_RECORD_COUNT_MAX", 16)
    monkeypatch.setattr(recent_keys, "ROW_COUNT", 3)
    rng = random.Random(5)
    for _ in range(20):
        messages = [
            rng.choice(ODD) if rng.random() < 0.2 else message("t", f"UNIQ_KEY\x01{number}\x02") for number in range(40)
        ]
        frames = frames_of(messages, base=0)
        files = open_files(closed(*frames, size_bytes=sum(map(len, frames)) + 100))
        end = sum(map(len, frames))
        requests, offset = [], 0
        for frame in frames:
            requests.append(decode_dispatch(frame, 0, offset))
            offset += len(frame)
        tail = rng.randrange(end)
        monkeypatch.setattr(recent_keys, "TAIL_BYTES_MAX", end - tail)
        key_hash = KeyHash(0x123456789ABCDEF)

        table = seed_table(files, TailStarts(), end, key_hash)

        expected = [each for each in requests if each.commit_log_offset >= tail][-16:]
        assert table.count == len(expected)
        for request in requests:
            found = list(table.candidates(key_hash.of(request.topic, request.unique_key)))
            assert (request.commit_log_offset in found) == (request in expected)
