"""Searching index files: every match, newest first, in bounded time whatever the bytes are."""

import random
import struct

import pytest

from store.derive.index_keys import index_keys
from store.files.file_system import RealFileSystem
from store.format.derived.index_layout import IndexEntry, IndexHeader, encode_index_entry, encode_index_header, key_hash
from store.readers.index_reader import IndexLayout, Walk, detect_index_layout, list_index_files, proven_outside
from tests.support.dispatches import requests_of
from tests.support.readers import IndexReader

T0 = 1_700_000_000_000
BROKER_LAYOUT = IndexLayout(500, 1000)


def by_hash(root):
    """Offsets by key hash, newest first, by brute force over the log."""
    found: dict[int, list[int]] = {}
    times = {}
    for request in requests_of(root):
        times[request.commit_log_offset] = request.store_time_millis
        for key in index_keys(request):
            offsets = found.setdefault(key_hash(key), [])
            if not offsets or offsets[0] != request.commit_log_offset:
                offsets.insert(0, request.commit_log_offset)
    return found, times


def all_keys(root):
    return sorted({(r.topic, key) for r in requests_of(root) for key in (*r.keys, r.unique_key) if key})


def test_every_key_of_a_real_store_is_found_as_brute_force_finds_it(broker_store):
    reader, (expected, _) = IndexReader(broker_store, BROKER_LAYOUT), by_hash(broker_store)

    for topic, key in all_keys(broker_store):
        assert reader.search(topic, key, count=10_000) == expected[key_hash(f"{topic}#{key}")]


def test_a_window_never_hides_a_record_inside_it(broker_store):
    """Seconds are floored and the first entry of a file counts from another begin (issue 5174 of RocketMQ)."""
    reader, (expected, times) = IndexReader(broker_store, BROKER_LAYOUT), by_hash(broker_store)

    for topic, key in all_keys(broker_store)[::7]:
        for offset in expected[key_hash(f"{topic}#{key}")][:3]:
            time = times[offset]
            for begin, end in ((time, time), (time - 1, time), (time, time + 1), (time - 999, time + 999)):
                found = reader.search(topic, key, begin_millis=begin, end_millis=end, count=10_000)
                assert offset in found


def test_a_cursor_goes_on_below_it(broker_store):
    reader = IndexReader(broker_store, BROKER_LAYOUT)
    everything = reader.search("b_order", "AaAa", count=10_000)

    for at in range(len(everything)):
        assert reader.search("b_order", "AaAa", below_offset=everything[at], count=3) == everything[at + 1 : at + 4]


@pytest.mark.parametrize(
    ("number", "seconds", "is_outside"),
    [(5, 1, True), (1, 1, False), (5, 0, False), (5, 2**31 - 1, False), (5, 9, True), (5, 5, False), (5, 4, False)],
)
def test_only_a_second_that_proves_it_leaves_an_entry_out(number, seconds, is_outside):
    entry = IndexEntry(1, 100, seconds, 0)

    assert proven_outside(number, entry, T0, T0 + 4999, T0 + 5500) is is_outside


def test_the_layout_is_found_without_a_hint(broker_store, engine_store):
    fs, wrong = RealFileSystem(), IndexLayout(5_000_000, 20_000_000)

    assert detect_index_layout(fs, broker_store, wrong) == BROKER_LAYOUT
    assert detect_index_layout(fs, engine_store, wrong) == IndexLayout(97, 200)


def test_a_setting_of_the_same_size_does_not_win_over_the_bytes(broker_store):
    misleading = IndexLayout(505, 999)
    assert misleading.file_size_bytes == BROKER_LAYOUT.file_size_bytes

    assert detect_index_layout(RealFileSystem(), broker_store, misleading) == BROKER_LAYOUT


def test_the_layout_is_found_from_a_newest_file_alone(copy_of_broker_store):
    for path in list_index_files(RealFileSystem(), copy_of_broker_store)[:-1]:
        path.unlink()

    assert detect_index_layout(RealFileSystem(), copy_of_broker_store, IndexLayout(1, 2)) == BROKER_LAYOUT


def damaged_file(root, slots, entries, head, links):
    """A file whose entries all have hash 7, linked as told."""
    header = IndexHeader(T0, T0, 0, 100 * len(links), 1, len(links) + 1)
    data = bytearray(encode_index_header(header) + bytes(slots * 4 + entries * 20))
    struct.pack_into(">i", data, 40 + 4 * (7 % slots), head)
    for number, previous in enumerate(links, 1):
        at = 40 + slots * 4 + number * 20
        data[at : at + 20] = encode_index_entry(IndexEntry(7, number * 100, 0, previous))
    directory = root / "index"
    directory.mkdir(exist_ok=True)
    (directory / "20260101000000000").write_bytes(data)


@pytest.mark.parametrize("links", [[1], [2, 1], [3, 1, 2], [0, 99, 2], [-5, 1, 2], [2, 2, 2]])
def test_rmq_8018_a_circle_or_a_wild_link_ends_and_is_counted(tmp_path, links):
    damaged_file(tmp_path, 10, 20, len(links), links)
    walk = Walk()
    (view,) = IndexReader(tmp_path, IndexLayout(10, 20)).views()

    found = [number for number, _, _ in view.chain(7, walk)]

    assert len(found) <= len(links)
    assert walk.damaged_chain_count == 1


def test_random_bytes_end_too(tmp_path):
    layout, random_ = IndexLayout(10, 20), random.Random(5)
    (tmp_path / "index").mkdir()
    for _ in range(300):
        (tmp_path / "index" / "20260101000000000").write_bytes(random_.randbytes(layout.file_size_bytes))
        found = IndexReader(tmp_path, layout).search("t", str(random_.random()), count=1000)
        assert found == sorted(set(found), reverse=True)
        assert len(found) < 20
