"""An index file cut back to a checkpoint has the slots that its entries make, whatever part of later writes it holds."""

import random
from unittest import mock

import numpy as np
import pytest

from index_svc import index_file, recovery
from index_svc.index_file import PAGE_SLOT_COUNT, IndexFile
from index_svc.index_file_set import IndexFileSet
from store.derive.dispatch import LastRecord
from store.files.file_system import RealFileSystem
from store.files.json_state import write_json_state
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, entry_position
from store.readers.index_reader import IndexLayout

LAYOUT = IndexLayout(3 * PAGE_SLOT_COUNT + 100, 20_000)
FS = RealFileSystem()


def brute_heads(hashes):
    heads = [0] * LAYOUT.slot_count
    for number, key_hash in enumerate(hashes, 1):
        heads[key_hash % LAYOUT.slot_count] = number
    return heads


def put(live, hashes, first=0):
    numbers = np.arange(first, first + len(hashes), dtype=np.int64)
    live.put(np.array(hashes, dtype=np.int64), numbers * 100, 1_800_000_000_000 + numbers)


class Crashed:
    """A file that was flushed, known to a checkpoint, written on, flushed again, and then left alone."""

    def __init__(self, directory, seed, counts=(3000, 2000)):
        random_ = random.Random(seed)
        # Few hot keys and many others: long chains behind the checkpoint, and slots without any.
        choices = [*range(5), *(random_.randrange(1 << 31) for _ in range(2000))]
        self.before = random_.choices(choices, k=counts[0])
        self.behind = random_.choices(choices, k=counts[1])
        self.path = directory / "20270101000000000"
        files = OpenFiles(FS)
        live = IndexFile.create(files, self.path, LAYOUT, None)
        put(live, self.before)
        live.flush()
        self.header, self.slots_crc = live.state.header, live.slots_crc()
        self.at_checkpoint = self.path.read_bytes()
        put(live, self.behind, counts[0])
        live.flush()
        self.at_crash = self.path.read_bytes()

    def cut_back(self):
        return IndexFile.cut_back(OpenFiles(FS), self.path, LAYOUT, self.header, self.slots_crc)

    def page(self, number):
        begin = HEADER_SIZE + number * PAGE_SLOT_COUNT * SLOT_SIZE
        return slice(begin, min(begin + PAGE_SLOT_COUNT * SLOT_SIZE, HEADER_SIZE + LAYOUT.slot_count * SLOT_SIZE))


@pytest.fixture
def crashed(tmp_path, request):
    return Crashed(tmp_path, seed=str(request.node.name))


def no_long_way():
    return mock.patch.object(index_file, "_heads_from_all_entries", side_effect=AssertionError("read every entry"))


@pytest.mark.parametrize("flushed_pages", [(), (0,), (3,), (0, 2), (0, 1, 2, 3)])
def test_a_kill_within_a_flush_is_undone_by_the_entries_behind_alone(crashed, flushed_pages):
    data = bytearray(crashed.at_crash)
    for number in range(4):
        if number not in flushed_pages:
            data[crashed.page(number)] = crashed.at_checkpoint[crashed.page(number)]
    crashed.path.write_bytes(data)

    with no_long_way():
        live = crashed.cut_back()
    live.flush()

    assert live.state.heads.tolist() == brute_heads(crashed.before)
    assert crashed.path.read_bytes() == crashed.at_checkpoint


def test_a_kill_during_the_cut_finds_the_short_way_again(crashed):
    with (
        mock.patch.object(index_file.OpenFiles, "get", autospec=True, side_effect=killed_when_zeroing()),
        pytest.raises(KeyboardInterrupt),
    ):
        crashed.cut_back()

    with no_long_way():
        live = crashed.cut_back()

    assert live.state.heads.tolist() == brute_heads(crashed.before)


def killed_when_zeroing():
    real = OpenFiles.get

    def get(self, path, *, writing=False):
        file = real(self, path, writing=writing)

        def zero_from(position, size_bytes):
            FS.ftruncate(file.fd, position)
            FS.ftruncate(file.fd, size_bytes)
            raise KeyboardInterrupt

        file.zero_from = zero_from
        return file

    return get


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_may_keep_any_part_of_what_was_not_flushed(tmp_path, seed):
    """Sectors of slots and of entries, each as before or as after."""
    crashed = Crashed(tmp_path, seed)
    random_ = random.Random(seed)
    data = bytearray(crashed.at_crash)
    kept = random_.choice([0.05, 0.5, 0.95])
    first_sector = entry_position(crashed.header.entry_count, LAYOUT.slot_count)
    for begin in [*range(HEADER_SIZE, crashed.page(3).stop, 512), *range(first_sector, len(data), 512)]:
        if random_.random() > kept:
            end = min(begin + 512, len(data))
            data[begin:end] = crashed.at_checkpoint[begin:end]
    crashed.path.write_bytes(data)

    live = crashed.cut_back()
    live.flush()

    assert live.state.heads.tolist() == brute_heads(crashed.before)
    assert crashed.path.read_bytes() == crashed.at_checkpoint


