"""The records of the topic `rmq_sys_REPUT_CONSUMER_STATE`, taken apart by consumer group: one row for each change.

A state record has the changes of many groups. As rows they can go to one task for each group, which applies them in the
order of the log (`replay.py`). The bodies are `reput.consumer.v1.StateRecord`; consumer_svc writes them.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from google.protobuf.message import DecodeError

from reput.consumer.v1 import state_pb2 as pb
from services.following.state_topic.state_writer import CHANGE, FULL
from store.errors import StoreCorruptedError

STATE_TOPIC = "rmq_sys_REPUT_CONSUMER_STATE"
COLUMNS = ("physicalOffset", "storeTimestamp", "tags", "body")
CHANGE_SCHEMA = pa.schema(
    [
        pa.field("consumer_group", pa.string(), nullable=False),
        pa.field("commit_log_offset", pa.int64(), nullable=False),
        pa.field("number", pa.int32(), nullable=False),  # its place within the record
        pa.field("time_millis", pa.int64(), nullable=False),  # when the record was stored
        pa.field("is_full", pa.bool_(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),  # a Change, or a GroupState of a full state
    ]
)
Row = tuple[str, int, int, int, bool, bytes]


def changes_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: makes rows of CHANGE_SCHEMA from the columns COLUMNS of the topic's records.

    Raises:
        StoreCorruptedError: a body is no state record.
    """
    for batch in batches:
        times = batch.column("storeTimestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        rows: list[Row] = []
        for offset, micros, kind, body in zip(
            batch.column("physicalOffset").to_pylist(),
            times,
            batch.column("tags").to_pylist(),
            batch.column("body").to_pylist(),
            strict=True,
        ):
            if kind in (CHANGE, FULL):
                rows += _rows_of(offset, micros // 1000, kind, body)
        if rows:
            columns = list(zip(*rows, strict=True))
            arrays = [pa.array(column, field.type) for column, field in zip(columns, CHANGE_SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=CHANGE_SCHEMA)


def group_of(change: pb.Change) -> str | None:
    """The group that a change is about; None for a change of settings, and for one of a later version."""
    match change.WhichOneof("change"):
        case None | "group_set":
            return None
        case "group_deleted":
            return change.group_deleted.consumer_group
        case kind:
            name: str = getattr(change, kind).queue.consumer_group
            return name


def _rows_of(offset: int, time_millis: int, kind: str, body: bytes) -> Iterator[Row]:
    try:
        record = pb.StateRecord.FromString(body)
    except DecodeError as error:
        raise StoreCorruptedError(
            f"the record at {offset} of topic {STATE_TOPIC} is no state record: {error}",
            file=STATE_TOPIC,
            offset=offset,
        ) from error
    if kind == FULL:
        for number, group in enumerate(record.groups):
            yield group.settings.consumer_group, offset, number, time_millis, True, group.SerializeToString()
        return
    for number, change in enumerate(record.changes):
        name = group_of(change)
        if name is not None:
            yield name, offset, number, time_millis, False, change.SerializeToString()
