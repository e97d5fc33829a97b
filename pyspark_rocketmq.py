"""`format("rocketmq")` in any session: PySpark finds modules named `pyspark_*` and registers their `DefaultSource`."""

from pipeline.rocketmq.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
