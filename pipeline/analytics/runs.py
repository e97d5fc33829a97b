"""Queue offsets as runs: a queue without gaps is one row.

    log order     A0 A1 B0 A2 B1 A4
    runs          A 0..2, B 0..1, A 4..4      A lacks 3

A task reads records in log order. There, the offsets of each queue are consecutive, so that a task returns one row for
each queue and one more for each gap, for any count of records. An offset in no run is missing; an offset in two runs is
repeated.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store.derive.queue_placement import NO_UNIT_BIT

RUN_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
    ]
)
EMITTED_RUN_COUNT = 65_536  # runs in a batch of rows; it limits the memory that a hostile log can make a task use

Int64s = npt.NDArray[np.int64]


def runs_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: makes rows of RUN_SCHEMA from the columns topic, queueId, queueOffset and sysFlag.

    A run never has an offset twice. Runs of one queue may come in any order and may overlap.
    """
    open_runs: dict[tuple[str, int], tuple[int, int]] = {}
    closed: list[tuple[str, int, int, int]] = []
    for batch in batches:
        for topic, queue_id, first, last in batch_runs(batch):
            before = open_runs.get((topic, queue_id))
            if before is not None and first == before[1] + 1:
                open_runs[topic, queue_id] = (before[0], last)
                continue
            if before is not None:
                closed.append((topic, queue_id, *before))
            open_runs[topic, queue_id] = (first, last)
        if len(closed) >= EMITTED_RUN_COUNT:
            yield _rows(closed)
            closed = []
    closed += [(topic, queue_id, *run) for (topic, queue_id), run in open_runs.items()]
    if closed:
        yield _rows(closed)


def batch_runs(batch: pa.RecordBatch) -> list[tuple[str, int, int, int]]:
    """Topic, queue id, first and last queue offset of each run within one batch, by queue and offset."""
    in_queue = batch.column("sysFlag").to_numpy() & NO_UNIT_BIT == 0
    if not in_queue.all():
        batch = batch.filter(pa.array(in_queue))
    if not batch.num_rows:
        return []
    topics = pc.dictionary_encode(batch.column("topic"))
    topic_numbers = topics.indices.to_numpy()
    queue_ids = batch.column("queueId").to_numpy()
    offsets = batch.column("queueOffset").to_numpy()
    order = np.lexsort((offsets, queue_ids, topic_numbers))
    topic_numbers, queue_ids, offsets = topic_numbers[order], queue_ids[order], offsets[order]
    breaks = (
        (topic_numbers[1:] != topic_numbers[:-1])
        | (queue_ids[1:] != queue_ids[:-1])
        | (offsets[1:] != offsets[:-1] + 1)
    )
    begins = np.flatnonzero(np.concatenate(([True], breaks)))
    ends = np.append(begins[1:], len(offsets)) - 1
    names = topics.dictionary.to_pylist()
    return [
        (names[number], queue_id, first, last)
        for number, queue_id, first, last in zip(
            topic_numbers[begins].tolist(),
            queue_ids[begins].tolist(),
            offsets[begins].tolist(),
            offsets[ends].tolist(),
            strict=True,
        )
    ]


def _rows(runs: list[tuple[str, int, int, int]]) -> pa.RecordBatch:
    columns = list(zip(*runs, strict=True))
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, RUN_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RUN_SCHEMA)
