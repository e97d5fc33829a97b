"""The Iceberg table of a topic: made, opened, its schema kept up to date; rows and positions added in one commit; rows deleted.

    snapshot   summary `reput.positions`   where the next run goes on, as in a checkpoint of a stream (`positions.py`)
    table      property `reput.topic`      whose rows it has: a table of something else is refused
               property `reput.positions`  the same, of the newest snapshot that has it; read only where those are all expired
               property `reput.archive`    instead of positions: its files are those of this archive, and no engine may remove
                                           them (property `gc.enabled`)

Positions are in the commit that adds their rows, so each message is in the table exactly once, whatever is killed. A snapshot
of somebody else, such as a compaction, has none: then those of its nearest ancestor count. A table that is rolled back goes on
where it was then.

**Two writers.** Each commit names the snapshot that it follows, and a catalog takes one of two. pyiceberg sends a refused
append again on top of the other one, which would store the rows of two runs twice. So it is told not to, and a refused commit
is sent again here only if the table's positions are still those that its rows begin at.

Only this file knows pyiceberg, which is of the extra `table`.
"""

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tenacity
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue, And, EqualTo
from pyiceberg.io.pyarrow import ArrowScan, parquet_file_to_data_file, pyarrow_to_schema, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction, WriteTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import DayTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StructType,
)

from pipeline.rocketmq.positions import Positions, QueueKey, from_checkpoint, to_checkpoint
from services.object_uri import masked, shown
from store.errors import InvalidArgumentError, ServiceUnavailableError

Answer = TypeVar("Answer")

TOPIC_PROPERTY = "reput.topic"
POSITIONS_PROPERTY = "reput.positions"
ARCHIVE_PROPERTY = "reput.archive"
# Iceberg's: engines remove no files by this table, neither of expired snapshots nor of a table that is dropped.
FILES_OF_OTHERS = {"gc.enabled": "false"}
WIDER_TYPES = {(IntegerType, LongType), (FloatType, DoubleType)}
# What rows are partitioned by.
TIME_COLUMN = "storeTimestamp"
DAY_PARTITION = "day"
NEW_TABLE_PROPERTIES = {
    TableProperties.FORMAT_VERSION: "2",
    # Each commit writes all metadata anew: the newest hundred of these files are kept.
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
}
_DAY_MICROS = 86_400_000_000
KNOWN_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
# Of one commit that others overtake, or whose catalog does not answer.
COMMIT_ATTEMPT_MAX = 10
COMMIT_PAUSE_SECONDS_MAX = 5.0


class PositionsMovedError(Exception):
    """Another run has added rows behind the same positions: these rows are not in the table, and their files are removed."""


class CatalogAnswerError(Exception):
    """A commit was refused, or its outcome is not known: the table must be read again."""


def _errors_of_catalogs() -> tuple[type[Exception], ...]:
    """What a catalog or its files raise when they cannot be reached."""
    with contextlib.suppress(ModuleNotFoundError):
        from sqlalchemy.exc import SQLAlchemyError

        return (RESTError, OSError, SQLAlchemyError)
    return (RESTError, OSError)


UNAVAILABLE = _errors_of_catalogs()
# What a catalog says that has not taken a commit.
REFUSED: tuple[type[Exception], ...] = (CommitFailedException, ValidationException)
# What a catalog may say where another run has just made the same; that of a database is one of its integrity.
IS_THERE: tuple[type[Exception], ...] = (
    NamespaceAlreadyExistsError,
    TableAlreadyExistsError,
    CommitFailedException,
    *UNAVAILABLE,
)


@contextlib.contextmanager
def answering(catalog: str) -> Iterator[None]:
    """Makes the errors of a catalog ServiceUnavailableErrors that name it."""
    try:
        yield
    except UNAVAILABLE as error:
        raise _unavailable(catalog, error) from error


def _unavailable(catalog: str, error: Exception) -> ServiceUnavailableError:
    said = masked(error).strip().partition("\n")[0] or type(error).__name__
    return ServiceUnavailableError(
        f"The catalog {catalog!r} or its files cannot be reached ({said}): check its settings (.pyiceberg.yaml, "
        "PYICEBERG_CATALOG__...), and run again. What was committed is kept.",
        service="catalog",
        catalog=catalog,
    )


