"""`format("rocketmq")`: topics over the gateway, as batch, stream and sink.

    spark.read.format("rocketmq").option("endpoint", "127.0.0.1:8081").option("subscribe", "Orders").load()
    spark.readStream.format("rocketmq")...            the same, as messages arrive
    df.write.format("rocketmq").option("endpoint", ...).option("topic", "Orders").mode("append").save()

A queue is a partition, as in Spark's Kafka source, and has a gateway; several shards are more queues. The source reads
through the gateway and not from a commitlog's Reput stream: the gateway is the only address that users have, its answers are
bounded and checked, a subscription reads only its own queues instead of the whole log, and tasks read queues in parallel.
To read the whole log at the speed of the disk, use `format("commitlog")`.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pipeline.refusals import refusals_first
from pipeline.rocketmq.batch import RocketMQBatchReader
from pipeline.rocketmq.bodies.formats import JSON, BodyFormat, format_of, json_format
from pipeline.rocketmq.bodies.sample import sampled_schema
from pipeline.rocketmq.options import BATCH, STREAM, ReadOptions, read_options
from pipeline.rocketmq.rows import BODY_VALUE, checked_schema, source_schema, wants_body_value
from pipeline.rocketmq.sink import RocketMQBatchWriter, RocketMQStreamWriter
from pipeline.rocketmq.sink_options import sink_options
from pipeline.rocketmq.stream import RocketMQStreamReader


class RocketMQDataSource(DataSource):
    """The format; its options are in `options.py` and `sink_options.py`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "rocketmq"

    @refusals_first
    def schema(self) -> StructType:
        """The columns that the options ask for."""
        options = read_options(self.options)
        return source_schema(options, _format(options) if wants_body_value(options) else None)

    @refusals_first
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of one batch."""
        options = read_options(self.options, BATCH)
        format_ = _format(options, schema)
        return RocketMQBatchReader(options, checked_schema(options, schema, format_), format_)

    # Not `refusals_first`: Spark's runner of streams fails once more behind a refusal, and only the traceback has both.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of a stream."""
        options = read_options(self.options, STREAM)
        format_ = _format(options, schema)
        return RocketMQStreamReader(options, checked_schema(options, schema, format_), format_)

    @refusals_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of a DataFrame."""
        return RocketMQBatchWriter(sink_options(self.options, overwrite=overwrite), schema)

    @refusals_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A writer of a stream."""
        return RocketMQStreamWriter(sink_options(self.options, overwrite=overwrite), schema)


def _format(options: ReadOptions, asked: StructType | None = None) -> BodyFormat | None:
    """The format of column `bodyValue`; None without it.

    Args:
        options: of the query.
        asked: its columns, if they are known: then JSON bodies have the type that stands there, inferred before or the user's.
    """
    if asked is not None:
        kind = next((field.dataType for field in asked if field.name.lower() == BODY_VALUE.lower()), None)
        if kind is None:
            return None
        if options.bodies.format == JSON and isinstance(kind, StructType):
            return json_format(kind)
    if not options.bodies.format:
        return None
    return format_of(options.bodies, lambda: sampled_schema(options))
