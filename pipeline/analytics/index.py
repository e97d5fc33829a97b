"""Load of the index files, and lengths of the chains of their hash slots.

A lookup of a key walks the chain of its slot from the newest entry to the oldest. With `n` entries in `m` slots, a good
hash gives chains of about `n / m` entries; many long ones mean that keys collide, or that one key is used often.

An entry is in the chain of the slot of its own hash, so chain lengths are counted from the entries alone, without
following links. The audit checks the links.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.object_files import open_root
from store.derive.index_state import ENTRY_DTYPE
from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem, RealFileSystem
from store.format.derived.index_layout import ENTRY_SIZE, HEADER_SIZE, decode_index_header, entry_position
from store.readers.index_reader import IndexLayout, detect_index_layout, list_index_files

# RocketMQ's default sizes, tried before sizes are derived from the files.
USUAL_LAYOUT = IndexLayout(slot_count=5_000_000, entry_count_max=20_000_000)
CHUNK_ENTRY_COUNT = 1 << 20  # 20 MiB of a file at a time


@dataclass(frozen=True, slots=True)
class IndexFileLoad:
    """The load of one index file.

    Attributes:
        file: its name.
        begin_time_millis: store time of its first message, from the header.
        end_time_millis: store time of its last message, from the header.
        entry_count: count of entries.
        entry_capacity: count of entries that fit.
        slot_count: count of hash slots.
        chain_lengths: the lengths that occur, ascending; in entries, from 1.
        chain_counts: count of slots with a chain of each length.
    """

    file: str
    begin_time_millis: int
    end_time_millis: int
    entry_count: int
    entry_capacity: int
    slot_count: int
    chain_lengths: tuple[int, ...]
    chain_counts: tuple[int, ...]

    @property
    def used_slot_count(self) -> int:
        """Count of slots with a chain."""
        return sum(self.chain_counts)


def index_files(root: Path, fs: FileSystem | None = None) -> tuple[list[Path], IndexLayout | None]:
    """The index files of a store root, oldest first, and their layout; None if no file has an entry."""
    fs = fs or RealFileSystem()
    paths = list_index_files(fs, root)
    return paths, detect_index_layout(fs, root, USUAL_LAYOUT) if paths else None


def load_of(path: Path, layout: IndexLayout, fs: FileSystem | None = None) -> IndexFileLoad:
    """Counts the chains of one file.

    Args:
        path: the file.
        layout: its slots and entries.
        fs: the port to the disk.

    Raises:
        StoreCorruptedError: the file is shorter than its header says.
    """
    fs = fs or RealFileSystem()
    fd = fs.open(path, os.O_RDONLY)
    try:
        header = decode_index_header(_read(fs, fd, path, HEADER_SIZE, 0))
        entry_count = max(header.entry_count - 1, 0)
        fs.will_read(fd, entry_position(1, layout.slot_count), entry_position(entry_count + 1, layout.slot_count))
        per_slot = np.zeros(layout.slot_count, dtype=np.int64)
        for first in range(0, entry_count, CHUNK_ENTRY_COUNT):
            count = min(CHUNK_ENTRY_COUNT, entry_count - first)
            position = entry_position(first + 1, layout.slot_count)
            data = _read(fs, fd, path, count * ENTRY_SIZE, position)
            count_slots(np.frombuffer(data, dtype=ENTRY_DTYPE)["key_hash"], per_slot)
    finally:
        fs.close(fd)
    lengths, counts = np.unique(per_slot[per_slot > 0], return_counts=True)
    return IndexFileLoad(
        path.name,
        header.begin_time_millis,
        header.end_time_millis,
        entry_count,
        layout.entry_count_max - 1,
        layout.slot_count,
        tuple(lengths.tolist()),
        tuple(counts.tolist()),
    )


def load_at(path: Path, store: str, layout: IndexLayout) -> IndexFileLoad:
    """`load_of` a file of a store, which is named by its path or URI."""
    return load_of(path, layout, open_root(store)[0])


def count_slots(hashes: npt.NDArray[np.int32], per_slot: npt.NDArray[np.int64]) -> None:
    """Adds one to the slot of each hash."""
    np.add.at(per_slot, hashes.astype(np.int64) % len(per_slot), 1)


def index_tables(loads: Sequence[IndexFileLoad]) -> dict[str, pa.Table]:
    """The tables `index_files` and `index_chains`."""
    time = pa.timestamp("us", "UTC")
    ordered = sorted(loads, key=lambda load: load.file)
    files = {
        "file": pa.array([load.file for load in ordered], pa.string()),
        "begin_time": pa.array([load.begin_time_millis * 1000 for load in ordered], pa.int64()).cast(time),
        "end_time": pa.array([load.end_time_millis * 1000 for load in ordered], pa.int64()).cast(time),
        "entry_count": _counts([load.entry_count for load in ordered]),
        "entry_capacity": _counts([load.entry_capacity for load in ordered]),
        "slot_count": _counts([load.slot_count for load in ordered]),
        "used_slot_count": _counts([load.used_slot_count for load in ordered]),
        "load_factor": pa.array([load.entry_count / load.slot_count for load in ordered], pa.float64()),
        "chain_p50_count": _counts([chain_length_at(load, 0.5) for load in ordered]),
        "chain_p99_count": _counts([chain_length_at(load, 0.99) for load in ordered]),
        "chain_max_count": _counts([max(load.chain_lengths, default=0) for load in ordered]),
        "walked_per_lookup_count": pa.array([walked_per_lookup(load) for load in ordered], pa.float64()),
    }
    chains = {
        "file": pa.array([load.file for load in ordered for _ in load.chain_lengths], pa.string()),
        "chain_length": _counts([length for load in ordered for length in load.chain_lengths]),
        "slot_count": _counts([count for load in ordered for count in load.chain_counts]),
    }
    return {"index_files": pa.table(files), "index_chains": pa.table(chains)}


def chain_length_at(load: IndexFileLoad, part: float) -> int:
    """The least chain length that a share `part` of the used slots does not exceed; 0 without used slots."""
    total = load.used_slot_count
    seen = 0
    for length, count in zip(load.chain_lengths, load.chain_counts, strict=True):
        seen += count
        if seen >= part * total:
            return length
    return 0


def walked_per_lookup(load: IndexFileLoad) -> float:
    """Mean count of entries in the chain that a lookup of a stored key walks, over all entries; 0.0 without entries."""
    if not load.entry_count:
        return 0.0
    squares = sum(length**2 * count for length, count in zip(load.chain_lengths, load.chain_counts, strict=True))
    return squares / load.entry_count


def _counts(values: Sequence[int]) -> pa.Array:
    return pa.array(values, pa.int64())


def _read(fs: FileSystem, fd: int, path: Path, size_bytes: int, position: int) -> bytes:
    data = fs.pread(fd, size_bytes, position)
    if len(data) < size_bytes:
        raise StoreCorruptedError(
            f"{path} ends at byte {position + len(data)}, but its header counts more entries: rebuild the index",
            file=path,
            offset=position + len(data),
        )
    return data
