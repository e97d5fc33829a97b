"""Damaged index files: whatever the bytes are, a search ends in as many steps as the file has entries, and what it finds is
compared with the log before it counts.

RocketMQ 5.3.3 follows a chain of two entries that point at each other for ever (PR 8018, never merged).
"""

import itertools
import random
import struct
import time
from pathlib import Path

import pytest

from gateway.ports.shards import Shards
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import (
    ENTRY_SIZE,
    HEADER_SIZE,
    IndexEntry,
    IndexHeader,
    encode_index_entry,
    encode_index_header,
    entry_position,
    key_hash,
    slot_position,
)
from store.readers.index_reader import IndexFileView, IndexLayout, Walk, search_views
from tests.torture.amount import amount
from tests.torture.answers import FAN_OUT, ask, right_answers
from tests.torture.local_shard import LocalShard
from tests.torture.log_zoo import FILE_BYTES, make_zoo
from tests.torture.memory_files import MemoryFileSystem
from tests.torture.seeds import pick_seed

PATH = Path("/store/index/20260101000000000")
LAYOUT = IndexLayout(7, 16)
ENTRY_COUNT = LAYOUT.entry_count_max - 1
HASH = 4711
T0 = 1_700_000_000_000


def _view(data: bytes) -> tuple[IndexFileView, MemoryFileSystem]:
    fs = MemoryFileSystem()
    fs.put(PATH, data)
    return IndexFileView(OpenFiles(fs), PATH, LAYOUT), fs


def _file(links: dict[int, int], head: int, *, falling_offsets: bool = False) -> bytearray:
    """A full file whose entries all have one hash; each points at the one before unless told otherwise."""
    header = IndexHeader(T0, T0 + 60_000, 0, 100 * ENTRY_COUNT, 1, LAYOUT.entry_count_max)
    data = bytearray(encode_index_header(header).ljust(LAYOUT.file_size_bytes, b"\0"))
    struct.pack_into(">i", data, slot_position(HASH % LAYOUT.slot_count), head)
    for number in range(1, LAYOUT.entry_count_max):
        offset = 100 * (ENTRY_COUNT - number if falling_offsets else number)
        entry = IndexEntry(HASH, offset, number, links.get(number, number - 1))
        at = entry_position(number, LAYOUT.slot_count)
        data[at : at + ENTRY_SIZE] = encode_index_entry(entry)
    return data


def _search(view: IndexFileView) -> tuple[list[int], int, Walk]:
    """Candidates, entries read, and what the walk met."""
    steps = 0
    read = view.entry

    def count(number: int) -> IndexEntry | None:
        nonlocal steps
        steps += 1
        assert steps <= 10 * ENTRY_COUNT, "the search runs in a circle"
        return read(number)

    view.entry = count  # type: ignore[method-assign]  # counts what is read of a real file
    walk = Walk()
    found = search_views([view], HASH, below_offset=None, begin_millis=0, end_millis=1 << 62, count=10_000, walk=walk)
    return found, steps, walk


@pytest.mark.parametrize("falling_offsets", [False, True])
def test_rmq_8018_a_cycle_of_one_or_two_entries_never_spins(falling_offsets: bool) -> None:
    """All of them, from every head: an entry that points at itself, and every pair that point at each other."""
    numbers = range(1, LAYOUT.entry_count_max)
    cycles = [{a: a} for a in numbers] + [{a: b, b: a} for a, b in itertools.combinations(numbers, 2)]
    count = 0
    for cycle in cycles:
        for head in numbers:
            view, _ = _view(bytes(_file(cycle, head, falling_offsets=falling_offsets)))
            began = time.monotonic()
            found, steps, walk = _search(view)
            assert steps <= ENTRY_COUNT
            assert time.monotonic() - began < 10
            assert found == sorted(set(found), reverse=True)
            # From a head below the cycle the walk never comes there; else it is noticed.
            assert walk.damaged_chain_count == (1 if head >= min(cycle) and _meets(cycle, head) else 0), (cycle, head)
            count += 1
    print(f"{count} cycles and heads")