def test_slots_without_their_entries_are_made_from_all_entries(crashed):
    begin = entry_position(crashed.header.entry_count, LAYOUT.slot_count)
    crashed.path.write_bytes(crashed.at_crash[:begin].ljust(len(crashed.at_crash), b"\0"))

    live = crashed.cut_back()

    assert live.state.heads.tolist() == brute_heads(crashed.before)


@pytest.mark.parametrize("head", [-1, 0, 17, 4999, 5001, 19_999, 20_000, (1 << 31) - 1])
def test_a_head_that_rotted_is_made_right(crashed, head):
    position = HEADER_SIZE + (crashed.before[-1] % LAYOUT.slot_count) * SLOT_SIZE
    data = bytearray(crashed.at_crash)
    data[position : position + SLOT_SIZE] = head.to_bytes(SLOT_SIZE, "big", signed=True)
    crashed.path.write_bytes(data)

    assert crashed.cut_back().state.heads.tolist() == brute_heads(crashed.before)


@pytest.mark.parametrize("previous", [-5, 0, 1 << 30])
def test_entries_behind_that_rotted_harm_nothing(crashed, previous):
    data = bytearray(crashed.at_crash)
    for number in range(crashed.header.entry_count, crashed.header.entry_count + 50):
        end = entry_position(number, LAYOUT.slot_count) + ENTRY_SIZE
        data[end - 4 : end] = previous.to_bytes(4, "big", signed=True)
    crashed.path.write_bytes(data)

    assert crashed.cut_back().state.heads.tolist() == brute_heads(crashed.before)


def test_a_file_shorter_than_its_heads_say_is_read_no_further(crashed):
    crashed.path.write_bytes(crashed.at_crash[: entry_position(crashed.header.entry_count + 7, LAYOUT.slot_count) + 9])

    assert crashed.cut_back().state.heads.tolist() == brute_heads(crashed.before)


@pytest.mark.parametrize("knows_crc", [True, False])
def test_a_checkpoint_of_either_kind_brings_the_slots_back(tmp_path, knows_crc):
    """One that an earlier version wrote has no CRC of the slots."""
    live, hashes = saved(tmp_path, is_clean=False)
    put(live, [7] * 40, len(hashes))
    live.flush()
    checkpoint = tmp_path / "checkpoint.json"
    if not knows_crc:
        state = recovery.read_json_state(FS, checkpoint)
        del state["slots_crc"]
        recovery.write_json_state(FS, checkpoint, state)

    assert resumed_heads(tmp_path) == brute_heads(hashes)


def test_a_head_that_rotted_after_a_clean_stop_is_made_right(tmp_path):
    live, hashes = saved(tmp_path, is_clean=True)
    data = bytearray(live.path.read_bytes())
    position = HEADER_SIZE + (hashes[-1] % LAYOUT.slot_count) * SLOT_SIZE
    data[position + 3] ^= 1
    live.path.write_bytes(data)

    assert resumed_heads(tmp_path) == brute_heads(hashes)


def saved(root, *, is_clean):
    files = IndexFileSet(root, FS, LAYOUT, lambda: 1_800_000_000_000)
    live = IndexFile.create(files.files, root / "index" / "20270101000000000", LAYOUT, None)
    hashes = [random.Random(1).randrange(1 << 31) for _ in range(500)]
    put(live, hashes)
    files.adopt_live(live, 49_900, 1)
    files.flush()
    state = recovery.checkpoint_state(files, 50_000, 0, last_record=LastRecord(49_900, 1), is_clean=is_clean)
    write_json_state(FS, root / "checkpoint.json", state)
    return live, hashes


def resumed_heads(root):
    files = IndexFileSet(root, FS, LAYOUT, lambda: 1_800_000_000_000)
    found = recovery.resume(
        FS, root / "checkpoint.json", files, is_clean_store=False, first_indexed=lambda offset: None
    )
    assert found.next_offset == 50_000
    return files.live.state.heads.tolist()
