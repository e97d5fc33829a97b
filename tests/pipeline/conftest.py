"""One Spark session for all tests of a process."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import pipeline
from pipeline.spark_session import close_session
from store.compiled import loading
from tests.pipeline.standalone import JAVA_OPTIONS
from tests.support.object_store import CREDENTIALS
from tests.support.processes import put_first

# A test's queries are small: Java's optimizing compiler costs as much of the processor as all the rest of a cold session.
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)
# Spark gives its Python workers ten seconds to import what they need, whatever else the machine computes.
NICENESS = -5


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores; its Java process is gone when the tests are."""
    scratch = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as environment:
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
    close_session(session)


@pytest.fixture
def kernels_off() -> Iterator[None]:
    """Runs the test with plain code alone."""
    before = loading.switch(loading.OFF)
    yield
    loading.switch(before)
