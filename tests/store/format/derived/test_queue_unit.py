"""The 20-byte queue unit, and the tags code in it."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.derive.record_dispatch import decode_dispatch
from store.format.derived.queue_unit import (
    FILLER,
    QueueUnit,
    decode_queue_unit,
    decode_queue_units,
    encode_queue_unit,
    record_bytes_of,
    tags_code,
)
from store.format.properties import parse_properties
from store.format.record import decode_record
from store.format.sys_flag import TransactionType, transaction_type
from store.format.topic import SCHEDULE_TOPIC
from tests.support.fixture_stores import walk_frames

UNIT = QueueUnit(0x0102030405060708, 0x090A0B0C, -2)
STORED = bytes.fromhex("0102030405060708 090a0b0c fffffffffffffffe")


def test_unit_has_its_twenty_bytes() -> None:
    assert encode_queue_unit(UNIT) == STORED
    assert decode_queue_unit(b"xx" + STORED, 2) == UNIT
    assert list(decode_queue_units(STORED + encode_queue_unit(FILLER))) == [UNIT, FILLER]


def test_every_prefix_is_refused() -> None:
    for size in range(20):
        with pytest.raises(struct.error):
            decode_queue_unit(STORED[:size])


def test_an_empty_unit_and_a_filler_are_told_apart() -> None:
    assert QueueUnit(0, 0, 0).is_empty
    assert not UNIT.is_empty
    assert bytes.fromhex("0000000000000000 7fffffff 0000000000000000") == encode_queue_unit(FILLER)
    assert FILLER.is_filler
    assert not UNIT.is_filler
    assert QueueUnit(100, 30, 0).next_offset == 130


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_any_unit_comes_back(offset: int, size: int, code: int) -> None:
    assert QueueUnit(offset, size, code) == decode_queue_unit(encode_queue_unit(QueueUnit(offset, size, code)))


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        ("t", {}, 0),
        ("t", {"TAGS": "Aa"}, 2112),
        ("t", {"TAGS": "polygenelubricants"}, -2147483648),
        ("t", {"TAGS": "Aa", "DELAY": "3"}, 2112),
        (SCHEDULE_TOPIC, {"TAGS": "Aa", "DELAY": "3"}, 1_000_000 + 10_000),
        (SCHEDULE_TOPIC, {"DELAY": "18"}, 1_000_000 + 7_200_000),
        (SCHEDULE_TOPIC, {"DELAY": "99"}, 1_000_000 + 7_200_000),
        (SCHEDULE_TOPIC, {"TAGS": "Aa", "DELAY": "0"}, 2112),
        (SCHEDULE_TOPIC, {"TAGS": "Aa", "DELAY": "-1"}, 2112),
        (SCHEDULE_TOPIC, {"TAGS": "Aa", "DELAY": "soon"}, 2112),
        (SCHEDULE_TOPIC, {"TAGS": "Aa"}, 2112),
    ],
)
def test_the_tags_code_follows_rocketmq(topic: str, properties: dict[str, str], expected: int) -> None:
    assert expected == tags_code(topic, properties, 1_000_000)


@pytest.mark.parametrize("name", ["broker", "engine", "engine_crc", "crashed"])
def test_every_queue_unit_of_rocketmq_has_our_tags_code(name: str, request: pytest.FixtureRequest) -> None:
    """All units of all queues, and no record without one but prepared and rolled-back ones."""
    root: Path = request.getfixturevalue(f"{name}_store")
    frames = dict(walk_frames(root))
    unseen = {
        offset
        for offset, frame in frames.items()
        if transaction_type(decode_record(frame).sys_flag) in (TransactionType.NONE, TransactionType.COMMIT)
    }
    delayed = 0
    for directory in (root / "consumequeue").glob("*/*"):
        data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
        for queue_offset, unit in enumerate(decode_queue_units(data)):
            if unit.is_empty:
                continue
            frame = frames[unit.commit_log_offset]
            place = (directory.parent.name, int(directory.name), queue_offset)
            request_ = decode_dispatch(frame, 0, unit.commit_log_offset)
            assert place == request_[:3]
            assert unit == (request_.commit_log_offset, request_.record_size_bytes, request_.tags_code)
            record = decode_record(frame)
            properties = parse_properties(record.properties_bytes)
            assert unit.tags_code == tags_code(record.topic, properties, record.store_time_millis)
            delayed += record.topic == SCHEDULE_TOPIC
            unseen.remove(unit.commit_log_offset)
    assert not unseen
    assert (delayed > 0) == (name in ("broker", "crashed"))


def test_bytes_of_records_are_the_sum_of_the_sizes_of_units_without_fillers() -> None:
    """By the four bytes of each size, or one by one where a record has 16 MiB or a filler is among them."""
    sizes = [1, 255, 256, 65_535, 65_536, (1 << 24) - 1]
    units = b"".join(encode_queue_unit(QueueUnit(-1, size, -1)) for size in sizes)
    assert record_bytes_of(units) == sum(sizes)
    assert record_bytes_of(encode_queue_unit(FILLER) * 2 + units) == sum(sizes)
    large = encode_queue_unit(QueueUnit(7, 1 << 24, 0))
    assert record_bytes_of(large + units + bytes(20)) == (1 << 24) + sum(sizes)
    assert record_bytes_of(b"") == 0
