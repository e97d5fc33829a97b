"""`format("rocketmq")`: topics over the gateway, as a batch, as a stream, and as a sink.

    spark.read.format("rocketmq").option("endpoint", "127.0.0.1:8081").option("subscribe", "Orders").load()
    spark.readStream.format("rocketmq")...            the same, as messages come
    df.write.format("rocketmq").option("endpoint", ...).option("topic", "Orders").mode("append").save()

A queue is a partition, as in Kafka's source, and has a gateway; several shards are more queues. It reads through the
gateway and not from a commitlog's Reput stream: the gateway's is the one address that users have, its answers are bounded
and checked, a subscription reads the queues it wants instead of the whole log, and tasks read queues side by side.
Whoever wants the whole log at the speed of the disk has `format("commitlog")`.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pipeline.sources.rocketmq_batch import RocketMQBatchReader
from pipeline.sources.rocketmq_options import BATCH, STREAM, read_options
from pipeline.sources.rocketmq_rows import checked_schema, source_schema
from pipeline.sources.rocketmq_sink import RocketMQBatchWriter, RocketMQStreamWriter
from pipeline.sources.rocketmq_sink_options import sink_options
from pipeline.sources.rocketmq_stream import RocketMQStreamReader


class RocketMQDataSource(DataSource):
    """The format; options are in `rocketmq_options.py` and `rocketmq_sink_options.py`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "rocketmq"

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        return source_schema(read_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch over what the queues hold."""
        options = read_options(self.options, BATCH)
        return RocketMQBatchReader(options, checked_schema(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A stream."""
        options = read_options(self.options, STREAM)
        return RocketMQStreamReader(options, checked_schema(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A sink for a DataFrame."""
        return RocketMQBatchWriter(sink_options(self.options, overwrite=overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A sink for a stream."""
        return RocketMQStreamWriter(sink_options(self.options, overwrite=overwrite), schema)
