"""Spark tasks of the pipeline's rows, and the measurements that they are compared with; run in the process of spark_side.py."""

import pathlib
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

from pyarrow.fs import FileSelector
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import pipeline
from benchmarks import processes
from benchmarks.plain_decode import decode_log
from pipeline.object_files import RANGE_BYTES, READ_AHEAD_COUNT
from pipeline.scan.commitlog import CommitLogDataSource
from pipeline.scan.scan import Split
from pipeline.spark_session import close_session
from services.object_uri import connect

# The columns that queue units are made of.
QUEUE_COLUMNS = "topic,queueId,queueOffset,physicalOffset,storeSize,tagsCode"
CLUSTER_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "768m", "spark.executor.cores": 1}
EXECUTORS_SECONDS_MAX = 90.0
DRIVER_MEMORY = "6g"  # as when the figures behind the targets were measured


class TupleReader(DataSourceReader):
    """The same rows, handed to Spark one by one as tuples, as a source without Arrow does."""

    def __init__(self, inner: DataSourceReader) -> None:
        self._inner = inner

    def partitions(self) -> list[InputPartition]:
        """The partitions of the real reader."""
        return list(self._inner.partitions())

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of a partition as tuples."""
        for batch in self._inner.read(partition):
            yield from zip(*(column.to_pylist(maps_as_pydicts="strict") for column in batch.columns), strict=True)


class TupleDataSource(CommitLogDataSource):
    """format("commitlog-tuples")."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "commitlog-tuples"

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of tuples."""
        return TupleReader(super().reader(schema=schema))


class BareReader(TupleReader):
    """As many rows as the real reader makes, but its first batch repeated: the time of Spark alone, without reading.

    It assumes records of one size, as in the measured log; it needs the column storeSize.
    """

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The first batch of the partition, repeated."""
        assert isinstance(partition, Split)
        batch = next(iter(self._inner.read(partition)))
        size_bytes = sum(batch.column("storeSize").to_pylist())
        count = (partition.end - partition.begin) * batch.num_rows // size_bytes
        while count > 0:
            yield batch.slice(0, count)
            count -= batch.num_rows


class BareDataSource(CommitLogDataSource):
    """format("commitlog-bare")."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "commitlog-bare"

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader that repeats its first batch."""
        return BareReader(super().reader(schema=schema))