def opened_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """The catalog of this name in pyiceberg's settings, with `properties` over them.

    Raises:
        InvalidArgumentError: there are no settings for it, or they cannot be used.
        ServiceUnavailableError: it cannot be reached.
    """
    with answering(name):
        try:
            return load_catalog(name, **properties)
        except (ValueError, NotInstalledError) as error:
            raise InvalidArgumentError(
                f"The catalog {name!r} cannot be opened: {masked(error)}. Give --catalog-property uri=..., or put it into "
                ".pyiceberg.yaml.",
                field="catalog",
            ) from error


class Followed(NamedTuple):
    """What a table got of an archive: files that were added and taken out, and why others could not be added, by location."""

    added_count: int
    removed_count: int
    refused: dict[str, str]


class TopicTable:
    """A table, as it was last read.

    Args:
        catalog: where it is.
        table: the table.
        sleep: waits so many seconds.
    """

    def __init__(self, catalog: Catalog, table: Table, sleep: Callable[[float], None] = time.sleep) -> None:
        refuse_location(str(table.location()), "table")
        self._catalog = catalog
        self._table = table
        self._sleep = sleep
        self.lost_commit_count = 0

    @classmethod
    def of_topic(
        cls,
        catalog: Catalog,
        name: str,
        topic: str,
        schema: pa.Schema,
        *,
        archive: str = "",
        sleep: Callable[[float], None] = time.sleep,
    ) -> "TopicTable":
        """The table of a topic, made if there is none, with at least the columns of a schema.

        Args:
            catalog: where it is.
            name: `NAMESPACE.TABLE`.
            topic: the topic.
            schema: of the rows; all columns may be null.
            archive: the archive whose files it has; empty: its files are its own.
            sleep: waits so many seconds.

        Raises:
            InvalidArgumentError: the table is of something else, or has a column of a type that does not go to the schema's.
            ServiceUnavailableError: the catalog cannot be reached.
        """
        wanted = _as_iceberg(schema)
        with answering(catalog.name):
            properties = {TOPIC_PROPERTY: topic} | ({ARCHIVE_PROPERTY: archive, **FILES_OF_OTHERS} if archive else {})
            found = cls(catalog, _made(catalog, name, schema, properties), sleep)
            found._refuse_other(topic, archive)
            found._evolve(schema, wanted)
            return found

    @classmethod
    def existing(cls, catalog: Catalog, name: str, sleep: Callable[[float], None] = time.sleep) -> "TopicTable":
        """A table of a topic that is there; InvalidArgumentError if it is not, or is of something else."""
        with answering(catalog.name):
            try:
                found = cls(catalog, catalog.load_table(_identifier(name)), sleep)
                if TOPIC_PROPERTY not in found._table.properties:
                    raise InvalidArgumentError(f"The table {name} is of something else: check its name.", field="table")
                return found
            except (NoSuchTableError, NoSuchNamespaceError) as error:
                raise InvalidArgumentError(
                    f"There is no table {name} in the catalog {catalog.name!r}: check its name.", field="table"
                ) from error

    @property
    def name(self) -> str:
        """`NAMESPACE.TABLE`."""
        return ".".join(self._table.name())

    @property
    def location(self) -> str:
        """Where its files are."""
        return str(self._table.location())

    def positions(self) -> Positions | None:
        """Where the next run goes on; None: no run has committed yet."""
        kept = _kept_positions(self._table)
        return None if kept is None else from_checkpoint(json.loads(kept))

    def last_store_time_millis(self, key: QueueKey) -> int | None:
        """When the newest row of a queue was stored, milliseconds since 1970 UTC; None: the table has none. Reads two columns.

        Raises:
            ServiceUnavailableError: the catalog cannot be reached.
        """
        equal_to: Any = EqualTo  # its models hide that it takes a name and a value
        of_queue = And(equal_to("brokerName", key.broker_name), equal_to("queueId", key.queue_id))
        with answering(self._catalog.name):
            found = self._table.scan(row_filter=of_queue, selected_fields=(TIME_COLUMN,)).to_arrow_batch_reader()
            micros = [pc.max(batch.column(TIME_COLUMN).cast(pa.int64())).as_py() for batch in found]
        return max((each // 1000 for each in micros if each is not None), default=None)

    def write(self, rows: pa.Table) -> list[DataFile]:
        """Writes rows as Parquet files, one for each day, which are no part of the table before `append`."""
        if not len(rows):
            return []
        rows = _in_known_years(rows)
        spec, schema = self._table.spec(), self._table.schema()
        written_as = pyarrow_to_schema(rows.schema, name_mapping=schema.name_mapping)
        write_uuid = uuid.uuid4()
        tasks = [
            WriteTask(
                write_uuid,
                number,
                written_as,
                part.combine_chunks().to_batches(),
                partition_key=PartitionKey([PartitionFieldValue(spec.fields[0], day)], spec, schema)
                if spec.fields
                else None,
            )
            for number, (day, part) in enumerate(_by_day(rows) if spec.fields else [(0, rows)])
        ]
        with answering(self._catalog.name):
            try:
                return list(write_file(self._table.io, self._table.metadata, iter(tasks)))
            except UnicodeEncodeError:
                return list(write_file(self._table.io, _without_bounds(self._table.metadata), iter(tasks)))

    def append(self, files: Sequence[DataFile], begin: Positions | None, end: Positions) -> None:
        """Adds files with the positions behind their rows, in one commit.

        Args:
            files: what `write` has written.
            begin: the positions of the table that the rows follow.
            end: the positions behind them.

        Raises:
            PositionsMovedError: the table has other positions than `begin`.
            ServiceUnavailableError: no attempt came through, or the outcome is not known; the table has all of it or nothing.
        """
        text = _as_text(end)
        sent: set[int] = set()
        is_known = True  # whether what was sent came through

        def attempt() -> None:
            nonlocal is_known
            self._refresh()
            if any(self._table.snapshot_by_id(snapshot_id) is not None for snapshot_id in sent):
                return  # an attempt came through whose answer was lost
            if self.positions() != begin:
                raise PositionsMovedError
            transaction = Transaction(_tried_once(self._table))
            with transaction.update_snapshot(snapshot_properties={POSITIONS_PROPERTY: text}).fast_append() as producer:
                for file in files:
                    producer.append_data_file(file)
            sent.add(producer.snapshot_id)
            transaction.set_properties({POSITIONS_PROPERTY: text})
            try:
                self._commit(transaction)
            except CatalogAnswerError as error:
                is_known = is_known and isinstance(error.__cause__, REFUSED)
                raise

        try:
            self._repeated(attempt)
        except PositionsMovedError:
            if is_known:  # else the table may have them, by a snapshot that is expired since
                self._remove(files)
            raise

    def delete_by_key(self, key: str) -> int:
        """Deletes the messages with a key, or with this unique key, from the newest snapshot; returns their count.

        Files with such a message are written again without it. Older snapshots have it until they are expired.

        Raises:
            InvalidArgumentError: its files are those of an archive.
            ServiceUnavailableError: no attempt came through, or the outcome is not known; all of them are deleted, or none.
        """
        archive = self._table.properties.get(ARCHIVE_PROPERTY)
        if archive is not None:
            raise InvalidArgumentError(
                f"The table {self.name} has the files of the archive {archive}, which are not written again: the archive keeps "
                "a message as long as it keeps its segment.",
                field="table",
            )
        # By the file and what others have deleted of it, which is not to be written again.
        looked_at: dict[frozenset[str], tuple[int, list[DataFile]]] = {}
        sent: dict[int, int] = {}

        def attempt() -> int:
            self._refresh()
            for snapshot_id, count in sent.items():
                if self._table.snapshot_by_id(snapshot_id) is not None:
                    return count  # an attempt came through whose answer was lost
            replaced = []
            for task in self._table.scan().plan_files():
                parts = frozenset(file.file_path for file in (task.file, *task.delete_files))
                if parts not in looked_at:
                    looked_at[parts] = self._without_key(task, key)
                if looked_at[parts][0]:
                    replaced.append((task.file, *looked_at[parts]))
            if not replaced:
                return 0
            transaction = Transaction(_tried_once(self._table))
            with transaction.update_snapshot().overwrite() as producer:
                producer.delete_by_predicate(AlwaysTrue())  # look for the files in all manifests
                for file, _, files in replaced:
                    producer.delete_data_file(file)
                    for each in files:
                        producer.append_data_file(each)
            deleted_count = sum(count for _, count, _ in replaced)
            sent[producer.snapshot_id] = deleted_count
            self._commit(transaction)
            return deleted_count

        return self._repeated(attempt)

    def follow(
        self, locations: Sequence[str], is_replaced: Callable[[str], bool], is_archived: Callable[[str], bool]
    ) -> "Followed":
        """Makes the table have these Parquet files as they are, and take out others that are replaced, in one commit.

        Args:
            locations: of the files, which have no field ids; each has the rows of one day.
            is_replaced: whether a file of the table that is not among them has to go.
            is_archived: whether a file of the table is one of the archive, of any shard.

        Raises:
            InvalidArgumentError: an engine has written rows of the archive again, which would then be there twice.
            ServiceUnavailableError: no attempt came through; the table is as it was.
        """
        kept = set(locations)

        def attempt() -> Followed:
            self._refresh()
            if not FILES_OF_OTHERS.items() <= self._table.properties.items():  # an older version made it
                transaction = Transaction(_tried_once(self._table))
                transaction.set_properties(FILES_OF_OTHERS)
                self._commit(transaction)
            table = self._table
            has = {task.file.file_path: task.file for task in table.scan().plan_files()}
            copy = next((path for path in has if not is_archived(path)), None)
            if copy is not None:
                raise InvalidArgumentError(
                    f"The table {self.name} has files that are not of the archive, such as {copy}: a compaction, a delete or "
                    "an update has written rows of the archive again. Roll it back to the snapshot before, or drop it and "
                    "run again: no byte of the archive is copied.",
                    field="table",
                )
            gone = [file for path, file in has.items() if path not in kept and is_replaced(path)]
            new: list[DataFile] = []
            refused: dict[str, str] = {}
            for location in locations:
                if location not in has:
                    try:
                        new.append(_as_data_file(table, location))
                    except (ValueError, OverflowError) as error:  # rows of several days, or of a year that it has not
                        refused[location] = str(error)
            if new or gone:
                transaction = Transaction(_tried_once(table))
                if table.name_mapping() is None:
                    mapping = table.schema().name_mapping.model_dump_json()
                    transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
                changes = transaction.update_snapshot()
                with changes.overwrite() if gone else changes.fast_append() as producer:
                    if gone:
                        producer.delete_by_predicate(AlwaysTrue())  # look for the files in all manifests
                    for file in gone:
                        producer.delete_data_file(file)
                    for file in new:
                        producer.append_data_file(file)
                self._commit(transaction)
            return Followed(len(new), len(gone), refused)

        return self._repeated(attempt)

    def _without_key(self, task: Any, key: str) -> tuple[int, list[DataFile]]:
        """How many rows of a file have the key, and files with its other rows, if some have it."""
        schema = self._table.schema()

        def read(columns: Schema) -> pa.Table:
            return ArrowScan(self._table.metadata, self._table.io, columns, AlwaysTrue()).to_table([task])

        keyed = read(schema.select("keys", "uniqKey"))
        has_key = [
            unique_key == key or key in (keys or ())
            for keys, unique_key in zip(keyed["keys"].to_pylist(), keyed["uniqKey"].to_pylist(), strict=True)
        ]
        count = sum(has_key)
        return count, self.write(read(schema).filter(pc.invert(pa.array(has_key)))) if count else []

    def _repeated(self, attempt: Callable[[], Answer]) -> Answer:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(CatalogAnswerError),
            stop=tenacity.stop_after_attempt(COMMIT_ATTEMPT_MAX),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=COMMIT_PAUSE_SECONDS_MAX),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return retrying(attempt)
        except CatalogAnswerError as error:
            cause = error.__cause__
            assert isinstance(cause, Exception)
            raise _unavailable(self._catalog.name, cause) from error

    def _refresh(self) -> None:
        """Reads the table again; InvalidArgumentError if it is gone, has become another one, or has other partitions."""
        has = self._table.metadata
        try:
            found = self._catalog.load_table(self._table.name())
        except UNAVAILABLE as error:
            raise CatalogAnswerError from error
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            raise self._changed("It was dropped") from error
        if found.metadata.table_uuid != has.table_uuid:
            raise self._changed("It was dropped and made again")
        if found.metadata.default_spec_id != has.default_spec_id:  # files are written by the one of before
            raise self._changed("Its partitions were changed")
        self._table = found

    def _changed(self, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"The table {self.name} is not the one that this run began with. {what} meanwhile: run again.",
            field="table",
        )

    def _commit(self, transaction: Transaction) -> None:
        try:
            transaction.commit_transaction()
        except REFUSED as error:
            self.lost_commit_count += 1
            raise CatalogAnswerError from error
        except UNAVAILABLE as error:
            raise CatalogAnswerError from error
        self._refresh()

    def _remove(self, files: Sequence[DataFile]) -> None:
        for file in files:
            with contextlib.suppress(*UNAVAILABLE):  # what stays is no part of the table
                self._table.io.delete(file.file_path)

    def _refuse_other(self, topic: str, archive: str) -> None:
        known = self._table.properties.get(TOPIC_PROPERTY)
        of_archive = self._table.properties.get(ARCHIVE_PROPERTY, "")
        if known != topic or of_archive != archive:
            where = f" in the archive {of_archive}" if of_archive else ""
            what = "of something else" if known is None else f"of the topic {known!r}{where}"
            raise InvalidArgumentError(
                f"The table {self.name} is {what}: name another table for {topic!r}{f' in {archive}' if archive else ''}.",
                field="table",
            )
        spec, schema = self._table.spec(), self._table.schema()
        parts = [(schema.find_column_name(field.source_id), str(field.transform)) for field in spec.fields]
        if parts not in ([], [(TIME_COLUMN, "day")]):
            raise InvalidArgumentError(
                f"The table {self.name} is partitioned by {parts}: rows are written into tables by the day of {TIME_COLUMN}, "
                "or without partitions. Change its partition spec back.",
                field="table",
            )

    def _evolve(self, schema: pa.Schema, wanted: Schema) -> None:
        """Adds the columns that are new, and widens types; InvalidArgumentError names one that cannot be changed."""
        for _ in range(COMMIT_ATTEMPT_MAX):
            conflict = _conflict("", self._table.schema().as_struct(), wanted.as_struct())
            if conflict:
                raise InvalidArgumentError(
                    f"The table {self.name} cannot take these rows: {conflict}. Iceberg changes int to long, float to double "
                    "and the precision of a decimal, and adds fields. Give the schema of the table, or name another table.",
                    field="table",
                )
            try:
                with self._table.update_schema() as update:
                    update.union_by_name(schema)
                return
            except CommitFailedException:  # another run has changed the schema; most likely as this one would
                self._table = self._catalog.load_table(self._table.name())
            except ValueError as error:
                raise _no_columns(error) from error
        raise ServiceUnavailableError(
            f"Others have changed the schema of {self.name} {COMMIT_ATTEMPT_MAX} times meanwhile: run again.",
            service="catalog",
        )


def _identifier(name: str) -> tuple[str, ...]:
    parts = tuple(name.split("."))
    if len(parts) < 2 or not all(parts):
        raise InvalidArgumentError(f"{name!r} is not NAMESPACE.TABLE: give such a name, as shop.orders.", field="table")
    return parts


def _made(catalog: Catalog, name: str, schema: pa.Schema, properties: Mapping[str, str]) -> Table:
    identifier = _identifier(name)
    with contextlib.suppress(NoSuchTableError, NoSuchNamespaceError):
        return catalog.load_table(identifier)
    for end in range(1, len(identifier)):
        try:
            catalog.load_namespace_properties(identifier[:end])
        except NoSuchNamespaceError:
            try:
                catalog.create_namespace(identifier[:end])
            except IS_THERE:
                catalog.load_namespace_properties(identifier[:end])  # another run was faster
    try:
        with catalog.create_table_transaction(
            identifier, schema=schema, properties={**properties, **NEW_TABLE_PROPERTIES}
        ) as transaction:
            refuse_location(transaction.table_metadata.location, "table")  # before anything is written there
            transaction.update_spec().add_field(TIME_COLUMN, DayTransform(), DAY_PARTITION).commit()
    except IS_THERE as error:
        try:
            return catalog.load_table(identifier)  # another run was faster
        except NoSuchTableError:
            raise error from None
    return catalog.load_table(identifier)


def refuse_location(location: str, field: str) -> None:
    """InvalidArgumentError for a location that pyiceberg cuts at a sign of URIs: it would read and write what lies there."""
    if location.partition("?")[0].partition("#")[0] != location:
        raise InvalidArgumentError(
            f"The place {shown(location)} has a # or ? in its name, where pyiceberg ends the name of each file: choose another "
            "place.",
            field=field,
        )


def _as_iceberg(schema: pa.Schema) -> Schema:
    """A schema with ids of its own; InvalidArgumentError if Iceberg has none like it."""
    try:
        return Catalog._convert_schema_if_needed(schema)
    except ValueError as error:
        raise _no_columns(error) from error


def _no_columns(error: ValueError) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"These fields cannot be columns of one Iceberg table: {error}. A field a.b and a field b of a have the same name "
        "there. Give a bodySchema without one of them.",
        field="bodySchema",
    )