def _meets(cycle: dict[int, int], head: int) -> bool:
    """Whether the chain from `head` reaches an entry that does not point to an older one."""
    number, seen = head, set()
    while number > 0 and number not in seen:
        seen.add(number)
        following = cycle.get(number, number - 1)
        if following >= number:
            return True
        number = following
    return False


def test_a_search_from_any_head_ends() -> None:
    for head in (-(1 << 31), -1, 0, 1, ENTRY_COUNT, ENTRY_COUNT + 1, LAYOUT.entry_count_max + 1, (1 << 31) - 1):
        found, steps, _ = _search(_view(bytes(_file({}, head)))[0])
        assert steps <= ENTRY_COUNT
        assert len(found) == (head if 0 < head <= ENTRY_COUNT else 0)


def test_random_bytes_end_in_bounded_steps() -> None:
    """Files of noise, and good files with some of their bytes overwritten; headers that count 2^31-1 entries among them."""
    random_ = random.Random(pick_seed("index damage"))
    longest = 0.0
    count = amount(sample=1000, change=10_000, full=1_000_000)
    for number in range(count):
        if number % 2:
            data = bytearray(random_.randbytes(LAYOUT.file_size_bytes))
            struct.pack_into(">i", data, 36, random_.choice((0, 1, 2, ENTRY_COUNT, 1 << 20, (1 << 31) - 1)))
        else:
            data = _file({}, ENTRY_COUNT)
            for _ in range(random_.randrange(1, 40)):
                data[random_.randrange(len(data))] = random_.randrange(256)
        if random_.random() < 0.1:
            del data[random_.randrange(HEADER_SIZE, len(data)) :]
        view, _ = _view(bytes(data))
        began = time.monotonic()
        found, steps, _ = _search(view)
        longest = max(longest, time.monotonic() - began)
        assert steps <= ENTRY_COUNT + 1, (number, steps)
        assert found == sorted(set(found), reverse=True)
        assert not found or found[-1] >= 0
    print(f"{count} files, the longest search {longest * 1000:.1f} ms")
    assert longest < 10


def test_what_a_damaged_index_finds_is_compared_with_the_log(tmp_path: Path) -> None:
    """Queries by key and unique key over a real store whose index is overwritten at random while it is served."""
    random_ = random.Random(pick_seed("index damage under queries"))
    zoo, fs = make_zoo(), MemoryFileSystem()
    for at in range(0, len(zoo.data), FILE_BYTES):
        fs.put(tmp_path / "commitlog" / f"{at:020d}", zoo.data[at : at + FILE_BYTES])
    shard = LocalShard(tmp_path, fs)
    shard.catch_up()
    truth = right_answers(zoo.records)
    questions = [question for question in truth if question[0] in ("key", "unique key")]
    path = shard.index_files.paths()[0]
    whole = fs.bytes_of(path)
    offsets = [record.commit_log_offset for record in zoo.records]
    counts = {"right": 0, "less": 0, "refused": 0}
    try:
        for _ in range(amount(sample=100, change=800, full=100_000)):
            data = bytearray(whole)
            for _ in range(random_.randrange(1, 30)):
                if random_.random() < 0.5:
                    data[random_.randrange(len(data))] = random_.randrange(256)
                else:
                    # An entry of a hash asked for, with any offset: a hit that is none.
                    number = random_.randrange(1, 40)
                    hash_ = key_hash("#".join(random_.choice(questions)[1:]))
                    entry = IndexEntry(hash_, random_.choice((*offsets, 5, 1 << 40, -1)), 0, random_.randrange(40))
                    at = entry_position(number, 17)
                    data[at : at + ENTRY_SIZE] = encode_index_entry(entry)
            fd = fs.open(path, 2)
            fs.pwrite(fd, data, 0)
            fs.close(fd)
            shards = Shards([shard.shard()], FAN_OUT)
            for question in questions:
                answer = ask(shards, question)
                assert all(record in truth[question] for record in answer.records)
                kind = "refused" if answer.error else "right" if answer.records == truth[question] else "less"
                counts[kind] += 1
    finally:
        shard.close()
    print(counts)
