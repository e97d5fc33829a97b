"""format("commitlog") through Spark itself: rows, filters with pushdown on and off, errors that reach the caller."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.brute_force import EPOCH, Row, rows_of_store
from tests.pipeline.logs import log_file, overwrite, write_files
from tests.torture.amount import amount

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
# Each is two queries of a quarter of a second; without Spark, test_filters.py tries filters by the hundred.
COMBINATION_COUNT, COMBINATION_COUNT_LONG = 8, amount(sample=20, change=40, full=200)
Predicate = tuple[str, Callable[[Row], bool]]


def load(spark: SparkSession, root: Path, **options: Any) -> DataFrame:
    reader = spark.read.format("commitlog").option("boundaryCache", "off")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(root))


@contextmanager
def pushdown(spark: SparkSession, is_on: bool) -> Iterator[None]:
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, str(is_on).lower())
    try:
        yield
    finally:
        spark.conf.set(PUSHDOWN, before)


def as_row(row: Any) -> Row:
    """A row of Spark in the terms of `brute_force`; collected times are local ones without a zone."""
    plain = row.asDict()
    for name, value in plain.items():
        if isinstance(value, datetime):
            plain[name] = value.astimezone(UTC)
        elif isinstance(value, bytearray):
            plain[name] = bytes(value)
    return plain


def test_all_rows_and_columns(spark: SparkSession, broker_store: Path, engine_store: Path) -> None:
    for root in (broker_store, engine_store):
        frame = load(spark, root, splitBytes="64k", raw="true", verify="crc")
        wanted = rows_of_store(root, without=())
        assert {field.name for field in frame.schema if field.nullable} == {
            "tags",
            "keys",
            "uniqKey",
            "body",
            "priority",
            "lite_topic",
        }
        rows = [as_row(row) for row in frame.orderBy("physicalOffset").collect()]
        assert rows == wanted


def random_predicate(chance: random.Random, rows: list[Row]) -> Predicate:
    """SQL and what it means."""
    row = chance.choice(rows)
    number = chance.choice(["queueId", "queueOffset", "physicalOffset", "storeSize", "sysFlag", "bodyCRC"])
    value = row[number] + chance.choice([0, 0, 1, -1])
    topic = row["topic"].replace("'", "''")
    moment = row["storeTimestamp"] + timedelta(milliseconds=chance.choice([0, 1, -5]))
    micros = (moment - EPOCH) // timedelta(microseconds=1)
    tags = row["tags"]
    choices: list[Predicate] = [
        (f"topic = '{topic}'", lambda r: r["topic"] == row["topic"]),
        (f"topic IN ('{topic}', 'absent')", lambda r: r["topic"] in (row["topic"], "absent")),
        (f"startswith(topic, '{topic[:2]}')", lambda r: r["topic"].startswith(row["topic"][:2])),
        (f"topic <> '{topic}'", lambda r: r["topic"] != row["topic"]),
        (f"{number} = {value}", lambda r: r[number] == value),
        (f"{number} >= {value}", lambda r: r[number] >= value),
        (f"{number} BETWEEN {value} AND {value + 100}", lambda r: value <= r[number] <= value + 100),
        (f"{number} NOT IN ({value}, 3)", lambda r: r[number] not in (value, 3)),
        (f"queueId + 1 = {row['queueId'] + 1}", lambda r: r["queueId"] == row["queueId"]),
        (f"queueId = 0 OR {number} < {value}", lambda r: r["queueId"] == 0 or r[number] < value),
        (f"storeTimestamp < timestamp_micros({micros})", lambda r: r["storeTimestamp"] < moment),
        (f"storeTimestamp = timestamp_micros({micros})", lambda r: r["storeTimestamp"] == moment),
        (f"bornTimestamp >= timestamp_micros({micros})", lambda r: r["bornTimestamp"] >= moment),
        ("tags IS NULL", lambda r: r["tags"] is None),
        ("uniqKey IS NOT NULL", lambda r: r["uniqKey"] is not None),
    ]
    if tags is not None and "'" not in tags:
        choices.append((f"tags = '{tags}'", lambda r: r["tags"] == tags))
    return chance.choice(choices)


def assert_combinations(spark: SparkSession, root: Path, count: int, seed: int) -> None:
    rows = rows_of_store(root, without=("raw", "body"))
    chance = random.Random(seed)
    columns = (
        "topic,queueId,queueOffset,physicalOffset,storeSize,sysFlag,bodyCRC,bornTimestamp,storeTimestamp,tags,uniqKey"
    )
    for _ in range(count):
        predicates = [random_predicate(chance, rows) for _ in range(chance.randrange(1, 4))]
        wanted = sorted(row["physicalOffset"] for row in rows if all(means(row) for _, means in predicates))
        sql = " AND ".join(f"({text})" for text, _ in predicates)
        for is_on in (True, False):
            with pushdown(spark, is_on):
                frame = load(spark, root, columns=columns, pushdown="true")
                found = frame.where(sql).select("physicalOffset").collect()
            assert sorted(row[0] for row in found) == wanted, (sql, is_on)


def test_filters_equal_brute_force_with_pushdown_on_and_off(spark: SparkSession, engine_store: Path) -> None:
    assert_combinations(spark, engine_store, COMBINATION_COUNT, seed=1)


@pytest.mark.spark
def test_many_filters_equal_brute_force(spark: SparkSession, broker_store: Path) -> None:
    assert_combinations(spark, broker_store, COMBINATION_COUNT_LONG, seed=2)


def has_filter(frame: DataFrame) -> bool:
    """Whether Spark filters the scan's rows itself."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return any(line.lstrip("+-*(1234567890) ").startswith("Filter ") for line in plan.splitlines())


