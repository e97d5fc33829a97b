"""The units of ConsumeQueueExt: beside what RocketMQ wrote (`tests/rocketmq/queue_ext_probe.py`), and back and forth."""

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.format.derived.queue_ext import (
    HEAD_SIZE_BYTES,
    UNIT_SIZE_BYTES_MAX,
    QueueExtUnit,
    bare_unit_count,
    bare_unit_offset,
    decode_queue_ext_unit,
    encode_queue_ext_unit,
    ext_address,
    ext_offset,
    is_ext_address,
    lay_out,
)

WRITTEN = json.loads((Path(__file__).parent / "data" / "queue_ext.json").read_text())
FILE_SIZE_BYTES = WRITTEN["file_size_bytes"]
UNITS = [QueueExtUnit(code, time, bytes.fromhex(bit_map)) for code, time, bit_map in WRITTEN["units"]]
LOG = b"".join(bytes.fromhex(text) for _, text in sorted(WRITTEN["files"].items()))

LONG = st.integers(-(2**63), 2**63 - 1)
BIT_MAPS = st.binary(max_size=64)


def test_our_bytes_and_addresses_are_those_that_rocketmq_wrote() -> None:
    log, addresses = lay_out(UNITS, 0, FILE_SIZE_BYTES)
    assert addresses == WRITTEN["addresses"]
    assert log.ljust(len(LOG), b"\0") == LOG
    assert len(WRITTEN["files"]) > 3, "the test wants ends of files"


@pytest.mark.parametrize("cut", range(0, len(UNITS), 5))
def test_units_go_on_where_others_ended(cut: int) -> None:
    first, addresses = lay_out(UNITS[:cut], 0, FILE_SIZE_BYTES)
    second, more = lay_out(UNITS[cut:], len(first), FILE_SIZE_BYTES)
    assert (first + second, addresses + more) == lay_out(UNITS, 0, FILE_SIZE_BYTES)


def test_every_unit_that_rocketmq_wrote_is_read_at_its_address() -> None:
    assert [decode_queue_ext_unit(LOG, ext_offset(address)) for address in WRITTEN["addresses"]] == UNITS


def test_where_no_unit_is_none_is_read() -> None:
    for index in range(1, len(WRITTEN["files"])):
        previous = max(ext_offset(a) for a in WRITTEN["addresses"] if ext_offset(a) < index * FILE_SIZE_BYTES)
        unit = decode_queue_ext_unit(LOG, previous)
        assert unit is not None
        assert decode_queue_ext_unit(LOG, previous + unit.size_bytes) is None  # -1: the rest of the file is empty
    assert decode_queue_ext_unit(bytes(100)) is None
    assert decode_queue_ext_unit(b"") is None
    whole = encode_queue_ext_unit(QueueExtUnit(1, 2, b"abc"))
    for size in range(len(whole)):
        assert decode_queue_ext_unit(whole[:size]) is None
    assert decode_queue_ext_unit(struct.pack(">hqqh", 20, 1, 2, -1)) is None
    assert decode_queue_ext_unit(struct.pack(">hqqh", 21, 1, 2, 0) + b"x") is None


@given(LONG, LONG, BIT_MAPS, st.binary(max_size=9))
def test_a_unit_is_read_as_it_was_written_wherever_it_stands(
    code: int, time: int, bit_map: bytes, before: bytes
) -> None:
    unit = QueueExtUnit(code, time, bit_map)
    data = encode_queue_ext_unit(unit)
    assert len(data) == unit.size_bytes
    assert decode_queue_ext_unit(before + data + b"\0", len(before)) == unit


def test_the_longest_unit_is_that_of_a_signed_16_bit_size() -> None:
    longest = QueueExtUnit(0, 0, bytes(UNIT_SIZE_BYTES_MAX - HEAD_SIZE_BYTES))
    assert decode_queue_ext_unit(encode_queue_ext_unit(longest)) == longest
    with pytest.raises(struct.error):
        encode_queue_ext_unit(longest._replace(bit_map=longest.bit_map + b"\0"))


@given(st.integers(0, 2**62))
def test_an_address_is_no_tags_code_and_names_its_byte(offset: int) -> None:
    assert is_ext_address(ext_address(offset))
    assert ext_offset(ext_address(offset)) == offset


@given(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 2**63 - 1))
def test_neither_a_hash_nor_a_time_is_an_address(tags_code: int) -> None:
    assert not is_ext_address(tags_code)


@given(count=st.integers(1, 60), file_size_bytes=st.integers(44, 200))
def test_units_without_a_bit_map_lie_where_their_number_says(count: int, file_size_bytes: int) -> None:
    _, addresses = lay_out([QueueExtUnit(7, 8)] * count, 0, file_size_bytes)
    assert [bare_unit_offset(number, file_size_bytes) for number in range(count)] == list(map(ext_offset, addresses))
    in_first_file = sum(ext_offset(address) < file_size_bytes for address in addresses)
    assert in_first_file == min(count, bare_unit_count(file_size_bytes))
