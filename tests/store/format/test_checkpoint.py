"""The checkpoint page.

The mark that says how far the log is on the disk: a torn or damaged one says nothing.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import StoreCorruptedError
from store.format.checkpoint import (
    DURABLE_MARK,
    StoreCheckpoint,
    decode_checkpoint,
    decode_durable_mark,
    encode_checkpoint,
    encode_durable_mark,
)
from tests.support.dispatches import requests_of

CHECKPOINT = StoreCheckpoint(1, 2, 3, 4, 5)
STORED = b"".join(number.to_bytes(8, "big") for number in (1, 2, 3, 4, 5)) + bytes(4096 - 40)


def test_checkpoint_has_its_page() -> None:
    assert encode_checkpoint(CHECKPOINT) == STORED
    assert decode_checkpoint(STORED) == CHECKPOINT
    assert decode_checkpoint(STORED + b"behind the page") == CHECKPOINT


def test_short_checkpoint_is_refused() -> None:
    for size in range(40):
        with pytest.raises(StoreCorruptedError) as caught:
            decode_checkpoint(STORED[:size])
        assert caught.value.metadata["file"] == "checkpoint"


def test_what_a_newer_broker_keeps_behind_survives() -> None:
    page = STORED[:40] + b"\0\0new" + bytes(4096 - 45)

    assert page == encode_checkpoint(decode_checkpoint(page))


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("broker", (1795256984315, 1795256984315, 1795256960758)),
        ("engine", (1795258800543, 1795258803536, 1795258803534)),
        ("engine_crc", (1795258768341, 1795258771899, 1795258771891)),
    ],
)
def test_checkpoints_of_rocketmq_come_back(
    name: str, times: tuple[int, int, int], request: pytest.FixtureRequest
) -> None:
    root: Path = request.getfixturevalue(f"{name}_store")
    data = (root / "checkpoint").read_bytes()

    assert StoreCheckpoint(*times) == decode_checkpoint(data)
    assert data == encode_checkpoint(decode_checkpoint(data))


def test_the_offset_of_the_queues_that_a_newer_broker_writes_never_lies_behind_the_log() -> None:
    page = STORED[:40] + (700).to_bytes(8, "big") + b"new" + bytes(4096 - 51)
    checkpoint = decode_checkpoint(page)
    assert checkpoint.queues_flushed_offset == 700
    assert checkpoint.limited_to(700) is checkpoint
    lowered = encode_checkpoint(checkpoint.limited_to(650))
    assert lowered == STORED[:40] + (650).to_bytes(8, "big") + page[48:]


def test_a_broker_of_5_5_writes_the_offset_of_its_last_record_and_one_of_5_3_none(
    rocketmq_5_5_store: Path, broker_store: Path
) -> None:
    newest = requests_of(rocketmq_5_5_store)[-1].commit_log_offset
    assert decode_checkpoint((rocketmq_5_5_store / "checkpoint").read_bytes()).queues_flushed_offset == newest
    assert decode_checkpoint((broker_store / "checkpoint").read_bytes()).queues_flushed_offset == 0


def test_a_checkpoint_without_the_offset_of_the_queues_says_zero_there() -> None:
    assert CHECKPOINT.queues_flushed_offset == 0
    assert CHECKPOINT.limited_to(0) is CHECKPOINT


# CRC-32 of 8 zero bytes, and of the bytes 00 00 00 00 00 01 00 00, as the trailer of gzip has them (there little-endian).
MARKS = [(0, "0000000000000000 6522df69"), (1 << 16, "0000000000010000 64e0b55e")]


@pytest.mark.parametrize(("offset", "data"), MARKS)
def test_the_mark_is_the_offset_and_its_crc(offset: int, data: str) -> None:
    assert encode_durable_mark(offset) == bytes.fromhex(data)
    assert decode_durable_mark(bytes.fromhex(data)) == offset


@given(st.integers(0, (1 << 63) - 1), st.binary(max_size=20))
def test_any_offset_comes_back_whatever_follows_the_mark(offset: int, rest: bytes) -> None:
    assert decode_durable_mark(encode_durable_mark(offset) + rest) == offset


def test_a_mark_that_is_cut_short_or_damaged_anywhere_says_nothing() -> None:
    mark = encode_durable_mark(123_456_789)
    for size_bytes in range(DURABLE_MARK.size):
        assert decode_durable_mark(mark[:size_bytes]) is None
    for bit in range(8 * len(mark)):
        damaged = bytearray(mark)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_durable_mark(bytes(damaged)) is None