def _conflict(path: str, has: IcebergType, wants: IcebergType) -> str:
    """Why a column cannot become what is wanted, with its name; empty: it can, or need not."""
    if isinstance(has, StructType) and isinstance(wants, StructType):
        pairs = [
            (f"{path}.{field.name}" if path else field.name, old.field_type, field.field_type)
            for field in wants.fields
            if (old := has.field_by_name(field.name)) is not None
        ]
    elif isinstance(has, ListType) and isinstance(wants, ListType):
        pairs = [(f"{path}[]", has.element_type, wants.element_type)]
    elif isinstance(has, MapType) and isinstance(wants, MapType):
        pairs = [(f"{path}{{}}", has.value_type, wants.value_type)]
    elif has.is_primitive and wants.is_primitive and (_goes_to(has, wants) or _goes_to(wants, has)):
        pairs = []
    else:
        return f"{path} is {has} in the table and {wants} in the schema"
    return next((found for each in pairs if (found := _conflict(*each))), "")


def _goes_to(one: IcebergType, other: IcebergType) -> bool:
    """Whether Iceberg reads values of one type as the other. pyiceberg's `promote` also takes a decimal of another scale, and
    binary as string: other engines would read other numbers, or no text."""
    if isinstance(one, DecimalType) and isinstance(other, DecimalType):
        return one.scale == other.scale and one.precision <= other.precision
    return one == other or (type(one), type(other)) in WIDER_TYPES


