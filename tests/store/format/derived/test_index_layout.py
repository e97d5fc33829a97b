"""The parts of an IndexFile, on bytes and on every index file of the fixtures."""

import struct
from collections import Counter
from pathlib import Path

import pytest

from store.derive.record_dispatch import decode_dispatch
from store.format.derived.index_layout import (
    HEADER_SIZE,
    IndexEntry,
    IndexHeader,
    decode_index_entry,
    decode_index_header,
    encode_index_entry,
    encode_index_header,
    entry_position,
    file_size_bytes,
    index_key,
    key_hash,
    slot_of,
    slot_position,
)
from store.format.sys_flag import TransactionType, transaction_type
from tests.support.fixture_stores import walk_frames

HEADER = IndexHeader(1, 2, 3, 4, 5, 6)
STORED_HEADER = bytes.fromhex("0000000000000001 0000000000000002 0000000000000003 0000000000000004 00000005 00000006")
ENTRY = IndexEntry(7, 8, 9, 10)
STORED_ENTRY = bytes.fromhex("00000007 0000000000000008 00000009 0000000a")
# Slots and entries a file: as the fixtures' README says.
SHAPES = {"broker": (500, 1000), "engine": (97, 200), "engine_crc": (97, 200)}


def test_header_and_entry_have_their_bytes() -> None:
    assert encode_index_header(HEADER) == STORED_HEADER
    assert decode_index_header(STORED_HEADER) == HEADER
    assert encode_index_entry(ENTRY) == STORED_ENTRY
    assert decode_index_entry(b"x" + STORED_ENTRY, 1) == ENTRY


def test_every_prefix_is_refused() -> None:
    for size in range(40):
        with pytest.raises(struct.error):
            decode_index_header(STORED_HEADER[:size])
    for size in range(20):
        with pytest.raises(struct.error):
            decode_index_entry(STORED_ENTRY[:size])


def test_places_in_a_file() -> None:
    assert slot_position(0) == 40
    assert slot_position(3) == 52
    assert entry_position(0, 97) == 40 + 97 * 4
    assert entry_position(2, 97) == 40 + 97 * 4 + 40
    assert file_size_bytes(5_000_000, 20_000_000) == 420_000_040


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("Aa", 2112), ("topic#key", 386934027), ("b_order#订单1196", 481818814), ("polygenelubricants", 0)],
)
def test_key_hash_is_java_s_made_positive(text: str, expected: int) -> None:
    """The hash of the last is -2^31, whose absolute value Java cannot hold."""
    assert expected == key_hash(text)


def test_index_key_joins_topic_and_key() -> None:
    assert index_key("b_order", "k 1") == "b_order#k 1"


@pytest.mark.parametrize("name", SHAPES)
def test_entries_of_rocketmq_are_our_keys_and_hashes(name: str, request: pytest.FixtureRequest) -> None:
    """Every entry of every file is a key of a record of the log, in the chain of its slot; none is missing."""
    root: Path = request.getfixturevalue(f"{name}_store")
    slot_count, entry_count_max = SHAPES[name]
    expected: Counter[tuple[int, int]] = Counter()
    for offset, frame in walk_frames(root):
        dispatch = decode_dispatch(frame, 0, offset)
        if transaction_type(dispatch.sys_flag) is TransactionType.ROLLBACK:
            continue
        for key in ((dispatch.unique_key,) if dispatch.unique_key else ()) + dispatch.keys:
            expected[key_hash(index_key(dispatch.topic, key)), offset] += 1

    found: Counter[tuple[int, int]] = Counter()
    for path in (root / "index").iterdir():
        data = path.read_bytes()
        assert file_size_bytes(slot_count, entry_count_max) == len(data)
        header = decode_index_header(data)
        assert header == decode_index_header(encode_index_header(header)[:HEADER_SIZE])
        numbers: set[int] = set()
        used = 0
        for slot in range(slot_count):
            number: int = struct.unpack_from(">i", data, slot_position(slot))[0]
            used += number > 0
            while number > 0:
                entry = decode_index_entry(data, entry_position(number, slot_count))
                assert slot == slot_of(entry.key_hash, slot_count)
                assert entry.previous < number
                found[entry.key_hash, entry.commit_log_offset] += 1
                numbers.add(number)
                number = entry.previous
        assert numbers == set(range(1, header.entry_count))
        # RocketMQ counts a slot again each time that it is empty before a put: never, once used.
        assert used == header.used_slot_count
    assert expected == found
