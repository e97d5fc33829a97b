"""The kernel, compiled and uncompiled, against its plain twin: equal for every input."""

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.compiled import loading
from store.derive import dispatch_walk
from store.derive.dispatch_columns import DispatchColumns
from store.derive.dispatch_walk import Walked, walk_columns, walk_columns_plainly
from store.derive.record_dispatch import decode_dispatch
from store.format.derived.index_layout import index_key, key_hash
from store.format.record import encode_blank
from tests.store.walk import logs
from tests.store.walk.logs import BASE, ODD, frames_of, message, mixed_log, mutated
from tests.support.fixture_stores import walk_frames
from tests.support.kernels import FORMS

MUTATION_COUNT = 4000  # others in each run


@pytest.fixture(scope="module", autouse=True, params=FORMS)
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kernel for every chunk, however short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(loading._kernels, dispatch_walk.KERNEL, FORMS[request.param](dispatch_walk.KERNEL))
        patch.setattr(dispatch_walk, "KERNEL_BYTES_MIN", 0)
        yield request.param


def assert_columns_equal(columns: DispatchColumns, expected: DispatchColumns) -> None:
    for field in dataclasses.fields(DispatchColumns):
        value, wanted = getattr(columns, field.name), getattr(expected, field.name)
        if isinstance(wanted, np.ndarray):
            assert value.dtype == wanted.dtype, field.name
            assert value.tolist() == wanted.tolist(), field.name
        else:
            assert value == wanted, field.name


def assert_equal(walked: Walked, expected: Walked) -> None:
    assert_columns_equal(walked.columns, expected.columns)
    assert walked.next_offset == expected.next_offset
    assert (type(walked.why), str(walked.why)) == (type(expected.why), str(expected.why))


def assert_twins_agree(chunk: bytes, at: int = 0, count_max: int = 1 << 20, *, base: int = BASE) -> Walked:
    walked = walk_columns(chunk, at, base, count_max)
    assert_equal(walked, walk_columns_plainly(chunk, at, base, count_max))
    return walked


@pytest.mark.parametrize("number", range(len(ODD)))
def test_an_odd_record_between_ordinary_ones(number: int) -> None:
    chunk = b"".join(frames_of([message("payments"), ODD[number], message(), ODD[number]]))
    walked = assert_twins_agree(chunk)
    assert (len(walked.columns), walked.next_offset, walked.why) == (4, BASE + len(chunk), None)


@pytest.mark.parametrize("number", range(len(ODD)))
def test_the_columns_say_what_each_record_alone_says(number: int) -> None:
    frames = frames_of([ODD[number], message()])
    requests = [decode_dispatch(frames[0], 0, BASE), decode_dispatch(frames[1], 0, BASE + len(frames[0]))]
    assert_columns_equal(walk_columns(b"".join(frames), 0, BASE, 9).columns, DispatchColumns.of(requests))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind: Any) -> None:
    chunk = kind(b"??" + mixed_log(random.Random(1), 30))
    assert_equal(walk_columns(chunk, 2, BASE, 99), walk_columns_plainly(bytes(chunk), 2, BASE, 99))