class Tasks:
    """The tasks by name; each takes and returns JSON values.

    Args:
        work: directory for files that are removed later.
        cores: cores of the session.
        master: of a cluster; empty: this machine alone.
    """

    def __init__(self, work: pathlib.Path, cores: int, master: str = "") -> None:
        self._master = master
        self._cores = cores
        self._work = work
        self._spark: SparkSession | None = None
        self._pool: ProcessPoolExecutor | None = None

    @property
    def spark(self) -> SparkSession:
        """The session, made when it is first asked for."""
        if self._spark is None:
            self._spark = pipeline.session(
                **{
                    "spark.master": self._master or f"local[{self._cores}]",
                    "spark.driver.memory": DRIVER_MEMORY,
                    **(CLUSTER_SETTINGS if self._master else {}),
                    "spark.sql.shuffle.partitions": self._cores * 2,
                    "spark.local.dir": self._work / "spark",
                    "spark.sql.warehouse.dir": self._work / "warehouse",
                }
            )
            self._spark.sparkContext.setLogLevel("ERROR")
            self._spark.dataSource.register(TupleDataSource)
            self._spark.dataSource.register(BareDataSource)
        return self._spark

    def end(self) -> None:
        """Ends the session, if it was started."""
        if self._pool is not None:
            self._pool.shutdown()
        if self._spark is not None:
            close_session(self._spark)

    def scan(
        self,
        store: str,
        columns: str = "",
        where: str = "",
        form: str = "commitlog",
        options: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Reads a log and discards the rows."""
        reader = self.spark.read.format(form).options(**(options or {}))
        if columns:
            reader = reader.option("columns", columns)
        rows = reader.load(store)
        if where:
            rows = rows.where(where)
        start = time.perf_counter()
        rows.write.format("noop").mode("overwrite").save()
        return {"seconds": time.perf_counter() - start}

    def count_by_queue(self, store: str, end: int) -> dict[str, Any]:
        """Messages of each queue, from the log before an offset."""
        options = {"columns": "topic,queueId", "endingPhysicalOffset": str(end)}
        rows = self.spark.read.format("commitlog").options(**options).load(store)
        start = time.perf_counter()
        counts = {f"{row[0]}/{row[1]}": row[2] for row in rows.groupBy("topic", "queueId").count().collect()}
        return {"seconds": time.perf_counter() - start, "counts": counts}

    def archive(self, store: str, out: str) -> dict[str, Any]:
        """Archives the sealed files of a log."""
        from pipeline.archive import archive

        report = archive.run(self.spark, pathlib.Path(store), pathlib.Path(out))
        return {"counts": report.counts}

    def count_by_queue_in_archive(self, archive: str) -> dict[str, Any]:
        """Messages of each queue, from an archive."""
        from pipeline.archive.view import read_archive

        rows = read_archive(self.spark, archive)
        start = time.perf_counter()
        counts = {f"{row[0]}/{row[1]}": row[2] for row in rows.groupBy("topic", "queueId").count().collect()}
        return {"seconds": time.perf_counter() - start, "counts": counts}

    def wait_for_executors(self, count: int) -> dict[str, Any]:
        """Waits until so many executors have come."""
        tracker = self.spark.sparkContext._jsc.sc().statusTracker()

        # The driver is in the list, too.
        processes.wait_for(lambda: len(tracker.getExecutorInfos()) > count, f"{count} executors", EXECUTORS_SECONDS_MAX)
        return {}

    def consume_to_parquet(self, endpoint: str, topic: str, out: str) -> dict[str, Any]:
        """Reads a topic through a gateway into Parquet files, up to its end."""
        options = {"endpoint": endpoint, "subscribe": topic, "startingOffsets": "earliest", "consumerGroup": "bench"}
        place = pathlib.Path(out)
        start = time.perf_counter()
        query = (
            self.spark.readStream.format("rocketmq").options(**options).load()
            .writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
            .trigger(availableNow=True).start(str(place / "files"))
        )  # fmt: skip
        query.awaitTermination()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "count": self.spark.read.parquet(str(place / "files")).count()}

    def ready_rows_to_parquet(self, store: str, out: str) -> dict[str, Any]:
        """Writes rows that are ready in the workers, about as many as a log has, with all columns, into Parquet files."""
        rows = self.spark.read.format("commitlog-bare").load(store)
        start = time.perf_counter()
        rows.write.parquet(out)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "count": self.spark.read.parquet(out).count()}

    def rebuild(
        self, store: str, out: str, slot_count: int, entry_count: int, split_bytes: int | None = None
    ) -> dict[str, Any]:
        """Rebuilds queues and indexes."""
        from pipeline.rebuild import rebuild
        from pipeline.rebuild.out import StoreLayout
        from store.readers.index_reader import IndexLayout

        layout = StoreLayout(index=IndexLayout(slot_count, entry_count), has_tags=True)  # as RocketMQ 5.5.0
        start = time.perf_counter()
        report = rebuild.run(self.spark, store, out, layout=layout, split_bytes=split_bytes, is_flushed=False)
        return {"seconds": time.perf_counter() - start, "counts": report.counts}

    def plain(self, store: str) -> dict[str, Any]:
        """Decodes the log in plain Python."""
        return {"count": decode_log(pathlib.Path(store))}

    def without_spark(self, store: str, columns: str) -> dict[str, Any]:
        """Runs the scan's tasks without Spark, in as many processes as Spark has cores."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self._cores, mp_context=get_context("spawn"))
        source = CommitLogDataSource({"path": store, "columns": columns})
        reader = source.reader(schema=source.schema())
        partitions = reader.partitions()
        start = time.perf_counter()
        counts = list(self._pool.map(read_partition, [reader] * len(partitions), partitions))
        return {"seconds": time.perf_counter() - start, "count": sum(counts)}

    def read_objects(self, store: str) -> dict[str, Any]:
        """Reads the log files of a store in an object store by pyarrow alone, in as many processes as Spark has cores."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self._cores, mp_context=get_context("spawn"))
        fs, root = connect(store)
        start = time.perf_counter()
        paths = [info.path for info in fs.get_file_info(FileSelector(f"{root}/commitlog"))]
        sizes = list(self._pool.map(read_object, [store] * len(paths), paths))
        return {"seconds": time.perf_counter() - start, "bytes": sum(sizes)}

    def remove(self, path: str) -> None:
        """Removes files that a task has made."""
        shutil.rmtree(path, ignore_errors=True)


def read_object(uri: str, path: str) -> int:
    """The size of an object, which is read whole: the ranges of a scan, as many at once; runs in a process of the pool."""
    with connect(uri)[0].open_input_file(path) as file, ThreadPoolExecutor(READ_AHEAD_COUNT) as threads:
        begins = range(0, file.size(), RANGE_BYTES)
        return sum(len(data) for data in threads.map(partial(file.read_at, RANGE_BYTES), begins))


def read_partition(reader: DataSourceReader, partition: InputPartition) -> int:
    """The number of rows of one partition; runs in a process of the pool."""
    return sum(batch.num_rows for batch in reader.read(partition))
