"""format("commitlog"): the log files of a store root as rows, read in parallel, without a broker or a service.

    spark.read.format("commitlog").option("topics", "orders").load("store").where("queueId = 3").count()
    spark.read.format("commitlog").load("s3://bucket/store").count()

The options are those of `pipeline/scan/options.py`, the columns those of `pipeline/scan/schema.py`.
Spark asks a source written in Python for all columns of its schema: choose fewer by
`.schema("topic string, queueId int")` or option `columns`.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.kept_workers import settle
from pipeline.object_files import open_root
from pipeline.refusals import refusals_first
from pipeline.scan.arrow_batches import ArrowBatches, damage_row, mask_of
from pipeline.scan.filters import PHYSICAL_OFFSET, QUEUE_ID, STORE_TIME, TOPIC, Condition, matches, take_filters
from pipeline.scan.log_files import LogFileGoneError
from pipeline.scan.options import OFFSET_MAX, Corrupt, ScanOptions, parse_options
from pipeline.scan.scan import Damage, RecordRun, Split, SplitScan
from pipeline.scan.schema import check_columns, choose_columns, native_schema, own_names
from pipeline.scan.splits import CHECKS, plan_splits
from store.format.delivery.delay_levels import use_delay_levels

_log = logging.getLogger("reput.pipeline")
DAMAGES_PER_BATCH = 256


class CommitLogDataSource(DataSource):
    """The format; Spark makes an object for each read."""

    @refusals_first
    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._scan = parse_options(dict(options))
        self._full = native_schema(with_raw=self._scan.with_raw, with_damage=self._scan.corrupt is Corrupt.REPORT)
        choose_columns(self._full, self._scan.columns, include_body=self._scan.include_body)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "commitlog"

    def schema(self) -> StructType:
        """The columns that the options choose; Spark uses them unless `.schema(...)` is given."""
        return choose_columns(self._full, self._scan.columns, include_body=self._scan.include_body)

    @refusals_first
    def reader(self, schema: StructType) -> "CommitLogReader":
        """A reader of these columns."""
        return CommitLogReader(self._scan, check_columns(self._full, schema))


class _PushFilters:
    """`pushFilters` of a reader, such that a session with pushdown switched off works without it.

    Spark 4.3 refuses a query when a reader overrides `pushFilters` and the setting is off. It compares `__func__` of the
    method with the base class's function. Here `__func__` is the base class's, so Spark sees no override; it calls this
    object only where the setting is on.
    """

    def __init__(self, reader: "CommitLogReader") -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take_filters(filters)


class CommitLogReader(DataSourceReader):
    """Plans the tasks of a scan on the driver, and reads one of them on an executor.

    Args:
        scan: the checked options.
        schema: the columns of the rows.
    """

    def __init__(self, scan: ScanOptions, schema: StructType) -> None:
        self._scan = scan
        self._schema = schema
        self._conditions: list[Condition] = _conditions_of(scan)

    @property
    def pushFilters(self) -> _PushFilters:  # noqa: N802 - Spark's name
        """Takes filters of Spark and returns those that it must evaluate; see `_PushFilters`."""
        return _PushFilters(self)

    def take_filters(self, filters: Sequence[Filter]) -> list[Filter]:
        """Takes the filters that the scan can answer exactly, if option pushdown is on; returns the others."""
        if not self._scan.with_pushdown:
            return list(filters)
        conditions, left = take_filters(filters)
        self._conditions = [*self._conditions, *conditions]
        return left

    @refusals_first
    def partitions(self) -> Sequence[InputPartition]:
        """A split for each task."""
        splits = plan_splits(self._scan, self._conditions)
        settle()
        return splits

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of a split; none for the empty partition that Spark makes of a plan without splits."""
        if not isinstance(partition, Split):
            return iter(())
        return self._read(partition)

    def _read(self, split: Split) -> Iterator[pa.RecordBatch]:
        use_delay_levels(self._scan.delay_levels_millis)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        names = own_names(self._schema)
        batches = ArrowBatches(schema, names, self._scan.batch_rows)
        scan = SplitScan(
            split,
            check=CHECKS[self._scan.verify],
            row_count_max=self._scan.batch_rows,
            with_hosts=batches.needs_hosts,
            over_damage=self._scan.corrupt is not Corrupt.FAIL,
            fs=open_root(self._scan.root)[0],
        )
        damages: list[Damage] = []
        try:
            for found in scan:
                if isinstance(found, Damage):
                    damages.append(found)
                    if len(damages) == DAMAGES_PER_BATCH:
                        yield from self._reported(batches, damages)
                        damages = []
                elif (run := self._chosen(found)) is not None:
                    yield batches.of_run(run)
        except LogFileGoneError as error:
            if self._scan.fail_on_data_loss:
                raise
            _log.warning("scan.file_gone %s", error.message)
        yield from self._reported(batches, damages)
        settle()

    def _chosen(self, run: RecordRun) -> RecordRun | None:
        """The records that fulfil all conditions; None without any."""
        mask = mask_of(run, self._conditions)
        if mask is None or mask.all():
            return run
        return run.only(np.flatnonzero(mask)) if mask.any() else None

    def _reported(self, batches: ArrowBatches, damages: Sequence[Damage]) -> Iterator[pa.RecordBatch]:
        for damage in damages:
            _log.warning(
                "scan.damage %d bytes at commit-log offset %d: %s", damage.size_bytes, damage.offset, damage.why
            )
        if self._scan.corrupt is not Corrupt.REPORT:
            return
        chosen = [damage for damage in damages if self._is_wanted(damage)]
        if chosen:
            yield batches.of_damage(chosen)

    def _is_wanted(self, damage: Damage) -> bool:
        """Whether the row about this damage is wanted: filters apply, and of the options only the offsets."""
        in_range = damage.offset < self._scan.ending_offset
        in_range &= damage.offset + damage.size_bytes > self._scan.starting_offset
        pushed = self._conditions[len(_conditions_of(self._scan)) :]
        return in_range and matches(pushed, damage_row(damage))


def _conditions_of(scan: ScanOptions) -> list[Condition]:
    """The options that choose records, as conditions."""
    conditions = []
    if scan.topics is not None:
        conditions.append(Condition(TOPIC, "in", scan.topics))
    if scan.queue_ids is not None:
        conditions.append(Condition(QUEUE_ID, "in", scan.queue_ids))
    if scan.starting_offset > 0:
        conditions.append(Condition(PHYSICAL_OFFSET, ">=", (scan.starting_offset,)))
    if scan.ending_offset < OFFSET_MAX:
        conditions.append(Condition(PHYSICAL_OFFSET, "<", (scan.ending_offset,)))
    if scan.starting_time_millis is not None:
        conditions.append(Condition(STORE_TIME, ">=", (scan.starting_time_millis * 1000,)))
    if scan.ending_time_millis is not None:
        conditions.append(Condition(STORE_TIME, "<", (scan.ending_time_millis * 1000,)))
    return conditions
