"""Queue offsets as runs, against sets of offsets."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analytics.tables import RUN_SCHEMA, runs_of
from store.format.sys_flag import TransactionType

Record = tuple[str, int, int, int]  # topic, queue id, queue offset, sysFlag
RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "日志"]),
        st.integers(0, 2),
        st.integers(0, 20) | st.integers(-(1 << 63), (1 << 63) - 2),
        st.sampled_from([0, 1, 4, 8, 12, 0x31]),
    ),
    max_size=60,
)


def _batches(records: Sequence[Record], size: int) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(records), size):
        topics, queue_ids, offsets, flags = zip(*records[at : at + size], strict=True)
        yield pa.RecordBatch.from_pydict(
            {
                "topic": pa.array(topics, pa.string()),
                "queueId": pa.array(queue_ids, pa.int32()),
                "queueOffset": pa.array(offsets, pa.int64()),
                "sysFlag": pa.array(flags, pa.int32()),
            }
        )


def _runs(records: Sequence[Record], size: int = 7) -> list[tuple[str, int, int, int]]:
    found = []
    for batch in runs_of(_batches(records, size)):
        assert batch.schema == RUN_SCHEMA
        found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


@given(RECORDS, st.integers(1, 10))
def test_runs_hold_each_queued_offset_as_often_as_the_log(records: list[Record], size: int) -> None:
    expected = defaultdict(list)
    for topic, queue_id, offset, flags in records:
        if flags & 0xC not in (TransactionType.PREPARED, TransactionType.ROLLBACK):
            expected[topic, queue_id].append(offset)
    found = defaultdict(list)
    for topic, queue_id, first, last in _runs(records, size):
        found[topic, queue_id] += range(first, last + 1)
    assert {queue: sorted(offsets) for queue, offsets in found.items()} == {
        queue: sorted(offsets) for queue, offsets in expected.items()
    }


def test_a_queue_without_gaps_is_one_run_however_many_batches_it_came_in() -> None:
    records = [("a", queue_id, offset, 0) for offset in range(100) for queue_id in (0, 1)]
    assert sorted(_runs(records, size=9)) == [("a", 0, 0, 99), ("a", 1, 0, 99)]


def test_no_record_no_run() -> None:
    assert _runs([]) == []
    assert _runs([("a", 0, 5, TransactionType.PREPARED)]) == []
