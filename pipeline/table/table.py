"""The job `table`: keeps an Iceberg table of a topic up to date, each message in it exactly once.

    stream of format("rocketmq")      where a micro-batch ends, its ranges, its rows (`pipeline/rocketmq/source.py`)
    tasks                             threads: each reads some ranges and writes their rows as files of the table
    one commit                        the files, and the positions behind them (`iceberg.py`)

The table is the checkpoint of the stream. So a killed run leaves files that no snapshot names, and the next one reads the same
messages again. It needs no Spark session: the rows are made in this process, where two threads keep two cores busy (ADR 0174).
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from pipeline.job import JobReport, Progress, silent
from pipeline.rocketmq.bodies.compression import inflated_parts
from pipeline.rocketmq.bodies.formats import JSON
from pipeline.rocketmq.bodies.json_bodies import JsonBodies
from pipeline.rocketmq.positions import Positions, QueueKey, from_checkpoint, to_checkpoint
from pipeline.rocketmq.rows import BATCH_BYTES_MAX, BODY_VALUE
from pipeline.rocketmq.source import RocketMQDataSource, RocketMQStreamReader
from pipeline.scan.arrow_batches import replaced
from pipeline.scan.options import OptionError
from pipeline.scan.schema import BODY
from store.errors import InvalidArgumentError, ResourceBusyError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from pipeline.table.iceberg import TopicTable

# Options of format("rocketmq") that the job sets itself.
OWN_OPTIONS = (
    "endpoint",
    "subscribe",
    "subscribePattern",
    "assign",
    "view",
    "columns",
    "includeBody",
    "includeBroker",
    "decompress",
)
# Of a micro-batch, unless an option says otherwise: it is in memory, and its files are of this order.
BATCH_BYTES = "64m"
LIMITS = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")
SYS_FLAG = "sysFlag"
THREAD_COUNT = 2
# Fewer rows are one file: small files make each query of the table slow.
FILE_ROW_COUNT_MIN = 20_000
# Rows that are in memory and in no file yet, of all threads together: decompressed bodies may be a thousand times BATCH_BYTES.
HELD_BYTES_MAX = 256 << 20
# Each commit is a snapshot, and makes the table's metadata longer until somebody expires it.
COMMIT_SECONDS_DEFAULT = 30.0
# Commits in a row that another run of the same topic has overtaken.
OVERTAKEN_COUNT_MAX = 20


def run(
    endpoint: str,
    topic: str,
    catalog: "Catalog",
    table: str,
    options: Mapping[str, str],
    *,
    until_caught_up: bool = False,
    commit_seconds: float = COMMIT_SECONDS_DEFAULT,
    stop_event: Event | None = None,
    progress: Progress = silent,
    clock: Callable[[], float] = time.monotonic,
) -> JobReport:
    """Adds the messages of a topic to its table, until it is stopped.

    Args:
        endpoint: the gateway, `HOST:PORT`; of several, separated by commas, each is a shard of its own.
        topic: the topic.
        catalog: where the table is.
        table: `NAMESPACE.TABLE`, made if there is none.
        options: of `format("rocketmq")`, but for OWN_OPTIONS. A new table begins at `startingOffsets`, by default the
            earliest.
        until_caught_up: end when the topic, as it is at the start, is in the table.
        commit_seconds: at least so many seconds lie between two commits, unless a micro-batch is full.
        stop_event: set: end behind the micro-batch at hand.
        progress: called with the messages of the topic that are in the table, and how many there are.
        clock: seconds.

    Raises:
        OptionError: an option is wrong.
        InvalidArgumentError: the table is of something else, or its schema does not go to that of the rows.
        DataLostError: retention has removed messages that are not in the table, and `failOnDataLoss` is true.
        ResourceBusyError: another run adds the same messages all the time.
        ServiceUnavailableError: the catalog cannot be reached.
        ReputClientError: the gateway cannot be reached, or has no such topic.
    """
    from pipeline.table.iceberg import PositionsMovedError, TopicTable

    report = JobReport.begin("table")
    stopping = stop_event or Event()
    schema, reader, bodies = _stream(endpoint, topic, options)
    reader.latestOffset(
        to_checkpoint({}), ReadAllAvailable()
    )  # refuses a topic that is not there, before a table is made
    rows = Rows(reader, to_arrow_schema(schema, timezone="UTC"), bodies)
    target = TopicTable.of_topic(catalog, table, topic, rows.schema)

    def resumes_at(key: QueueKey, end: int) -> int:
        last = target.last_store_time_millis(key)
        return 0 if last is None else reader.first_after(key, last)

    reader.resumes_at = resumes_at
    counts = {"row_count": 0, "commit_count": 0, "file_count": 0, "overtaken_count": 0}
    overtaken_count = 0
    try:
        if until_caught_up:
            reader.prepareForTriggerAvailableNow()
        begin = target.positions()
        with ThreadPoolExecutor(THREAD_COUNT, thread_name_prefix="table") as threads:
            while not stopping.is_set():
                started = clock()
                start = reader.initialOffset() if begin is None else to_checkpoint(begin)
                end = reader.latestOffset(start, reader.getDefaultReadLimit())
                # A table without positions gets them also where nothing is to be added: with `latest`, it begins here.
                if end == start and begin is not None:
                    if until_caught_up:
                        break
                    stopping.wait(commit_seconds)
                    continue
                files = rows.written(target, reader.partitions(start, end), threads)
                reached = from_checkpoint(end)
                try:
                    target.append(files, begin, reached)
                except PositionsMovedError:
                    overtaken_count += 1
                    counts["overtaken_count"] += 1
                    if overtaken_count == OVERTAKEN_COUNT_MAX:
                        raise ResourceBusyError(
                            f"Other runs have added the same messages to {table} {OVERTAKEN_COUNT_MAX} times in a row: let one "
                            "run keep a table."
                        ) from None
                    begin = target.positions()
                    continue
                overtaken_count = 0
                reader.commit(end)
                begin = reached
                counts["commit_count"] += 1
                counts["file_count"] += len(files)
                counts["row_count"] += sum(file.record_count for file in files)
                ends = reader.reportLatestOffset()
                left = _behind(begin, ends)
                progress("table", counts["row_count"], counts["row_count"] + left)
                if not until_caught_up and not left:
                    stopping.wait(max(started + commit_seconds - clock(), 0))
    finally:
        reader.stop()
    report.counts |= counts | {"refused_commit_count": target.lost_commit_count}
    report.outputs |= {"table": table, "location": target.location}
    return report.end()


def delete_key(catalog: "Catalog", table: str, key: str) -> JobReport:
    """Deletes the messages with a key or unique key from a table's newest snapshot.

    Raises:
        InvalidArgumentError: there is no such table.
        ServiceUnavailableError: the catalog cannot be reached; nothing is deleted.
    """
    from pipeline.table.iceberg import TopicTable

    report = JobReport.begin("table")
    target = TopicTable.existing(catalog, table)
    report.counts |= {"deleted_count": target.delete_by_key(key), "refused_commit_count": target.lost_commit_count}
    report.outputs |= {"table": table, "location": target.location}
    report.notes.append(
        "Older snapshots of the table still have these messages: expire them, and remove their files, with the engine that "
        "maintains the table. The log and the archive have them until retention removes them."
    )
    return report.end()


class Rows:
    """The rows of ranges, as the table has them.

    Args:
        reader: reads ranges.
        schema: of what it reads.
        bodies: decodes the bodies that are JSON, which may be decoded in part; None: they are decoded whole, or not.

    Attributes:
        schema: of the table's rows; every column may be null, so that columns can come and go.
    """

    def __init__(self, reader: RocketMQStreamReader, schema: pa.Schema, bodies: JsonBodies | None = None) -> None:
        self._reader = reader
        self._bodies = bodies
        self._lock = Lock()
        self._held_bytes = 0
        self.schema = pa.schema([pa.field(field.name, field.type, True) for field in schema])
        for field in schema:
            _refuse_empty_struct(field.name, field.type)

    def written(self, target: "TopicTable", parts: Sequence[InputPartition], threads: ThreadPoolExecutor) -> list[Any]:
        """Reads ranges and writes their rows; returns the files. Rows beyond `HELD_BYTES_MAX` have files of their own."""
        ranges = [part for part in parts if part.value is not None]
        row_count = sum(part.value.message_count for part in ranges)
        count = THREAD_COUNT if row_count >= THREAD_COUNT * FILE_ROW_COUNT_MIN else 1
        self._held_bytes = 0
        if count == 1:  # one file, of ranges that are read side by side
            reads = list(threads.map(lambda each: self._read(target, [each]), ranges))
            rest = [batch for _, held in reads for batch in held]
            return [file for files, _ in reads for file in files] + self._file(target, rest)

        def share(number: int) -> list[Any]:
            files, held = self._read(target, ranges[number::count])
            return files + self._file(target, held)

        return [file for files in threads.map(share, range(count)) for file in files]

    def _read(self, target: "TopicTable", ranges: Sequence[InputPartition]) -> tuple[list[Any], list[pa.RecordBatch]]:
        """The rows of ranges: files of those for which there was no room, and the rest."""
        files: list[Any] = []
        held: list[pa.RecordBatch] = []
        for each in ranges:
            for batch in self._reader.read(each):
                for part in self._as_stored(batch):
                    held.append(part)
                    if self._hold(part.nbytes) > HELD_BYTES_MAX:
                        files += self._file(target, held)
                        self._hold(-sum(each.nbytes for each in held))
                        held = []
        return files, held

    def _hold(self, size_bytes: int) -> int:
        """Bytes that are held now, with so many more."""
        with self._lock:
            self._held_bytes += size_bytes
            return self._held_bytes

    def _file(self, target: "TopicTable", held: Sequence[pa.RecordBatch]) -> list[Any]:
        return target.write(pa.Table.from_batches(held, self.schema))

    def _as_stored(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows with bodies as their producers sent them, in parts of BATCH_BYTES_MAX of these.

        One that cannot be decompressed is as it is stored, so that it stops no table. Bodies that are decoded whole are left
        out: these are there once.
        """
        stored = batch.column(self.schema.get_field_index(BODY))
        for begin, end, plain in inflated_parts(stored, batch.column(SYS_FLAG).to_numpy(), BATCH_BYTES_MAX):
            sent = {place: body for place, body in plain.items() if body is not None}
            part = batch.slice(begin, end - begin)
            yield self._with_bodies(
                part, replaced(stored.slice(begin, end - begin), list(sent), list(sent.values()), stored.type)
            )

    def _with_bodies(self, batch: pa.RecordBatch, bodies: pa.Array) -> pa.RecordBatch:
        columns = list(batch.columns)
        place = self.schema.get_field_index(BODY)
        if BODY_VALUE in batch.schema.names:
            is_decoded = pc.is_valid(batch.column(BODY_VALUE))
            if self._bodies is not None:
                is_decoded = pc.and_(is_decoded, pa.array(self._bodies.are_whole(bodies.to_pylist()), pa.bool_()))
            bodies = pc.if_else(is_decoded, pa.scalar(None, pa.binary()), bodies)
        columns[place] = bodies
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _stream(
    endpoint: str, topic: str, options: Mapping[str, str]
) -> tuple[StructType, RocketMQStreamReader, JsonBodies | None]:
    """The columns and the stream of a topic's messages, and what decodes JSON bodies; OptionError for a wrong option."""
    lower = {name.lower() for name in options}
    for name in OWN_OPTIONS:
        if name.lower() in lower:
            raise OptionError(f"Option {name} is set by the job itself: leave it out.")
    given = {
        "endpoint": endpoint,
        "subscribe": topic,
        "includeBroker": "true",
        "decompress": "false",  # `Rows` does it, and keeps a body that cannot be
        **({} if "startingtimestamp" in lower else {"startingOffsets": "earliest"}),
        **({} if any(name.lower() in lower for name in LIMITS) else {"maxBytesPerTrigger": BATCH_BYTES}),
    }
    source = RocketMQDataSource(CaseInsensitiveDict(given | dict(options)))
    schema = source.schema()  # once: of JSON bodies it may be inferred, from the newest messages
    reader = source.streamReader(schema)
    assert isinstance(reader, RocketMQStreamReader)
    body_format = next((value for name, value in options.items() if name.lower() == "bodyformat"), "")
    if body_format.strip().lower() != JSON:
        return schema, reader, None
    kind = schema[BODY_VALUE].dataType
    assert isinstance(kind, StructType)
    return schema, reader, JsonBodies(kind, to_arrow_type(kind, timezone="UTC"))


def _behind(done: Positions, ends: Mapping[str, Any] | None) -> int:
    """How many messages the queues have behind positions."""
    reached = {} if ends is None else from_checkpoint(ends)
    return sum(max(end - done.get(key, 0), 0) for key, end in reached.items())


def _refuse_empty_struct(path: str, kind: pa.DataType) -> None:
    """InvalidArgumentError for a type that Parquet has no column for."""
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            raise InvalidArgumentError(
                f"{path} has no fields, and Parquet cannot store it: take it out of the schema.", field="bodySchema"
            )
        for field in kind:
            _refuse_empty_struct(f"{path}.{field.name}", field.type)
    elif pa.types.is_list(kind):
        _refuse_empty_struct(f"{path}[]", kind.value_type)
    elif pa.types.is_map(kind):
        _refuse_empty_struct(f"{path}{{}}", kind.item_type)
