"""The index of a segment: the places of its records and keys as sorted numbers. A lookup reads a few blocks.

    +--------+-------+-----------+------------------+-----------------------------------+
    | header | front | positions | rows             | key hashes       | key records    |
    +--------+-------+-----------+------------------+-----------------------------------+
      40 B             u32 each, in blocks of 1024 (4 KiB), little-endian

    positions    of each record, in log order: its first byte in the log file
    rows         of each record: its row in the segment's Parquet files, counted over all of them
    key hashes   of each key, rising: the IndexFile's hash of `topic#key` (`store/format/derived/index_layout.key_hash`)
    key records  of each key: the number of its record in log order; rising where hashes are equal
    front        queue runs, 48 bytes each; then for each block its first number and its CRC-32, u32 each
    header       magic, version | record count | key count | queue run count | CRC-32 of header and front

A queue run is a range of rows of one Parquet file that holds the messages of one queue, by rising queue offset.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from store.archive.manifest import damaged
from store.archive.sorted_rows import SortedRows

Uint32s = npt.NDArray[np.uint32]
ReadAt = Callable[[int, int], bytes]

MAGIC = b"RPAX"
VERSION = 1
BLOCK_COUNT = 1024
BLOCK_BYTES = 4 * BLOCK_COUNT
HEADER = struct.Struct("<4sIQQQII")
# file number, queue id, first row in the segment, rows, first and last queue offset
RUN_DTYPE = np.dtype("<i8")
RUN_FIELD_COUNT = 6
# Limit of the front: 2^32 records and as many keys of a segment need 64 MiB for their blocks.
FRONT_BYTES_MAX = 1 << 28


class QueueRun(NamedTuple):
    """Messages of one queue in one Parquet file; rows count over all files of the segment."""

    file_number: int
    queue_id: int
    first_row: int
    row_count: int
    first_queue_offset: int
    last_queue_offset: int

    @property
    def is_dense(self) -> bool:
        """Whether every queue offset between the first and the last has a row."""
        return self.last_queue_offset - self.first_queue_offset + 1 == self.row_count


def encode_segment_index(
    positions: Uint32s, rows: Uint32s, key_hashes: Uint32s, key_records: Uint32s, runs: list[QueueRun]
) -> bytes:
    """The file's bytes.

    Args:
        positions: of records in their log file, rising.
        rows: of the same records.
        key_hashes: in any order.
        key_records: of the same keys, each the number of its record in log order.
        runs: of the queues.
    """
    order = np.lexsort((key_records, key_hashes))
    sections = [positions, rows, key_hashes[order], key_records[order]]
    heads: list[bytes] = []
    bodies: list[bytes] = []
    for section in sections:
        data = np.ascontiguousarray(section, dtype="<u4").tobytes()
        bodies.append(data)
        for at in range(0, len(data), BLOCK_BYTES):
            block = data[at : at + BLOCK_BYTES]
            heads.append(block[:4] + zlib.crc32(block).to_bytes(4, "little"))
    front = np.array(runs, dtype=RUN_DTYPE).tobytes() + b"".join(heads)
    header = HEADER.pack(MAGIC, VERSION, len(positions), len(key_hashes), len(runs), 0, 0)
    crc = zlib.crc32(front, zlib.crc32(header))
    header = HEADER.pack(MAGIC, VERSION, len(positions), len(key_hashes), len(runs), crc, 0)
    return b"".join((header, front, *bodies))


def _read_blocks(file: Path, read: ReadAt, begin: int, row_count: int, crcs: Uint32s, first: int, end: int) -> Uint32s:
    """The numbers of blocks [first, end) of a section; StoreCorruptedError for the first whose CRC does not match."""
    blocks = []
    for number in range(first, end):
        at = begin + number * BLOCK_BYTES
        size = min(BLOCK_BYTES, 4 * row_count - number * BLOCK_BYTES)
        data = read(at, size)
        if len(data) != size or zlib.crc32(data) != int(crcs[number]):
            raise damaged(file, at, f"the CRC-32 of the {size} bytes there does not match")
        blocks.append(np.frombuffer(data, dtype="<u4"))
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def _fences(firsts: Uint32s, field: str) -> Uint32s:
    return firsts


class SegmentIndex:
    """A segment's index, opened: header and front in memory, blocks read at need.

    Args:
        file: its path, for errors.
        read: returns up to so many bytes from a position on; called for each block.

    Raises:
        StoreCorruptedError: header or front are damaged.
    """

    def __init__(self, file: Path, read: ReadAt) -> None:
        head = read(0, HEADER.size)
        if len(head) < HEADER.size:
            raise damaged(file, len(head), "it ends inside its header")
        magic, version, self.record_count, self.key_count, run_count, crc, reserved = HEADER.unpack(head)
        if (magic, version) != (MAGIC, VERSION):
            raise damaged(file, 0, f"it begins with {magic!r} {version}, not {MAGIC!r} {VERSION}")
        if reserved:
            raise damaged(file, HEADER.size - 4, f"its reserved number is {reserved}, not 0")
        counts = (self.record_count, self.record_count, self.key_count, self.key_count)
        block_counts = [-(-count // BLOCK_COUNT) for count in counts]
        runs_bytes = run_count * RUN_FIELD_COUNT * 8
        front_bytes = runs_bytes + 8 * sum(block_counts)
        if front_bytes > FRONT_BYTES_MAX:
            raise damaged(file, 8, f"it claims a front of {front_bytes} bytes")
        front = read(HEADER.size, front_bytes)
        zeroed = HEADER.pack(magic, version, self.record_count, self.key_count, run_count, 0, 0)
        if len(front) != front_bytes or zlib.crc32(front, zlib.crc32(zeroed)) != crc:
            raise damaged(file, HEADER.size, f"the CRC-32 of the {front_bytes} bytes there does not match")
        rows = np.frombuffer(front, dtype=RUN_DTYPE, count=run_count * RUN_FIELD_COUNT).reshape(-1, RUN_FIELD_COUNT)
        self.runs = [QueueRun(*row) for row in rows.tolist()]
        heads = np.frombuffer(front, dtype="<u4", offset=runs_bytes).reshape(-1, 2)
        sections = []
        begin, head_at = HEADER.size + front_bytes, 0
        for count, block_count in zip(counts, block_counts, strict=True):
            firsts, crcs = heads[head_at : head_at + block_count].T
            read_blocks = partial(_read_blocks, file, read, begin, count, crcs)
            sections.append(SortedRows(count, BLOCK_COUNT, read_blocks, partial(_fences, firsts)))
            begin += 4 * count
            head_at += block_count
        self._positions, self._rows, self._hashes, self._records = sections

    def row_at(self, position: int) -> int | None:
        """The row of the record that starts at that byte of the log file; None when none does."""
        found = self._positions.find(position)
        return None if found is None else int(self._rows.rows(found[0], found[0] + 1)[0])

    def positions_of_key(self, hash_: int, below_position: int | None = None) -> Iterator[int]:
        """Where records with a key of that hash start in the log file, falling, each once.

        Args:
            hash_: see `store/format/derived/index_layout.key_hash`.
            below_position: only records that start before that byte; None: all.
        """
        below = self.record_count if below_position is None else self._positions.search(max(below_position, 0))
        last = -1
        for first, hashes in self._hashes.equal(hash_):
            if not len(hashes):
                continue
            for number in self._records.rows(first, first + len(hashes))[::-1].tolist():
                if number < below and number != last:
                    yield int(self._positions.rows(number, number + 1)[0])
                last = number

    def all_positions(self) -> Uint32s:
        """Where each record starts in the log file, rising."""
        return self._positions.rows(0, self.record_count) if self.record_count else np.empty(0, dtype="<u4")

    def check_blocks(self) -> None:
        """Reads every block; StoreCorruptedError for the first whose CRC does not match."""
        for section in (self._positions, self._rows, self._hashes, self._records):
            for begin in range(0, section.row_count, BLOCK_COUNT):
                section.rows(begin, min(begin + BLOCK_COUNT, section.row_count))
