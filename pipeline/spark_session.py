"""The Spark session of the pipeline: a Java that boots, settings that fit, both formats registered.

Who asks rules, in this order: what `open_session` is given, what spark-submit or spark-defaults.conf say, our defaults.
A session that is already there is taken as it is and gets the formats.
"""

import os
import sys
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pipeline.java_home import java_home
from pipeline.ship import ship_to_executors

LOOPBACK = "127.0.0.1"
# A scan hands over batches of 16 MiB and keeps none; sorts and joins of the jobs want some more than Spark's 1 GiB.
DRIVER_MEMORY = "2g"
JVM_END_SECONDS_MAX = 30.0
DEFAULTS = {
    "spark.master": "local[*]",
    "spark.app.name": "reput",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",  # days and hours of a report do not depend on who runs it
    "spark.sql.python.filterPushdown.enabled": "true",
}
# Spark's launcher sets it unless it is told before.
LAUNCH_DEFAULTS = {"spark.ui.showConsoleProgress": "false"}  # jobs draw their own bar
# What a session in this process alone takes besides: it listens to nobody else.
LOCAL_DEFAULTS = {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
SHORT_NAMES = {"master": "spark.master", "app_name": "spark.app.name"}

# PySpark forks to start Java. Where gRPC already runs in this process, its fork handlers would start its threads again in
# that child, which the child's closing of all descriptors then kills: "Java gateway process exited". Nothing here forks
# and goes on with gRPC, so that they are not needed. gRPC looks at it when it starts.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

_lock = threading.Lock()
_registered: "weakref.WeakSet[SparkSession]" = weakref.WeakSet()


class UnknownConfError(ValueError):
    """A name is no setting of Spark's."""


def open_session(**conf: Any) -> SparkSession:
    """A session with the formats `commitlog` and `rocketmq`.

    Args:
        conf: Spark's settings. `**{"spark.sql.shuffle.partitions": 4}`, or with underscores for the dots
            (`spark_ui_enabled=True`); `master` and `app_name` stand for the two that everybody sets.

    Raises:
        UnknownConfError: a name does not begin with `spark`.
        JavaNotFoundError: there is no Java for Spark.
    """
    given = spark_names(conf)
    with _lock:
        spark = SparkSession.getActiveSession()
        if spark is None and SparkContext._active_spark_context is None:
            spark = _start(given)
        else:
            builder = SparkSession.builder
            for name, value in given.items():
                builder = builder.config(name, value)
            spark = builder.getOrCreate()
        register_formats(spark)
    return spark


def spark_names(conf: Mapping[str, Any]) -> dict[str, str]:
    """Settings under Spark's own names, as the text that Spark takes."""
    given: dict[str, str] = {}
    for name, value in conf.items():
        full = SHORT_NAMES.get(name, name)
        if "." not in full:
            full = full.replace("_", ".")
        if not full.startswith("spark."):
            raise UnknownConfError(
                f"{name!r} is no setting of Spark's: give names like spark.sql.shuffle.partitions, master or app_name."
            )
        given[full] = str(value).lower() if isinstance(value, bool) else str(value)
    return given


def register_formats(spark: SparkSession) -> None:
    """Makes `commitlog` and `rocketmq` known to a session; once is enough, again does nothing."""
    if spark in _registered:
        return
    from pipeline.sources.commitlog import CommitLogDataSource
    from pipeline.sources.rocketmq import RocketMQDataSource

    for source in (CommitLogDataSource, RocketMQDataSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:  # sessions of one context share what was registered
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
    _registered.add(spark)


def close_session(spark: SparkSession) -> None:
    """Ends the session and, where this process started it, Spark's Java process; returns when that is gone."""
    spark.stop()
    with SparkContext._lock:
        gateway = SparkContext._gateway
        process = getattr(gateway, "proc", None)
        if gateway is None or process is None:
            return
        gateway.shutdown()
        SparkContext._gateway = None
        SparkContext._jvm = None
    process.stdin.close()  # what tells the Java process to end
    process.wait(JVM_END_SECONDS_MAX)


def _start(given: Mapping[str, str]) -> SparkSession:
    """A new session; `given` before what was submitted, that before our defaults."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has started Java itself
        os.environ["JAVA_HOME"] = str(java_home())
        # The weakest of the places where Spark looks: its own files and arguments win.
        os.environ.setdefault("SPARK_DRIVER_MEMORY", DRIVER_MEMORY)
        if _is_local(given.get("spark.master", os.environ.get("MASTER", DEFAULTS["spark.master"]))):
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    launch = SparkConf(loadDefaults=False)
    for name, value in {**LAUNCH_DEFAULTS, **given}.items():
        launch.set(name, value)
    SparkContext._ensure_initialized(conf=launch)
    conf = SparkConf()  # what files and arguments say, now that Java can tell
    defaults = dict(DEFAULTS)
    if _is_local(given.get("spark.master", conf.get("spark.master", DEFAULTS["spark.master"]) or "")):
        defaults.update(LOCAL_DEFAULTS)
    for name, value in defaults.items():
        conf.setIfMissing(name, value)
    if _is_unnamed(conf):
        conf.set("spark.app.name", DEFAULTS["spark.app.name"])
    for name, value in given.items():
        conf.set(name, value)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    if not _is_local(spark.sparkContext.master or ""):
        ship_to_executors(spark.sparkContext)
    return spark


def _is_local(master: str) -> bool:
    """Whether everything runs in one process on this machine."""
    return master == "local" or master.startswith("local[")


def _is_unnamed(conf: SparkConf) -> bool:
    """Whether the name is the one that Spark's own launcher gives to what has none."""
    return conf.get("spark.app.name") in (None, "", "pyspark-shell")
