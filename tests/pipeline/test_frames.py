"""The typed helpers, against brute force over the broker's store; and the formats in a session that nobody prepared."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline import frames
from tests.pipeline.brute_force import rows_of_store
from tests.support.waiting import WAIT_SECONDS_MAX

PLAIN_SESSION = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
print("counted", spark.read.format("commitlog").option("columns", "topic").load(sys.argv[1]).count())
spark.read.format("rocketmq").option("endpoint", "127.0.0.1:1").option("retrySeconds", "1").option("subscribe", "x").load()
print("known")
"""


@pytest.mark.spark
def test_helpers_say_what_brute_force_says(spark: SparkSession, broker_store: Path) -> None:
    rows = [row for row in rows_of_store(broker_store) if row["topic"] == "b_order"]
    begin = sorted(row["storeTimestamp"] for row in rows)[len(rows) // 3]
    end = begin + timedelta(seconds=2)
    columns = ("keys", "bornTimestamp", "storeTimestamp")
    log = frames.read_log(spark, broker_store, columns=columns, topics=("b_order",), begin=begin, end=end)
    wanted = [row for row in rows if begin <= row["storeTimestamp"] < end]
    assert wanted
    assert log.columns == list(columns)
    assert log.count() == len(wanted)
    hot = [row for row in wanted if "hotkey" in (row["keys"] or [])]
    delays = sorted((row["storeTimestamp"] - row["bornTimestamp"]) // timedelta(milliseconds=1) for row in hot)
    keyed = frames.with_delay(frames.with_key(log, "hotkey"), "late")
    assert sorted(row["late"] for row in keyed.collect()) == delays


@pytest.mark.spark
def test_bodies_that_are_no_json_have_a_null_value(spark: SparkSession) -> None:
    bodies = spark.createDataFrame([(b'{"id": 7}',), (b"\xff no",), (None,)], "body binary")
    values = [row["value"] for row in frames.json_bodies(bodies, "id long").collect()]
    assert [value and value["id"] for value in values] == [7, None, None]


def test_a_time_without_a_zone_is_refused(broker_store: Path) -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        frames._millis(datetime(2026, 1, 1))
    assert frames._millis(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == "1000"


@pytest.mark.spark
def test_a_plain_session_knows_both_formats_without_an_import(broker_store: Path, tmp_path: Path) -> None:
    """PySpark finds the modules `pyspark_commitlog` and `pyspark_rocketmq` by their names."""
    from pipeline.spark_session import java_home

    environment = os.environ | {"JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", PLAIN_SESSION, str(broker_store)]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.split() == ["counted", str(len(rows_of_store(broker_store))), "known"]
