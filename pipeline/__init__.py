"""The data pipeline on Spark: the store's files read, rebuilt, audited, archived and analysed.

import pipeline

spark = pipeline.session()
spark.read.format("commitlog").load("store").groupBy("topic").count().show()
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session"]


def session(**conf: Any) -> "SparkSession":
    """See `pipeline.spark_session.open_session`."""
    from pipeline.spark_session import open_session

    return open_session(**conf)