def _kept_positions(table: Table) -> str | None:
    """The text of the positions; see the head of this file."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return None
    while snapshot is not None:
        if snapshot.summary is not None and (found := snapshot.summary.additional_properties.get(POSITIONS_PROPERTY)):
            return found
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return table.properties.get(POSITIONS_PROPERTY)


def _as_text(positions: Positions) -> str:
    return json.dumps(to_checkpoint(positions), separators=(",", ":"), sort_keys=True)


def _tried_once(table: Table) -> Table:
    """The table for one attempt to commit: see "Two writers"."""
    properties = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    metadata = table.metadata.model_copy(update={"properties": properties})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)


def _without_bounds(metadata: TableMetadata) -> TableMetadata:
    """The metadata for files whose columns get no bounds, but for the time.

    pyiceberg 0.12 adds 1 to the 16th character of the greatest text; behind U+D7FF there is no character, and it fails. Any
    producer can send such a text.
    """
    modes = {
        TableProperties.DEFAULT_WRITE_METRICS_MODE: "counts",
        f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{TIME_COLUMN}": "full",
    }
    return metadata.model_copy(update={"properties": {**metadata.properties, **modes}})


def _as_data_file(table: Table, location: str) -> DataFile:
    """A Parquet file as a file of the table; ValueError, OverflowError: it cannot be one."""
    try:
        return parquet_file_to_data_file(table.io, table.metadata, location)
    except UnicodeEncodeError:
        return parquet_file_to_data_file(table.io, _without_bounds(table.metadata), location)


def _in_known_years(rows: pa.Table) -> pa.Table:
    """The rows with the nearest time of the years 1 to 9999: a producer may state any, and pyiceberg's statistics end there."""
    first, last = KNOWN_MICROS
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            micros = rows[field.name].cast(pa.int64())
            found = pc.min_max(micros).as_py()
            if found["min"] is not None and (found["min"] < first or found["max"] > last):
                nearest = pc.min_element_wise(
                    pc.max_element_wise(micros, first, skip_nulls=False), last, skip_nulls=False
                )
                rows = rows.set_column(place, field, nearest.cast(field.type))
    return rows


def _by_day(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each day: days since 1970 UTC, and the rows in their order."""
    micros = rows[TIME_COLUMN].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    days = micros // _DAY_MICROS
    found = np.unique(days)
    for day in found.tolist():
        yield day, rows if len(found) == 1 else rows.filter(pa.array(days == day))
