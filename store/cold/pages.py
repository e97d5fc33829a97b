"""Sorted rows in pages of 4 KiB. A lookup reads one page, and each page has its CRC.

    index object   | units ... | keys ... | positions ... | fences |
    page           | 4080 bytes of rows, filled up with zeros | CRC-32 of them, u32 | 12 zeros

    units       28 bytes: queue offset i64, store time in ms i64, place; by queue, then queue offset
    keys        16 bytes: the IndexFile's hash of `topic#key` u32, place; by hash, then position
    positions   12 bytes: the place of each record, rising
    place       where the record starts in the log file u32, its size u32, the CRC-32 of all its bytes u32
    fences      for each page of units its first queue offset and store time, 2 i64; of keys its first hash, u32; of
                positions its first, u32

Little-endian. Positions and sizes are bytes of the log file. The CRC of the fences stands in the manifest.
"""

import zlib
from typing import Any

import numpy as np

from store.archive.sorted_rows import Rows

_PLACE = [("position", "<u4"), ("size_bytes", "<u4"), ("crc32", "<u4")]
UNIT = np.dtype([("queue_offset", "<i8"), ("store_time_millis", "<i8"), *_PLACE])
KEY = np.dtype([("hash", "<u4"), *_PLACE])
POSITION = np.dtype(_PLACE)
PAGE_BYTES = 4096
ROWS_BYTES = 4080

assert (UNIT.itemsize, KEY.itemsize, POSITION.itemsize) == (28, 16, 12)


def rows_per_page(dtype: np.dtype[Any]) -> int:
    """How many rows a page holds."""
    return ROWS_BYTES // dtype.itemsize


def page_count(dtype: np.dtype[Any], row_count: int) -> int:
    """How many pages so many rows need."""
    return -(-row_count // rows_per_page(dtype))


def encode_pages(rows: Rows) -> bytes:
    """The pages of a section."""
    size = rows_per_page(rows.dtype) * rows.dtype.itemsize
    data = rows.tobytes()
    pages = []
    for at in range(0, len(data), size):
        page = data[at : at + size].ljust(ROWS_BYTES, b"\0")
        pages.append(page + zlib.crc32(page).to_bytes(4, "little") + bytes(PAGE_BYTES - ROWS_BYTES - 4))
    return b"".join(pages)


def is_page(data: bytes) -> bool:
    """Whether it is a page, and its CRC matches."""
    return len(data) == PAGE_BYTES and zlib.crc32(data[:ROWS_BYTES]) == int.from_bytes(
        data[ROWS_BYTES : ROWS_BYTES + 4], "little"
    )


def decode_page(data: bytes, dtype: np.dtype[Any], row_count: int) -> Rows:
    """The first `row_count` rows of a page."""
    return np.frombuffer(data, dtype=dtype, count=row_count)


def encode_index(units: Rows, keys: Rows, positions: Rows) -> tuple[bytes, int]:
    """The index object, and where its fences begin (bytes)."""
    pages = encode_pages(units) + encode_pages(keys) + encode_pages(positions)
    unit_fences = units[:: rows_per_page(UNIT)]
    fences = (
        np.column_stack((unit_fences["queue_offset"], unit_fences["store_time_millis"])).astype("<i8").tobytes(),
        keys[:: rows_per_page(KEY)]["hash"].tobytes(),
        positions[:: rows_per_page(POSITION)]["position"].tobytes(),
    )
    return pages + b"".join(fences), len(pages)