@pytest.mark.parametrize("store", ["broker_store", "engine_store", "engine_crc_store", "crashed_store"])
def test_the_twins_agree_on_rocketmqs_own_logs(store: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(store)
    frames = list(walk_frames(root))
    assert frames
    for path in sorted((root / "commitlog").iterdir()):
        if path.name.isdigit():
            walked = assert_twins_agree(path.read_bytes(), base=int(path.name))
            assert len(walked.columns) == sum(
                int(path.name) <= offset < int(path.name) + path.stat().st_size for offset, _ in frames
            )


@pytest.mark.parametrize("cut", [1, 3, 7, 8, 39, 90, 91, 120])
def test_a_chunk_that_ends_inside_a_record_says_so(cut: int) -> None:
    frames = frames_of([message()] * 3)
    walked = assert_twins_agree(b"".join(frames[:2]) + frames[2][:cut])
    assert len(walked.columns) == 2
    assert type(walked.why).__name__ == "IncompleteRecordError"


def test_a_blank_and_zeros_end_the_walk() -> None:
    frames = b"".join(frames_of([message()] * 3))
    for tail in (encode_blank(5000) + bytes(400), bytes(500)):
        walked = assert_twins_agree(frames + tail)
        assert walked.next_offset == BASE + len(frames)
        assert walked.why is not None


@pytest.mark.parametrize("count_max", [1, 2, 19, 20, 21])
def test_no_more_records_than_asked_for(count_max: int) -> None:
    chunk = mixed_log(random.Random(5), 20)
    assert len(assert_twins_agree(chunk, count_max=count_max).columns) == min(count_max, 20)


@pytest.mark.parametrize("odd_share", [0.0, 0.02, 1.0])
def test_more_than_the_tables_hold(odd_share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_walk, "TABLE_RECORD_COUNT", 64)
    monkeypatch.setattr(dispatch_walk, "TABLE_KEY_COUNT", 70)
    monkeypatch.setattr(dispatch_walk, "_tables", dispatch_walk._Tables())
    assert_twins_agree(mixed_log(random.Random(3), 900, odd_share=odd_share))


def test_a_record_with_more_keys_than_the_table_holds() -> None:
    many = "KEYS\x01" + "k " * 16_000 + "\x02"
    chunk = b"".join(frames_of([message(), message(properties=many), message()]))
    walked = assert_twins_agree(chunk)
    assert len(walked.columns.key_hashes) == 16_000 + 6


def test_more_topics_than_the_table_holds() -> None:
    chunk = b"".join(frames_of([message(f"topic-{number % 3000}") for number in range(4000)]))
    assert len(assert_twins_agree(chunk).columns.topics) == 3000


@given(messages=logs.messages, count_max=st.integers(1, 20))
def test_the_twins_agree_on_any_messages(messages: list[Any], count_max: int) -> None:
    assert_twins_agree(b"".join(frames_of(messages)), count_max=count_max)


@given(data=st.binary(max_size=300))
def test_the_twins_agree_on_any_bytes(data: bytes) -> None:
    assert_twins_agree(data)


def test_thousands_of_damaged_logs(form: str) -> None:
    chance = random.Random(random.getrandbits(64))
    walked_count = 0
    mutation_count = MUTATION_COUNT if form == "compiled" else MUTATION_COUNT // 10
    for _ in range(mutation_count // 20):
        data = mixed_log(chance, chance.randrange(1, 9))
        for _ in range(20):
            walked_count += len(assert_twins_agree(mutated(chance, data)).columns)
    assert walked_count > mutation_count


@given(parts=st.lists(logs.messages, max_size=4))
def test_runs_joined_are_one_run(parts: list[list[Any]]) -> None:
    chunk = b"".join(frames_of([one for part in parts for one in part]))
    whole = walk_columns_plainly(chunk, 0, BASE, 99).columns
    offset, runs = BASE, []
    for part in parts:
        walked = walk_columns_plainly(chunk, offset - BASE, offset, len(part)) if part else None
        runs.append(walked.columns if walked else DispatchColumns.of(()))
        offset = walked.next_offset if walked else offset
    assert_columns_equal(DispatchColumns.joined(runs), whole)


@pytest.mark.parametrize("topic", ["orders", "t"])
def test_keys_alone_have_the_hashes_of_the_index(topic: str, form: str) -> None:
    kernel = loading.load(dispatch_walk.KERNEL)
    assert kernel is not None
    prefix, names = index_key(topic, "").encode(), ["k1", "", "k2", logs.key_with_hash_int_min(topic), "x" * 300]
    data = prefix + " ".join(names).encode()
    hashes, records = np.full(4, -9, dtype=np.int32), np.full(4, -9, dtype=np.int32)

    assert kernel.hash_keys(data, len(prefix), records, hashes) == 4

    assert hashes.tolist() == [key_hash(index_key(topic, name)) for name in names if name]
    assert records.tolist() == [0] * 4
    assert kernel.hash_keys(data, len(prefix), records, hashes[:3]) < 0
    assert kernel.hash_keys(data + b" \xff", len(prefix), records, hashes) < 0
