"""The queue units of many records at once, by queue: `queue_units.py` over columns.

This module needs numpy. A builder without work does not import it, which saves memory.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from store.derive.dispatch_columns import DispatchColumns
from store.derive.queue_placement import UnitRun
from store.derive.queue_units import NO_UNIT_BIT
from store.format.queue_unit import UNIT_SIZE_BYTES

# One unit as in the file: commit-log offset, record size, tags code; big-endian, 20 bytes.
UNIT_DTYPE = np.dtype([("commit_log_offset", ">i8"), ("record_size_bytes", ">i4"), ("tags_code", ">i8")])

assert UNIT_DTYPE.itemsize == UNIT_SIZE_BYTES


class QueueRuns(NamedTuple):
    """The units of one queue, in log order."""

    topic: str
    queue_id: int
    runs: list[UnitRun]


def place_runs(columns: DispatchColumns) -> Iterator[QueueRuns]:
    """The units of records, by queue, as runs of consecutive positions; records that have no unit are left out."""
    places = np.flatnonzero(columns.sys_flags & NO_UNIT_BIT == 0)
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
    units["tags_code"] = columns.tags_codes[places]

    opens_queue = np.append(True, queues[1:] != queues[:-1])
    opens_run = opens_queue.copy()
    # A damaged position may be any 64 bits. No run continues at a negative one, so no run wraps around at 2^63.
    opens_run[1:] |= (positions[1:] - 1 != positions[:-1]) | (positions[1:] <= 0)
    starts = np.flatnonzero(opens_run)
    data = memoryview(units.tobytes())
    runs: list[UnitRun] = []
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
                yield QueueRuns(topic, queue_id, runs)
            topic, queue_id, runs = (
                columns.topics[int(columns.topic_numbers[place])],
                int(columns.queue_ids[place]),
                [],
            )
        runs.append(UnitRun(position, data[begin * UNIT_SIZE_BYTES : end * UNIT_SIZE_BYTES]))
    yield QueueRuns(topic, queue_id, runs)
