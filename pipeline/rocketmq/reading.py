"""A task: reads one range of one queue, page by page, and makes Arrow batches.

The next page is fetched while Spark takes the current one. Each page must begin where the last one ended: a gap means lost
messages and is always reported.

A page is a batch of a bulk pull if that has every message from its begin to its end. In every other case it comes by
QueryMessageByOffset, which also finds what is archived, and says what is lost or not built: a pull costs the services a tenth.
Where the rows are all columns of the record itself, the pull asks for records, not messages (`RecordBatches`).

With a filter (`tags`, `sql`), the pull carries it. Then a position without a message may be an unwanted message or a lost one,
and nothing on this side can tell: the queue's range is known late, and another replica may have more. So such a batch is a page
only if the service says that it is whole: it passed over no position because the message was not in the log.

    whole                  a page; positions without a message are unwanted ones
    much wanted, `tags`    the pull goes on without a filter, and the tags are compared here
    not whole, `tags`      the query, and the tags are compared here
    not whole, `sql`       the query says why: lost messages are reported as ever, archived ones are an error (nothing here
                           evaluates SQL), and what is not built yet is pulled again

The records of a pull as Arrow batches, by the kernel of `format("commitlog")`: without an object for each message.

    answer of a pull   |record|record|record|      joined
    run                numbers of each record, and the places of its texts and its body in these bytes
    batch              the columns that are asked for

The services have checked the records (`PullMessagesResponse.records`).
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import tenacity
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from pipeline.kept_workers import settle
from pipeline.rocketmq.bodies.compression import decompressed, decompressed_or_none, inflated_parts
from pipeline.rocketmq.bodies.formats import BodyFormat, Decode
from pipeline.rocketmq.errors import FilterNotAppliedError
from pipeline.rocketmq.gateway import PAGE_COUNT_MAX, Gateway
from pipeline.rocketmq.options import NATIVE, NO_SECURITY, READ_FROM, RETRY_SECONDS_DEFAULT, SecurityOptions
from pipeline.rocketmq.ranges import MessageRange, report_loss
from pipeline.rocketmq.rows import BATCH_BYTES_MAX, BODY_VALUE, BROKER, RowBatches, StoredMessage
from pipeline.scan.arrow_batches import ArrowBatches, replaced
from pipeline.scan.scan import RecordRun, RowCheck
from pipeline.scan.schema import BODY, own_names
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client.errors import (
    BusyError,
    QueueNotFoundError,
    ReputClientError,
    TopicNotFoundError,
    UnavailableError,
)
from store.format.message_id import encode_offset_msg_id
from store.format.record import decode_record
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
        format_: of column `bodyValue`, if the schema has it.
    """

    def __init__(
        self, schema: StructType, broker_name: str, *, decompress: bool, format_: BodyFormat | None = None
    ) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._broker_name = broker_name
        lower = [name.lower() for name in schema.names]
        self._broker_place = _place(lower, BROKER.name)
        self._value_place = _place(lower, BODY_VALUE)
        of_records = [
            field for place, field in enumerate(schema) if place not in (self._broker_place, self._value_place)
        ]
        self._decode: Decode | None = None
        if self._value_place is not None:
            assert format_ is not None
            self._decode = format_.decoder(self._schema.field(self._value_place).type)
        self._has_body = BODY in lower
        if self._decode is not None and not self._has_body:
            of_records.append(StructField(BODY, BinaryType(), True))
        self._names = own_names(StructType(of_records))
        self._body_place = _place(self._names, BODY)
        self._decompress = decompress
        arrow_schema = to_arrow_schema(StructType(of_records), timezone="UTC")
        self._batches = ArrowBatches(arrow_schema, self._names, RUN_COUNT_MAX)

    def batches(self, run: RecordRun) -> Iterator[pa.RecordBatch]:
        """One row for each record; a batch ends where its decompressed bodies have `BATCH_BYTES_MAX`.

        Raises:
            BodyCompressionError: a body cannot be decompressed; it names the message.
        """
        whole = self._batches.of_run(run)
        if self._body_place is None or not (self._decode is not None or self._decompress):
            yield self._batch(whole, {})
            return
        flags = run.rows_32[SYS_FLAG]
        for begin, end, plain in inflated_parts(whole.column(self._body_place), flags, BATCH_BYTES_MAX):
            if self._decompress and self._has_body:
                for place, body in plain.items():
                    if body is None:
                        plain[place] = _plain_body(run, begin + place)  # says why, and of which message
            yield self._batch(whole.slice(begin, end - begin), plain)

    def _batch(self, part: pa.RecordBatch, plain: dict[int, bytes | None]) -> pa.RecordBatch:
        """The rows with the columns that are not of the record itself; `plain` are decompressed bodies by their place."""
        columns = list(part.columns)
        added: list[tuple[int, pa.Array]] = []
        if self._broker_place is not None:
            added.append((self._broker_place, pa.repeat(self._broker_name, len(part))))
        if self._body_place is not None:
            stored = columns[self._body_place]
            if self._value_place is not None and self._decode is not None:
                bodies = stored.to_pylist()
                for place, body in plain.items():
                    bodies[place] = body
                added.append((self._value_place, self._decode(bodies)))
            if not self._has_body:
                columns.pop(self._body_place)
            elif self._decompress:
                columns[self._body_place] = replaced(stored, list(plain), list(plain.values()), stored.type)
        for place, column in sorted(added, key=lambda each: each[0]):
            columns.insert(place, column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _place(names: Sequence[str], name: str) -> int | None:
    return names.index(name.lower()) if name.lower() in names else None


def _plain_body(run: RecordRun, place: int) -> bytes:
    at = int(run.rows_64[AT, place])
    record = decode_record(run.data[at : at + int(run.rows_32[SIZE, place])].tobytes())
    offset_msg_id = encode_offset_msg_id(record.store_host, record.commit_log_offset)
    return decompressed(bytes(record.body), record.sys_flag, offset_msg_id)


# Fewer messages come in one page, for which no pull is begun.
PULL_COUNT_MIN = 100
# A message that a filter takes costs the services some twenty times one of a run without a filter (ADR 0077). So if one of so
# many positions is wanted, or more, all are pulled.
FILTERED_POSITIONS_MIN = 20
# Between two attempts of a pull with `sql`.
SQL_PAUSE_SECONDS = 0.1
# Messages that come by pages behind one that no pull gave, before another pull is begun.
QUERIED_COUNT = 8 * PAGE_COUNT_MAX


@dataclass(frozen=True, slots=True)
class Task:
    """The settings for reading a range; made by the driver, pickled to executors.

    Attributes:
        schema: the columns.
        view: `native` or `kafka`.
        decompress: bodies as their producers sent them.
        tags: the tags of the messages to read; empty: all.
        fail_on_data_loss: a gap is an error; otherwise a warning.
        retry_seconds: how long a gateway that does not answer is tried, in seconds.
        security: TLS and credentials.
        read_from: which replicas of a shard messages are read from.
        sql: SQL92 over the properties of the messages to read; empty: all.
        format_: of column `bodyValue`; None: there is none.
    """

    schema: StructType
    view: str
    decompress: bool
    tags: frozenset[str]
    fail_on_data_loss: bool
    retry_seconds: float
    security: SecurityOptions = NO_SECURITY
    read_from: str = READ_FROM[0]
    sql: str = ""
    format_: BodyFormat | None = None

    def read(self, asked: MessageRange) -> Iterator[pa.RecordBatch]:
        """The rows of a range."""
        rows = RowBatches(self.schema, self.view, decompress=self.decompress, format_=self.format_)
        records = self._record_batches(asked)
        wanted = filter_of(self.tags, self.sql)
        with Gateway(asked.endpoint, self.retry_seconds, self.security, self.read_from) as gateway:
            pages = Pages(gateway, asked, wanted, self.retry_seconds, as_records=records is not None)
            for page in _pages(pages, asked, fail_on_data_loss=self.fail_on_data_loss):
                if records is not None:
                    for run in page.runs:
                        yield from records.batches(run)
                messages = [message for message in page.messages if not self.tags or message.tags in self.tags]
                yield from _batches(gateway, messages, rows)
        settle()

    def _record_batches(self, asked: MessageRange) -> RecordBatches | None:
        """Makes rows of records; None where a filter or the other view is asked for, which need messages."""
        if self.tags or self.sql or self.view != NATIVE:
            return None
        return RecordBatches(self.schema, asked.key.broker_name, decompress=self.decompress, format_=self.format_)


def filter_of(tags: frozenset[str], sql: str) -> pb.MessageFilter | None:
    """The filter that a pull carries; None: all messages."""
    if sql:
        return pb.MessageFilter(sql=sql)
    return pb.MessageFilter(tags=" || ".join(sorted(tags))) if tags else None


@dataclass(frozen=True, slots=True)
class Page:
    """Messages of a queue, and where the next ones begin; `min_offset` and `max_offset` are the queue's.

    `is_filtered`: positions without a message are not lost, but not wanted. `runs`: records, instead of messages.
    """

    messages: Sequence[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    is_filtered: bool = False
    runs: Sequence[RecordRun] = ()

    def queue_offsets(self) -> list[int]:
        """The positions that it has."""
        return queue_offsets_of(self.runs) or [message.queue_offset for message in self.messages]


class Pages:
    """The pages of one range, for one thread.

    Args:
        gateway: where they come from.
        asked: the range.
        wanted: which messages a pull need not leave out; None: all. With tags, pages may have others, too.
        retry_seconds: how long a message that only a pull can give is waited for, in seconds.
        as_records: pages may have records; without `wanted`.
    """

    def __init__(
        self,
        gateway: Gateway,
        asked: MessageRange,
        wanted: pb.MessageFilter | None = None,
        retry_seconds: float = RETRY_SECONDS_DEFAULT,
        *,
        as_records: bool = False,
    ) -> None:
        self._gateway = gateway
        self._asked = asked
        self._wanted = wanted
        self._needs_pulls = wanted is not None and bool(wanted.sql)
        self._retry_seconds = retry_seconds
        self._as_records = as_records
        self._pull: Iterator[pb.PullMessagesResponse] | None = None
        self._pulls_from = asked.begin
        self._problem: ReputClientError | None = None  # why the last pull gave no page, if it failed

    def page(self, queue_offset: int) -> Page:
        """The page that begins at a queue offset: that of the range, or where the page before has ended.

        Raises:
            FilterNotAppliedError: only a query has these messages, and only a pull evaluates the filter.
        """
        page = self._pulled(queue_offset)
        if page is not None:
            return page
        if self._needs_pulls:
            return self._pulled_or_lost(queue_offset)
        answer = self._queried(queue_offset)
        return Page(answer.messages, answer.next_queue_offset, answer.min_offset, answer.max_offset)

    def _queried(self, queue_offset: int) -> pb.QueryMessageByOffsetResponse:
        count = min(self._asked.end - queue_offset, PAGE_COUNT_MAX)
        return self._gateway.messages_or_end(self._asked.key, queue_offset, count)

    def _pulled(self, queue_offset: int) -> Page | None:
        """The next batch of the pull; None when it does not have every wanted message from its begin to its end."""
        asked = self._asked
        left = asked.end - queue_offset
        is_better_queried = queue_offset < self._pulls_from or (self._pull is None and left < PULL_COUNT_MIN)
        if is_better_queried and not self._needs_pulls:
            return None
        batch, self._problem = None, None
        try:
            if self._pull is None:
                self._pull = self._gateway.pulled(asked.key, queue_offset, self._wanted, as_records=self._as_records)
            batch = next(self._pull, None)
        except ReputClientError as error:  # for a page of the query, what it says is said again, or has passed
            self._problem = error
        runs = runs_of(batch.records) if batch is not None else []
        if batch is None or not self._is_whole(batch, runs, queue_offset):
            self._pull, self._pulls_from = None, queue_offset + QUERIED_COUNT
            return None
        follows = min(batch.next_offset, asked.end)
        if follows < batch.next_offset:
            runs = before(runs, follows)
        messages = [message for message in batch.messages if message.queue_offset < follows]
        is_filtered = self._wanted is not None
        if is_filtered and not self._needs_pulls and len(messages) * FILTERED_POSITIONS_MIN >= follows - queue_offset:
            self._wanted = self._pull = None
        return Page(messages, follows, batch.min_offset, batch.max_offset, is_filtered=is_filtered, runs=runs)

    def _is_whole(self, batch: pb.PullMessagesResponse, runs: Sequence[RecordRun], queue_offset: int) -> bool:
        if self._wanted is not None:
            return batch.is_whole and batch.next_offset > queue_offset
        found = queue_offsets_of(runs) or [message.queue_offset for message in batch.messages]
        count = batch.next_offset - queue_offset
        return bool(found) and len(found) == count and found == list(range(queue_offset, batch.next_offset))

    def _pulled_or_lost(self, queue_offset: int) -> Page:
        """The page of another pull, or one without messages up to the first that is not lost."""

        def look() -> Page:
            answer = self._queried(queue_offset)
            first = answer.messages[0] if answer.messages else None
            follows = answer.next_queue_offset if first is None else first.queue_offset
            if first is None or follows > queue_offset:
                return Page((), follows, answer.min_offset, answer.max_offset)
            if first.source == message_pb2.MESSAGE_SOURCE_ARCHIVE:
                raise FilterNotAppliedError(
                    f"Message {queue_offset} of {self._asked.key} is archived, and option sql is evaluated in the log alone. "
                    "Begin behind what is archived (startingOffsets, startingTimestamp), or leave sql out and filter in "
                    "the query."
                )
            if self._problem is not None and not isinstance(self._problem, UnavailableError | BusyError):
                raise self._problem
            page = self._pulled(queue_offset)
            if page is None:
                raise self._problem or UnavailableError(
                    f"No pull gives message {queue_offset} of {self._asked.key} yet."
                )
            return page

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((UnavailableError, BusyError)),
            stop=tenacity.stop_after_delay(self._retry_seconds),
            wait=tenacity.wait_fixed(SQL_PAUSE_SECONDS),
            reraise=True,
        )
        return retrying(look)


def _batches(gateway: Gateway, messages: list[StoredMessage], rows: RowBatches) -> Iterator[pa.RecordBatch]:
    """The page as batches; bodies that had no room in it are downloaded, and a batch ends at `BATCH_BYTES_MAX`."""
    if not rows.needs_bodies or not any(message.body_omitted or rows.inflates(message) for message in messages):
        if messages:
            yield rows.batch(messages)
        return
    batch: list[StoredMessage] = []
    size_bytes = 0
    for message in messages:
        if message.body_omitted:
            message.body = gateway.body(message)
        # Decompressed here and once more by its column, so that only one of these bodies is in memory before the limit.
        body = decompressed_or_none(message.body, message.sys_flag) if rows.inflates(message) else message.body
        if batch and size_bytes + len(body or b"") > BATCH_BYTES_MAX:
            yield rows.batch(batch)
            batch, size_bytes = [], 0
        batch.append(message)
        size_bytes += len(body or b"")
    if batch:
        yield rows.batch(batch)


def _pages(pages: Pages, asked: MessageRange, *, fail_on_data_loss: bool) -> Iterator[Page]:
    """The pages of a range, in order, with the messages that the queue still holds; of a filtered pull only the wanted ones."""

    def lose(begin: int, end: int, why: str) -> None:
        report_loss(asked.key, begin, min(end, asked.end), why, fail_on_data_loss=fail_on_data_loss)

    ahead = ThreadPoolExecutor(1, thread_name_prefix="next-page")
    try:
        position = asked.begin
        coming: Future[Page] | None = ahead.submit(pages.page, position)
        while coming is not None:
            try:
                response = coming.result()
            except (TopicNotFoundError, QueueNotFoundError) as error:
                lose(position, asked.end, error.message)
                return
            follows = response.next_offset
            if follows <= position:
                lose(position, asked.end, f"the queue ends at {response.max_offset}")
                return
            coming = ahead.submit(pages.page, follows) if follows < asked.end else None
            for queue_offset in () if response.is_filtered else response.queue_offsets():
                if queue_offset > position:
                    lose(position, queue_offset, f"the queue begins at {response.min_offset}")
                position = queue_offset + 1
            if position < follows and not response.is_filtered:
                lose(position, follows, f"the queue begins at {response.min_offset}")
            position = follows
            yield response
    finally:
        # A task that stops early, as for LIMIT, does not wait for the next page.
        ahead.shutdown(wait=False, cancel_futures=True)
