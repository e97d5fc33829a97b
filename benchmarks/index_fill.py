"""Our side of row T6: writes keys, given as consecutive bytes, to a whole index file; kernels hash and fill."""

import pathlib
import time

import numpy as np

from benchmarks.stores import TOPIC
from store.compiled import loading
from store.derive.index_fill import KERNEL, IndexFiller
from store.derive.index_state import IndexFileState
from store.files.file_system import RealFileSystem
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import (
    HEADER_SIZE,
    encode_index_header,
    entry_position,
    file_size_bytes,
    index_key,
)

RUN_KEY_COUNT = 1 << 20
RECORD_BYTES, RECORDS_A_SECOND = 1208, 100_000
BEGIN_MILLIS = 1_700_000_000_000


def fill(path: pathlib.Path, slot_count: int, entry_count_max: int, count: int) -> float:
    """Writes a file of `count` keys; returns the seconds that it took."""
    hashing, filling = loading.load("store.derive.dispatch_kernel"), loading.load(KERNEL)
    if hashing is None or filling is None:
        raise RuntimeError("the kernels cannot be loaded")
    _write(path.with_suffix(".warm"), slot_count, entry_count_max, min(count, 1000), hashing)
    return _write(path, slot_count, entry_count_max, count, hashing)


def _write(path: pathlib.Path, slot_count: int, entry_count_max: int, count: int, hashing: object) -> float:
    runs = [range(first, min(first + RUN_KEY_COUNT, count)) for first in range(0, count, RUN_KEY_COUNT)]
    prefix = index_key(TOPIC, "").encode()
    keys = [prefix + " ".join(f"key-{i}" for i in run).encode() for run in runs]
    numbers = np.arange(count, dtype=np.int64)
    offsets, times_millis = numbers * RECORD_BYTES, BEGIN_MILLIS + numbers * 1000 // RECORDS_A_SECOND
    files = OpenFiles(RealFileSystem())
    file = files.create(path, file_size_bytes(slot_count, entry_count_max))  # before the clock starts, as RocketMQ does
    start = time.perf_counter()
    state = IndexFileState.seeded(slot_count, entry_count_max)
    filler = IndexFiller(state, min(RUN_KEY_COUNT, count))
    for run, data in zip(runs, keys, strict=True):
        hashes = np.empty(len(run), dtype=np.int32)
        records = np.empty(len(run), dtype=np.int32)
        made = hashing.hash_keys(data, len(prefix), records, hashes)  # type: ignore[attr-defined]
        assert made == len(run), made
        position = entry_position(state.header.entry_count, slot_count)
        file.write(position, filler.fill(hashes, offsets[run.start : run.stop], times_millis[run.start : run.stop]))
    file.write(HEADER_SIZE, memoryview(state.heads.astype(">i4")).cast("B"))
    file.write(0, encode_index_header(state.header))
    seconds = time.perf_counter() - start
    files.close()
    return seconds
