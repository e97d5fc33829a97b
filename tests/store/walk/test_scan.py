"""The scan's kernel, compiled and as plain Python, against the oracle: equal tables for every input."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import RecordCorruptedError
from store.format.properties import KEYS, parse_properties, split_keys
from store.format.record import decode_record, encode_blank
from store.walk import scan_layout as rows
from tests.store.walk import logs, scan_oracle
from tests.store.walk.logs import BASE, ODD, frames_of, message, mixed_log, mutated
from tests.support.fixture_stores import walk_frames
from tests.support.kernels import FORMS

MUTATION_COUNTS = {True: 3000, False: 500}  # compiled or not; others in each run
CHECKS = [rows.LENGTHS, rows.PLACE, rows.SUMS]
# A hash and a mark "doubtful" may be anything where the plain codec has the last word.
NUMBER_ROWS = [row for row in range(rows.ROW_COUNT_32) if row != rows.IS_DOUBTFUL]


@pytest.fixture(scope="module", params=FORMS)
def kernel(request: pytest.FixtureRequest) -> Any:
    return FORMS[request.param]("store.walk.scan_kernel")


def is_compiled(kernel: Any) -> bool:
    return not kernel.__file__.endswith(".py")


class Tables:
    def __init__(self, row_count: int, name_count: int = 64) -> None:
        self.rows_32 = np.full((rows.ROW_COUNT_32, row_count), -7, dtype=np.int32)
        self.rows_64 = np.full((rows.ROW_COUNT_64, row_count), -7, dtype=np.int64)
        self.topics = np.zeros((rows.NAME_ROW_COUNT, name_count), dtype=np.int64)
        self.hosts = np.zeros((rows.NAME_ROW_COUNT, name_count), dtype=np.int64)
        self.slots = [np.empty(rows.NAME_SLOT_COUNT, dtype=np.int32) for _ in range(2)]


def fill(
    module: Any,
    data: np.ndarray,
    at: int,
    end: int,
    offset: int,
    check: int,
    *,
    row_count: int = 64,
    name_count: int = 64,
    spare_count: int = 0,
) -> tuple[Any, Tables]:
    tables = Tables(row_count + spare_count, name_count)
    result = module.fill_rows(
        data, at, end, offset, check, True, row_count, tables.rows_32, tables.rows_64,
        tables.topics, tables.slots[0], tables.hosts, tables.slots[1],
    )  # fmt: skip
    return tuple(map(int, result)), tables


def as_array(chunk: bytes) -> np.ndarray:
    data = np.frombuffer(chunk, dtype=np.uint8)
    data.flags.writeable = False
    return data


def find(
    module: Any, data: np.ndarray, tables: Tables, count: int, *, capacity: int = 4096, key_capacity: int = 4096
) -> list[Any]:
    sizes = tables.rows_32[rows.PROPERTIES_SIZE, :count].copy()
    begins = tables.rows_64[rows.AT, :count] + tables.rows_32[rows.SIZE, :count] - sizes
    spans = np.full((rows.SPAN_ROW_COUNT, count), -7, dtype=np.int32)
    kinds = np.full(count, -7, dtype=np.int8)
    properties = np.zeros((rows.PROPERTY_ROW_COUNT, capacity), dtype=np.int32)
    keys = np.zeros((rows.KEY_ROW_COUNT, key_capacity), dtype=np.int32)
    property_ends, key_ends = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=np.int32)
    module.find_properties(data, begins, sizes, spans, kinds, True, properties, property_ends, True, keys, key_ends)
    property_count = int(property_ends[-1]) if count else 0
    key_count = int(key_ends[-1]) if count else 0
    for row in range(count):  # where there is no such property only that is said, and a hash is of ASCII
        for span in (rows.TAGS_AT, rows.KEYS_AT, rows.UNIQUE_KEY_AT):
            if spans[span + 1, row] < 0:
                spans[span, row] = 0
        begin, size = spans[rows.TAGS_AT, row], spans[rows.TAGS_SIZE, row]
        if size > 0 and not bytes(data[begin : begin + size]).isascii():
            spans[rows.TAGS_HASH, row] = 0
    return [
        spans.tolist(), kinds.tolist(), property_ends.tolist(), key_ends.tolist(),
        properties[:, :property_count].tolist(), keys[:, :key_count].tolist(),
    ]  # fmt: skip


def assert_twins_agree(
    kernel: Any,
    chunk: bytes,
    at: int = 0,
    *,
    check: int = rows.PLACE,
    base: int = BASE,
    end: int | None = None,
    **sizes: int,
) -> int:
    data = as_array(chunk)
    end = len(chunk) if end is None else end
    found, tables = fill(kernel, data, at, end, base, check, **sizes)
    wanted, plain = fill(scan_oracle, data, at, end, base, check, **sizes)
    assert found == wanted
    count, topic_count, host_count, _ = found
    assert tables.rows_32[NUMBER_ROWS, :count].tolist() == plain.rows_32[NUMBER_ROWS, :count].tolist()
    assert tables.rows_64[:, :count].tolist() == plain.rows_64[:, :count].tolist()
    assert tables.topics[:, :topic_count].tolist() == plain.topics[:, :topic_count].tolist()
    assert tables.hosts[:, :host_count].tolist() == plain.hosts[:, :host_count].tolist()
    # Nothing that is wrong goes without doubt.
    assert (tables.rows_32[rows.IS_DOUBTFUL, :count] >= plain.rows_32[rows.IS_DOUBTFUL, :count]).all()
    for capacities in ({}, {"capacity": 9, "key_capacity": 3}):
        assert find(kernel, data, tables, count, **capacities) == find(scan_oracle, data, plain, count, **capacities)
    return count


def assert_marks_agree(kernel: Any, chunk: bytes, block_bytes: int, mark_count: int, check: int = rows.PLACE) -> None:
    results = []
    for module in (kernel, scan_oracle):
        marks = np.zeros((rows.MARK_ROW_COUNT, mark_count), dtype=np.int64)
        marks[:, 0] = (BASE, 0, rows.INT64_MAX, rows.INT64_MIN)
        result = module.mark_frames(as_array(chunk), 0, len(chunk), BASE, check, block_bytes, BASE + block_bytes, marks)
        results.append((tuple(map(int, result)), marks[:, : result[2]].tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("number", range(len(ODD)))
def test_an_odd_record_between_ordinary_ones(kernel: Any, number: int, check: int) -> None:
    chunk = b"".join(frames_of([message("payments"), ODD[number], message(), ODD[number]]))
    assert assert_twins_agree(kernel, chunk, check=check) == 4


@pytest.mark.parametrize("number", range(len(ODD)))
def test_positions_show_what_the_record_alone_says(kernel: Any, number: int) -> None:
    chunk = b"".join(frames_of([message(), ODD[number]]))
    data = as_array(chunk)
    (count, *_), tables = fill(kernel, data, 0, len(chunk), BASE, rows.SUMS)
    assert count == 2
    at = int(tables.rows_64[rows.AT, 1])
    record = decode_record(chunk, at=at, commit_log_offset=BASE + at, check_properties_crc=False)
    body_at, body_size = tables.rows_64[rows.BODY_AT, 1], tables.rows_32[rows.BODY_SIZE, 1]
    assert chunk[body_at : body_at + body_size] == record.body
    _, kinds, property_ends, key_ends, properties, keys = find(kernel, data, tables, 2)
    if kinds[1] == rows.PLAIN:
        names_at, name_sizes, values_at, value_sizes = [row[property_ends[0] :] for row in properties]
        found = {
            chunk[a : a + b].decode(): chunk[c : c + d].decode()
            for a, b, c, d in zip(names_at, name_sizes, values_at, value_sizes, strict=True)
        }
        assert found == parse_properties(record.properties_bytes)
        single = [chunk[a : a + b].decode() for a, b in zip(*[row[key_ends[0] :] for row in keys], strict=True)]
        assert tuple(single) == split_keys(record.properties.get(KEYS, ""))


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("store", ["broker_store", "engine_store", "engine_crc_store", "crashed_store"])
def test_the_twins_agree_on_rocketmqs_own_logs(
    kernel: Any, store: str, check: int, request: pytest.FixtureRequest
) -> None:
    root: Path = request.getfixturevalue(store)
    frames = list(walk_frames(root))
    assert frames
    for path in sorted((root / "commitlog").iterdir()):
        if path.name.isdigit():
            base, chunk = int(path.name), path.read_bytes()
            count = assert_twins_agree(kernel, chunk, base=base, check=check, row_count=2000, name_count=2000)
            assert count == sum(base <= offset < base + len(chunk) for offset, _ in frames)


def test_a_wrong_sum_is_doubtful_and_a_right_one_is_not(kernel: Any) -> None:
    frames = frames_of([message(), message(body=b"x" * 500), message(guarded=False), message(body=b"")])
    chunk = bytearray(b"".join(frames))
    _, tables = fill(kernel, as_array(bytes(chunk)), 0, len(chunk), BASE, rows.SUMS)
    assert tables.rows_32[rows.IS_DOUBTFUL, :4].tolist() == [0, 0, 0, 0]
    for place in range(3):
        damaged = bytearray(chunk)
        damaged[sum(map(len, frames[:place])) + 90] ^= 4  # in the body
        _, tables = fill(kernel, as_array(bytes(damaged)), 0, len(chunk), BASE, rows.SUMS)
        assert np.flatnonzero(tables.rows_32[rows.IS_DOUBTFUL, :4]).tolist() == [place]


@pytest.mark.parametrize("cut", [1, 3, 7, 8, 39, 90, 91, 120])
def test_a_record_that_does_not_end_before_the_end_is_not_begun(kernel: Any, cut: int) -> None:
    frames = frames_of([message()] * 3)
    chunk = b"".join(frames)
    assert assert_twins_agree(kernel, chunk, end=len(frames[0] + frames[1]) + cut) == 2
    assert assert_twins_agree(kernel, chunk[: len(frames[0] + frames[1]) + cut]) == 2


def test_blanks_and_zeros_end_a_run(kernel: Any) -> None:
    frames = b"".join(frames_of([message()] * 3))
    for tail in (encode_blank(5000) + bytes(400), bytes(500)):
        assert assert_twins_agree(kernel, frames + tail) == 3


@pytest.mark.parametrize(("row_count", "name_count"), [(1, 64), (5, 64), (64, 1), (64, 2), (64, 3)])
def test_a_run_ends_where_a_table_is_full(kernel: Any, row_count: int, name_count: int) -> None:
    chunk = mixed_log(random.Random(5), 20)
    assert_twins_agree(kernel, chunk, row_count=row_count, name_count=name_count)


@pytest.mark.parametrize("row_count", [1, 3, 20, 64])
def test_no_more_rows_are_filled_than_are_wanted_where_tables_are_wider(kernel: Any, row_count: int) -> None:
    chunk = mixed_log(random.Random(7), 20)
    assert assert_twins_agree(kernel, chunk, row_count=row_count, spare_count=5) == min(row_count, 20)
    for module in (kernel, scan_oracle):
        _, tables = fill(module, as_array(chunk), 0, len(chunk), BASE, rows.PLACE, row_count=row_count, spare_count=5)
        assert (tables.rows_64[:, row_count:] == -7).all()


def test_hosts_and_topics_that_come_back_keep_their_numbers(kernel: Any) -> None:
    frames = frames_of([message("one"), message("two"), ODD[0], message("two"), message("one"), message("one"), ODD[0]])
    chunk = b"".join(frames)
    assert assert_twins_agree(kernel, chunk) == len(frames)
    (_, topic_count, _, _), tables = fill(kernel, as_array(chunk), 0, len(chunk), BASE, rows.PLACE)
    numbers = tables.rows_32[rows.TOPIC, : len(frames)].tolist()
    assert numbers[0] == numbers[4] == numbers[5]
    assert numbers[1] == numbers[3]
    assert numbers[2] == numbers[6]
    assert len(set(numbers)) == topic_count


def test_more_properties_than_the_kernel_compares(kernel: Any) -> None:
    for count in (rows.PROPERTY_COUNT_MAX, rows.PROPERTY_COUNT_MAX + 1, 2000):
        many = "".join(f"n{number}\x01v\x02" for number in range(count)) + "n3\x01later\x02"
        chunk = b"".join(frames_of([message(), message(properties=many, guarded=False), message()]))
        assert assert_twins_agree(kernel, chunk) == 3


@pytest.mark.parametrize("block_bytes", [1, 100, 1000, 5000])
@pytest.mark.parametrize("mark_count", [1, 2, 100])
def test_the_twins_set_the_same_marks(kernel: Any, block_bytes: int, mark_count: int) -> None:
    assert_marks_agree(kernel, mixed_log(random.Random(6), 60), block_bytes, mark_count)


@given(messages=logs.messages, check=st.sampled_from(CHECKS), row_count=st.integers(1, 20))
def test_the_twins_agree_on_any_messages(kernel: Any, messages: list[Any], check: int, row_count: int) -> None:
    assert_twins_agree(kernel, b"".join(frames_of(messages)), check=check, row_count=row_count)


@given(data=st.binary(max_size=300), check=st.sampled_from(CHECKS))
def test_the_twins_agree_on_any_bytes(kernel: Any, data: bytes, check: int) -> None:
    assert_twins_agree(kernel, data, check=check)
    assert_marks_agree(kernel, data, 100, 8, min(check, rows.PLACE))


@given(
    text=st.lists(
        st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"a", b"\x01", b"\x02", b" ", b"\xff", b"\xe8\xae\xa2"])
    )
)
def test_the_twins_agree_on_any_property_string(kernel: Any, text: list[bytes]) -> None:
    assert_twins_agree(kernel, b"".join(frames_of([message(properties=b"".join(text), guarded=False)] * 2)))


def test_thousands_of_damaged_logs(kernel: Any) -> None:
    chance = random.Random(random.getrandbits(64))
    count = 0
    mutation_count = MUTATION_COUNTS[is_compiled(kernel)]
    for _ in range(mutation_count // 20):
        data = mixed_log(chance, chance.randrange(1, 9))
        for _ in range(20):
            check = chance.choice(CHECKS)
            damaged = mutated(chance, data)
            count += assert_twins_agree(kernel, damaged, check=check)
            assert_marks_agree(kernel, damaged, chance.choice((50, 400)), 8, min(check, rows.PLACE))
    assert count > mutation_count


def test_what_is_not_doubtful_decodes(kernel: Any) -> None:
    chance = random.Random(20_002)
    for _ in range(300):
        chunk = mutated(chance, mixed_log(chance, 5))
        (count, *_), tables = fill(kernel, as_array(chunk), 0, len(chunk), BASE, rows.SUMS)
        for at, doubt in zip(
            tables.rows_64[rows.AT, :count].tolist(), tables.rows_32[rows.IS_DOUBTFUL, :count].tolist(), strict=True
        ):
            try:
                decode_record(chunk, at=at, commit_log_offset=BASE + at)
            except RecordCorruptedError:
                assert doubt


def test_tables_without_all_their_rows_are_refused(kernel: Any) -> None:
    """The rows are looked at once: then columns are written without a second look."""
    data = np.frombuffer(b"".join(frames_of([message()])), dtype=np.uint8)
    tables = Tables(4)
    ends = np.zeros(1, dtype=np.int32)
    begins, sizes = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int32)
    spans = np.zeros((rows.SPAN_ROW_COUNT, 1), dtype=np.int32)
    properties = np.zeros((rows.PROPERTY_ROW_COUNT, 4), dtype=np.int32)
    keys = np.zeros((rows.KEY_ROW_COUNT, 4), dtype=np.int32)

    def fill_rows(rows_32: np.ndarray, rows_64: np.ndarray) -> None:
        kernel.fill_rows(
            data, 0, len(data), BASE, rows.PLACE, True, 4, rows_32, rows_64,
            tables.topics, tables.slots[0], tables.hosts, tables.slots[1],
        )  # fmt: skip

    def find(**changed: np.ndarray) -> None:
        given = {"sizes": sizes, "spans": spans, "kinds": np.zeros(1, dtype=np.int8), "properties": properties}
        given |= {"property_ends": ends, "keys": keys, "key_ends": ends} | changed
        kernel.find_properties(
            data, begins, given["sizes"], given["spans"], given["kinds"], True, given["properties"],
            given["property_ends"], True, given["keys"], given["key_ends"],
        )  # fmt: skip

    find()
    fill_rows(tables.rows_32, tables.rows_64)
    with pytest.raises(IndexError):
        fill_rows(tables.rows_32[:-1], tables.rows_64)
    with pytest.raises(IndexError):
        fill_rows(tables.rows_32, tables.rows_64[:-1])
    none = np.zeros(0, dtype=np.int32)
    for changed in (
        {"sizes": none}, {"property_ends": none}, {"key_ends": none}, {"kinds": np.zeros(0, dtype=np.int8)},
        {"spans": spans[:-1]}, {"spans": np.zeros((rows.SPAN_ROW_COUNT, 0), dtype=np.int32)},
        {"properties": properties[:-1]}, {"keys": keys[:-1]},
    ):  # fmt: skip
        with pytest.raises(IndexError):
            find(**changed)
    for shape in ((rows.MARK_ROW_COUNT - 1, 4), (rows.MARK_ROW_COUNT, 0)):
        with pytest.raises(IndexError):
            kernel.mark_frames(data, 0, len(data), BASE, rows.PLACE, 64, BASE, np.zeros(shape, dtype=np.int64))
