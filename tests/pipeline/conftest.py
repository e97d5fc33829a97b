"""One Spark session for all tests of a process."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pipeline
from pipeline.spark_session import close_session, java_home
from store.compiled import loading
from tests.pipeline.spark_home import WRITE_SECONDS_MAX, NewArchive, archive_of, spark_environment
from tests.support.object_store import CREDENTIALS
from tests.support.processes import put_first

# Spark gives its Python workers ten seconds to import what they need, whatever else the machine computes.
NICENESS = -5


@pytest.fixture(scope="session", autouse=True)
def spark_home() -> Iterator[Path]:
    """The home of Spark that sessions here, and drivers that tests start, find in the environment."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in spark_environment().items():
            environment.setenv(name, value)
        yield Path(os.environ["SPARK_HOME"])


@pytest.fixture(scope="session")
def spark(spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores; its Java process is gone when the tests are. The first one leaves an archive of its classes."""
    scratch = tmp_path_factory.mktemp("spark")
    archive = archive_of(java_home(), spark_home)
    new_archive = None if archive.exists() else NewArchive(archive)
    with pytest.MonkeyPatch.context() as environment:
        if new_archive:
            environment.setenv("SPARK_SUBMIT_OPTS", new_archive.java_options)
        for name, value in CREDENTIALS.items():  # its Python workers read object stores with what it was started with
            environment.setenv(name, value)
        session = pipeline.session(
            **{
                "spark.master": "local[2]",
                "spark.ui.enabled": False,
                "spark.sql.shuffle.partitions": 4,
                "spark.driver.memory": "1g",
                "spark.local.dir": scratch / "local",
                "spark.sql.warehouse.dir": scratch / "warehouse",
            }
        )
    session.sparkContext.setLogLevel("ERROR")
    put_first([session.sparkContext._gateway.proc.pid], NICENESS)
    yield session
    if new_archive is None:
        close_session(session)
        return
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pipeline.spark_session.JVM_END_SECONDS_MAX", WRITE_SECONDS_MAX)
        close_session(session)
    new_archive.keep()


@pytest.fixture
def kernels_off() -> Iterator[None]:
    """Runs the test with plain code alone."""
    before = loading.switch(loading.OFF)
    yield
    loading.switch(before)
