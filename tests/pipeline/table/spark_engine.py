"""A Spark with Iceberg's runtime for tests: Java's, in a process of its own, of the versions in `spark/pom.xml`.

The Spark of the pipeline is newer than any for which Iceberg has a runtime. Jars come from the registry by Maven, once for a
machine; the class path and the program are kept in `.tools/spark-iceberg`, which `.ci/run` shares between clones.
"""

import contextlib
import functools
import itertools
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.clients.programs import home_of
from tests.rocketmq import real_broker
from tests.support.failures import watch_log
from tests.support.waiting import WAIT_SECONDS_MAX

SOURCES = Path(__file__).parent / "spark"
HOME = real_broker.TOOLS.with_name("spark-iceberg")
# What Spark's own launcher opens to it, as far as these jobs need it.
OPENED = ("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
          "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.util.calendar")  # fmt: skip
# A JVM that lives for half a minute.
JAVA = ("java", "-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dio.netty.tryReflectionSetAccessible=true",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED))  # fmt: skip
SETTINGS = {
    "spark.master": "local[2]",
    "spark.app.name": "tables",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


@functools.cache
def classpath() -> str:
    files = sorted(path for path in SOURCES.iterdir() if path.is_file())
    return real_broker.build_classpath(SOURCES, home_of(HOME, b"".join(path.read_bytes() for path in files)))


class SparkEngine:
    """A session that runs; see `spark_engine`."""

    def __init__(self, process: subprocess.Popen[str], work: Path) -> None:
        self._process = process
        self._work = work
        self._numbers = itertools.count()

    def sql(self, text: str) -> list[dict[str, Any]]:
        """The rows of a statement; a field that is null is left out."""
        return [json.loads(row) for row in self._asked(sql=text, into=None)]

    def arrow(self, text: str) -> pa.Table:
        """The rows of a query with their types."""
        place = self._work / str(next(self._numbers))
        self._asked(sql=text, into=str(place))
        return pq.read_table(place)

    def _asked(self, **order: str | None) -> list[str]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> list[str]:
        """What it says next; AssertionError for an error."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "Spark has ended"
        said = json.loads(line)
        assert "error" not in said, said["error"]
        return list(said["rows"])


@contextlib.contextmanager
def spark_engine(work: Path, catalogs: Mapping[str, Mapping[str, str]]) -> Iterator[SparkEngine]:
    """A session with these catalogs of Iceberg, by name with their settings; it ends with the block.

    Args:
        work: a directory that is made, for what it writes down.
        catalogs: `type` and so on, as Iceberg names them.
    """
    work.mkdir()
    settings = {**SETTINGS, "spark.local.dir": str(work / "spark"), "spark.sql.warehouse.dir": str(work / "warehouse")}
    for name, properties in catalogs.items():
        settings[f"spark.sql.catalog.{name}"] = "org.apache.iceberg.spark.SparkCatalog"
        settings |= {f"spark.sql.catalog.{name}.{key}": value for key, value in properties.items()}
    with open(work / "spark.log", "wb") as log:
        process = subprocess.Popen(
            [*JAVA, "-cp", classpath(), "Engine", *(f"{name}={value}" for name, value in settings.items())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=work,
        )  # fmt: skip
    watch_log(work / "spark.log")
    try:
        engine = SparkEngine(process, work)
        engine.answer()
        yield engine
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(WAIT_SECONDS_MAX)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
