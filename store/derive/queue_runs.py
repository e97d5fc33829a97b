"""The queue units of many records at once, by queue: `queue_placement.py` over columns.

This module needs numpy. A builder without work does not import it, which saves memory.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from store.derive.dispatch_columns import DispatchColumns
from store.derive.queue_placement import NO_UNIT_BITS, Buffer, UnitRun
from store.format.derived.queue_ext import HEAD_SIZE_BYTES, bare_unit_count, ext_address
from store.format.derived.queue_unit import UNIT_SIZE_BYTES
from store.format.sys_flag import INNER_BATCH

# One unit as in the file: commit-log offset, record size, tags code; big-endian, 20 bytes.
UNIT_DTYPE = np.dtype([("commit_log_offset", ">i8"), ("record_size_bytes", ">i4"), ("tags_code", ">i8")])
# One unit of ConsumeQueueExt without a bit map (`store/format/derived/queue_ext.py`): as long as a unit of the queue.
EXT_DTYPE = np.dtype([("size", ">i2"), ("tags_code", ">i8"), ("store_time_millis", ">i8"), ("bit_map_size", ">i2")])

assert UNIT_DTYPE.itemsize == UNIT_SIZE_BYTES
assert EXT_DTYPE.itemsize == HEAD_SIZE_BYTES == UNIT_SIZE_BYTES


class QueueRuns(NamedTuple):
    """The units of one queue, in log order."""

    topic: str
    queue_id: int
    runs: list[UnitRun]


class ExtRuns(NamedTuple):
    """Likewise, and for each run the bytes of its units of ConsumeQueueExt: as many as those of the run, or none."""

    topic: str
    queue_id: int
    runs: list[UnitRun]
    ext: list[Buffer]


class Batch(NamedTuple):
    """A record that is an inner batch: its queue, its first position there, and where it lies in the log."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int


def inner_batches(columns: DispatchColumns) -> list[Batch]:
    """The records that are inner batches, in log order; none that is part of a transaction that is open or rolled back."""
    places = np.flatnonzero(columns.sys_flags & NO_UNIT_BITS == INNER_BATCH)
    return [
        Batch(columns.topics[number], queue_id, queue_offset, commit_log_offset)
        for number, queue_id, queue_offset, commit_log_offset in zip(
            columns.topic_numbers[places].tolist(),
            columns.queue_ids[places].tolist(),
            columns.queue_offsets[places].tolist(),
            columns.commit_log_offsets[places].tolist(),
            strict=True,
        )
    ]


def place_runs(columns: DispatchColumns) -> Iterator[QueueRuns]:
    """The units of records, by queue, as runs of consecutive positions; records that have no unit are left out."""
    for topic, queue_id, runs, _ in place_ext_runs(columns, 0):
        yield QueueRuns(topic, queue_id, runs)


def place_ext_runs(columns: DispatchColumns, ext_file_size_bytes: int) -> Iterator[ExtRuns]:
    """Likewise, where the units point to units of ConsumeQueueExt, which hold their tags codes.

    Args:
        columns: the records.
        ext_file_size_bytes: size of the files of ConsumeQueueExt; 0: the units hold their tags codes.
    """
    places = np.flatnonzero(columns.sys_flags & NO_UNIT_BITS == 0)
    if not len(places):
        return
    queues = (
        columns.topic_numbers[places].astype(np.int64) << 32 | columns.queue_ids[places].astype(np.int64) & 0xFFFFFFFF
    )
    order = np.argsort(queues, kind="stable")
    places, queues = places[order], queues[order]
    positions = columns.queue_offsets[places]
    units = np.empty(len(places), dtype=UNIT_DTYPE)
    units["commit_log_offset"] = columns.commit_log_offsets[places]
    units["record_size_bytes"] = columns.record_sizes_bytes[places]
    ext_data = memoryview(b"")
    if ext_file_size_bytes:
        files, numbers = np.divmod(positions, bare_unit_count(ext_file_size_bytes))
        # A damaged position may be any 64 bits, and then this number, too. Its unit is left out.
        units["tags_code"] = files * ext_file_size_bytes + numbers * HEAD_SIZE_BYTES + np.int64(ext_address(0))
        ext = np.empty(len(places), dtype=EXT_DTYPE)
        ext["size"], ext["bit_map_size"] = HEAD_SIZE_BYTES, 0
        ext["tags_code"] = columns.tags_codes[places]
        ext["store_time_millis"] = columns.store_times_millis[places]
        ext_data = memoryview(ext.tobytes())
    else:
        units["tags_code"] = columns.tags_codes[places]

    opens_queue = np.append(True, queues[1:] != queues[:-1])
    opens_run = opens_queue.copy()
    # A damaged position may be any 64 bits. No run continues at a negative one, so no run wraps around at 2^63.
    opens_run[1:] |= (positions[1:] - 1 != positions[:-1]) | (positions[1:] <= 0)
    starts = np.flatnonzero(opens_run)
    data = memoryview(units.tobytes())
    runs: list[UnitRun] = []
    ext_runs: list[Buffer] = []
    topic, queue_id = "", 0
    for begin, end, position, is_new, place in zip(
        starts.tolist(),
        [*starts[1:].tolist(), len(places)],
        positions[starts].tolist(),
        opens_queue[starts].tolist(),
        places[starts].tolist(),
        strict=True,
    ):
        if is_new:
            if runs:
                yield ExtRuns(topic, queue_id, runs, ext_runs)
            topic, queue_id, runs, ext_runs = (
                columns.topics[int(columns.topic_numbers[place])],
                int(columns.queue_ids[place]),
                [],
                [],
            )
        part = slice(begin * UNIT_SIZE_BYTES, end * UNIT_SIZE_BYTES)
        runs.append(UnitRun(position, data[part]))
        ext_runs.append(ext_data[part])
    yield ExtRuns(topic, queue_id, runs, ext_runs)
