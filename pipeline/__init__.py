"""The data pipeline on Spark: the store's files read, rebuilt, audited, archived and analysed.

import pipeline

spark = pipeline.session()
spark.read.format("commitlog").load("store").groupBy("topic").count().show()
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session"]

if not os.path.isfile(__file__):  # imported from the zip that executors get
    from pipeline.ship import live_outside_zip

    live_outside_zip(__file__, __path__)

    from store.files.umask import set_umask

    set_umask(os.environ.get("REPUT_UMASK", ""))  # as the `reput` command does for the driver


def session(**conf: Any) -> "SparkSession":
    """A Spark session with both formats; `conf` as `pipeline.spark_session.open_session` takes it."""
    from pipeline.spark_session import open_session

    return open_session(**conf)
