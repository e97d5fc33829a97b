"""The records of a pull as Arrow batches, by the kernel of `format("commitlog")`: without an object for each message.

    answer of a pull   |record|record|record|      joined
    run                numbers of each record, and the places of its texts and its body in these bytes
    batch              the columns that are asked for

The services have checked the records (`PullMessagesResponse.records`).
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.rocketmq.bodies.compression import decompressed
from pipeline.rocketmq.rows import BROKER
from pipeline.scan.arrow_batches import ArrowBatches, replaced
from pipeline.scan.scan import RecordRun, RowCheck
from pipeline.scan.schema import BODY, own_names
from store.format.message_id import encode_offset_msg_id
from store.format.record import decode_record
from store.format.sys_flag import COMPRESSED
from store.walk.scan_layout import AT, LENGTHS, QUEUE_OFFSET, SIZE, SYS_FLAG

# The gateway's limit for an answer.
RUN_COUNT_MAX = 1_024


def runs_of(records: Sequence[bytes]) -> list[RecordRun]:
    """Records of one queue as runs of at most RUN_COUNT_MAX: one, for what a gateway answers.

    Raises:
        RecordCorruptedError: these bytes are no records.
    """
    data = b"".join(records)
    runs: list[RecordRun] = []
    at = 0
    while at < len(data):
        run, at = RowCheck(LENGTHS, min(len(records), RUN_COUNT_MAX), with_hosts=True).take(data, at, at)
        runs.append(run)
    return runs


def queue_offsets_of(runs: Sequence[RecordRun]) -> list[int]:
    """The positions of the records in their queue, in order."""
    return [offset for run in runs for offset in run.rows_64[QUEUE_OFFSET].tolist()]


def before(runs: Sequence[RecordRun], queue_offset: int) -> list[RecordRun]:
    """The records before a position of their queue."""
    kept = [run.only(run.rows_64[QUEUE_OFFSET] < queue_offset) for run in runs]
    return [run for run in kept if len(run)]


class RecordBatches:
    """Makes batches of one schema of the native view.

    Args:
        schema: the columns; upper and lower case of names are equal.
        broker_name: the shard of all records.
        decompress: bodies as their producers sent them.
    """

    def __init__(self, schema: StructType, broker_name: str, *, decompress: bool) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._broker_name = broker_name
        self._broker_place = next(
            (place for place, name in enumerate(schema.names) if name.lower() == BROKER.name.lower()), None
        )
        of_records = StructType([field for place, field in enumerate(schema) if place != self._broker_place])
        self._names = own_names(of_records)
        self._decompress = decompress
        self._batches = ArrowBatches(to_arrow_schema(of_records, timezone="UTC"), self._names, RUN_COUNT_MAX)

    def batch(self, run: RecordRun) -> pa.RecordBatch:
        """One row for each record.

        Raises:
            BodyCompressionError: a body cannot be decompressed; it names the message.
        """
        columns = [
            _decompressed(column, run) if self._decompress and name == BODY else column
            for name, column in zip(self._names, self._batches.of_run(run).columns, strict=True)
        ]
        if self._broker_place is not None:
            columns.insert(self._broker_place, pa.repeat(self._broker_name, len(run)))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _decompressed(bodies: pa.Array, run: RecordRun) -> pa.Array:
    """The bodies, those that are stored compressed replaced."""
    places = np.flatnonzero(run.rows_32[SYS_FLAG] & COMPRESSED).tolist()
    return replaced(bodies, places, [_plain_body(run, place) for place in places], bodies.type)


def _plain_body(run: RecordRun, place: int) -> bytes:
    at = int(run.rows_64[AT, place])
    record = decode_record(run.data[at : at + int(run.rows_32[SIZE, place])].tobytes())
    offset_msg_id = encode_offset_msg_id(record.store_host, record.commit_log_offset)
    return decompressed(bytes(record.body), record.sys_flag, offset_msg_id)
