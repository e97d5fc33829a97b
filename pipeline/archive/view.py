"""An archive as a DataFrame, and archive and live store as one.

    read_archive(spark, "archive").where("topic = 'orders'").groupBy("queueId").count()
    union_view(spark, "archive", "store").where("uniqKey = '...'")

Only files that a manifest names are read; files of a killed run are not part of the archive. Spark prunes folders by topic
and date, and row groups by statistics and, for `uniqKey`, by Bloom filters.
"""

from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as spark_functions
from pyspark.sql.types import BinaryType, DateType, StructField, StructType

from pipeline.object_root import ObjectRoot
from pipeline.scan.schema import NATIVE_SCHEMA
from store.archive import layout
from store.archive.archive_reader import ArchiveReader
from store.errors import InvalidArgumentError
from store.files.file_system import RealFileSystem

DATE, SOURCE = "date", "source"
# The bytes before and after the body of a record: `concat(head, body, tail)` is the record as it was in the log.
FRAME_PARTS = [StructField(name, BinaryType(), False) for name in ("head", "tail")]
ARCHIVE_SCHEMA = StructType([*NATIVE_SCHEMA.fields, *FRAME_PARTS, StructField(DATE, DateType(), True)])


def read_archive(spark: SparkSession, archive: Path | str, *, broker_name: str = "broker-a") -> DataFrame:
    """The messages of a shard's archive: the native columns, `head` and `tail` of the record, and `date` of storing (UTC).

    Args:
        spark: the session.
        archive: the archive; the executors must see it under the same path.
        broker_name: the shard.

    Raises:
        UnsupportedStoreError: the directory is not an archive.
        StoreCorruptedError: a manifest is damaged.
        InvalidArgumentError: it is a URI, which Spark would need Hadoop's jars for.
    """
    root = _directory(archive).absolute()
    files = [
        file for segment in ArchiveReader(root, broker_name, RealFileSystem()).segments() for file in segment.files
    ]
    base = layout.messages_dir(str(root))
    named = [str(root / file.path) for file in files if not file.topic_is_shortened]
    shortened = [file for file in files if file.topic_is_shortened]
    frames = []
    if named or not shortened:
        reader = spark.read.schema(ARCHIVE_SCHEMA)
        frames.append(
            reader.option("basePath", base).parquet(*named) if named else spark.createDataFrame([], ARCHIVE_SCHEMA)
        )
    for date in sorted({file.date for file in shortened}):
        # Their folder names have a shortened topic; the column in the file has the whole one.
        schema = StructType([field for field in ARCHIVE_SCHEMA if field.name != DATE])
        paths = [str(root / file.path) for file in shortened if file.date == date]
        day = spark_functions.lit(date).cast(DateType())
        frames.append(spark.read.schema(schema).parquet(*paths).withColumn(DATE, day))
    columns = ARCHIVE_SCHEMA.fieldNames()
    return reduce(DataFrame.unionByName, frames).select(*columns)


def union_view(
    spark: SparkSession, archive: Path | str, store: Path | str, *, broker_name: str = "broker-a"
) -> DataFrame:
    """The messages of archive and store, each once: the native columns and `source`.

    `source` is `archive`, or `live` for messages after the archive's end.

    Raises:
        UnsupportedStoreError: `archive` is not an archive.
        StoreCorruptedError: a manifest is damaged, or log is missing between segments.
    """
    reader = ArchiveReader(_directory(archive), broker_name, RealFileSystem())
    problem = reader.problem()
    if problem is not None:
        raise problem
    columns = NATIVE_SCHEMA.fieldNames()
    end = reader.range()[1]
    archived = read_archive(spark, archive, broker_name=broker_name).select(*columns)
    live = spark.read.format("commitlog").option("startingPhysicalOffset", str(end)).load(str(store)).select(*columns)
    source = spark_functions.lit
    return archived.withColumn(SOURCE, source("archive")).unionByName(live.withColumn(SOURCE, source("live")))


def _directory(archive: Path | str) -> Path:
    place = ObjectRoot.place(archive, "archive")
    if isinstance(place, Path):
        return place
    raise InvalidArgumentError(
        f"{place} is a URI: Spark reads the archive's Parquet files from a directory. Mount the bucket, or copy the archive; "
        "`reput pipeline query`, `archive --verify` and `restore` take URIs",
        field="archive",
    )