def test_filters_are_answered_by_the_source_when_both_sides_let_it(spark: SparkSession, broker_store: Path) -> None:
    for is_on, option, is_left in ((True, "true", False), (True, "false", True), (False, "true", True)):
        with pushdown(spark, is_on):
            filtered = load(spark, broker_store, pushdown=option).where("topic = 'absent' AND queueId = 3")
            assert has_filter(filtered) is is_left
            assert filtered.count() == 0


def test_one_frame_serves_many_filters(spark: SparkSession, broker_store: Path) -> None:
    """Spark 4.3 uses what one query pushed down for others on the same DataFrame; so nothing is taken unasked."""
    rows = rows_of_store(broker_store)
    frame = load(spark, broker_store, columns="topic,queueId")
    counts = [sum(row["queueId"] == number for row in rows) for number in (0, 1)]
    with pushdown(spark, True):
        assert frame.where("queueId = 0").count() == counts[0]
        assert frame.count() == len(rows)
        assert frame.where("queueId + 1 = 2").count() == counts[1]
        both = frame.where("queueId = 0").union(frame.where("queueId = 1"))
        assert both.groupBy("queueId").count().orderBy("queueId").collect() == [(0, counts[0]), (1, counts[1])]


def test_a_schema_chooses_columns_and_their_order(spark: SparkSession, broker_store: Path) -> None:
    frame = spark.read.format("commitlog").schema("queueId int, topic string").load(str(broker_store))
    assert frame.columns == ["queueId", "topic"]
    wanted = sorted((row["queueId"], row["topic"]) for row in rows_of_store(broker_store))
    assert sorted(map(tuple, frame.collect())) == wanted


def test_damage_reaches_the_caller_with_its_offset(spark: SparkSession, tmp_path: Path) -> None:
    frames = write_files(tmp_path)
    victim = frames[2]
    offset = int.from_bytes(victim[28:36], "big")
    overwrite(log_file(tmp_path), offset + 4, b"\0")
    with pytest.raises(PySparkException, match=f"commit-log offset {offset} is damaged"):
        load(spark, tmp_path).count()
    assert load(spark, tmp_path, corrupt="skip").count() == len(frames) - 1
    reported = load(spark, tmp_path, corrupt="report").where("damage IS NOT NULL").collect()
    assert [(row.physicalOffset, row.storeSize) for row in reported] == [(offset, len(victim))]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"verfy": "crc"}, "no option 'verfy'"),
        ({"subscribe": "x"}, "belongs to format"),
        ({"columns": "x"}, "no column 'x'"),
    ],
)
def test_a_bad_option_reaches_the_caller(
    spark: SparkSession, broker_store: Path, options: dict[str, str], why: str
) -> None:
    with pytest.raises(AnalysisException, match=why):
        load(spark, broker_store, **options)


def test_a_missing_store_reaches_the_caller(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="is not a directory"):
        load(spark, tmp_path / "absent").count()
    with pytest.raises(AnalysisException, match="needs a path"):
        spark.read.format("commitlog").load()
