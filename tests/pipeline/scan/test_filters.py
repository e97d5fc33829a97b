"""Filters taken from Spark answer as Spark does, for every row; the others are given back."""

import operator
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import Filter

from pipeline.scan.filters import NUMBERS, TIMES, take_filters
from tests.pipeline.brute_force import Row, make_reader, read_reader, rows_of_store
from tests.pipeline.logs import write_files

COMBINATION_COUNT = 200
COMPARE: dict[type[Filter], Callable[[Any, Any], bool]] = {
    spark.EqualTo: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
}
TEXT: dict[type[Filter], Callable[[str, str], bool]] = {
    spark.EqualTo: operator.eq,
    spark.StringStartsWith: str.startswith,
    spark.StringEndsWith: str.endswith,
    spark.StringContains: operator.contains,
}


def is_true(filter_: Filter, row: Row) -> bool:
    """SQL's answer for a column that is never null."""
    if isinstance(filter_, spark.Not):
        return not is_true(filter_.child, row)
    value = row[filter_.attribute[0]]
    if isinstance(filter_, spark.IsNotNull):
        return value is not None
    if isinstance(filter_, spark.In):
        return value in filter_.value
    table: Any = TEXT if isinstance(value, str) else COMPARE
    return bool(table[type(filter_)](value, filter_.value))


def random_filter(chance: random.Random, rows: list[Row]) -> Filter:
    column = chance.choice(["topic", "topic", *sorted(NUMBERS), *sorted(TIMES)])

    def value() -> Any:
        seen = chance.choice(rows)[column]
        if chance.random() < 0.6:
            return seen
        if column == "topic":
            return chance.choice([seen[:3], seen[-2:], "", seen + "x", seen.upper()])
        if column in TIMES:
            return seen + timedelta(microseconds=chance.choice([-1, 1, 500, -1000, 10**6]))
        return seen + chance.choice([-1, 1, 100, -(1 << 40), 1 << 40])

    kinds = [*(TEXT if column == "topic" else COMPARE), spark.In, spark.IsNotNull]
    kind: Any = chance.choice(kinds)
    if kind is spark.IsNotNull:
        return spark.IsNotNull((column,))
    if kind is spark.In:
        made: Filter = spark.In((column,), tuple(value() for _ in range(chance.randrange(1, 4))))
    else:
        made = kind((column,), value())
    return spark.Not(made) if chance.random() < 0.2 else made


@pytest.mark.parametrize("store", ["broker_store", "engine_store"])
def test_random_combinations_equal_brute_force(store: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(store)
    rows = rows_of_store(root)
    chance = random.Random(77)
    sizes = set()
    for _ in range(COMBINATION_COUNT):
        filters = [random_filter(chance, rows) for _ in range(chance.randrange(1, 4))]
        wanted = [row for row in rows if all(is_true(one, row) for one in filters)]
        reader = make_reader(root, splitBytes="512k", columns="physicalOffset", pushdown="true")
        assert reader.take_filters(filters) == []
        found = [row["physicalOffset"] for row in read_reader(reader)]
        assert found == [row["physicalOffset"] for row in wanted], filters
        sizes.add(len(wanted))
    assert len(sizes) > 20  # neither always all nor always nothing


@pytest.mark.parametrize(
    "filter_",
    [
        spark.EqualTo(("tags",), "a"),
        spark.EqualTo(("topic", "x"), "a"),
        spark.EqualTo(("queueId",), None),
        spark.EqualTo(("queueId",), 1.5),
        spark.EqualTo(("queueId",), True),
        spark.EqualTo(("queueId",), 1 << 70),
        spark.EqualTo(("storeTimestamp",), datetime(2026, 1, 1)),
        spark.In(("queueId",), (1, None)),
        spark.GreaterThan(("topic",), "a"),
        spark.IsNotNull(("tags",)),
        spark.IsNull(("topic",)),
        spark.Not(spark.EqualTo(("tags",), "a")),
        spark.EqualNullSafe(("queueId",), 1),
    ],
)
def test_what_cannot_be_answered_exactly_is_left_to_spark(filter_: Filter) -> None:
    assert take_filters([filter_]) == ([], [filter_])


def test_unless_it_is_allowed_nothing_is_taken(broker_store: Path) -> None:
    filters = [spark.EqualTo(("queueId",), 1)]
    reader = make_reader(broker_store)
    assert reader.take_filters(filters) == filters
    assert len(list(read_reader(reader))) == len(rows_of_store(broker_store))


def test_topics_and_queues_by_option(engine_store: Path) -> None:
    rows = rows_of_store(engine_store)
    topics = sorted({row["topic"] for row in rows})[:2]
    wanted = [row for row in rows if row["topic"] in topics and row["queueId"] in (0, 2)]
    assert 0 < len(wanted) < len(rows)
    assert list(read_reader(make_reader(engine_store, topics=" , ".join(topics), queueIds="0, 2"))) == wanted


def test_offsets_and_times_leave_splits_out(tmp_path: Path) -> None:
    write_files(tmp_path, file_bytes=32768)
    rows = rows_of_store(tmp_path)
    everything = len(make_reader(tmp_path, splitBytes=4096, pushdown="true").partitions())
    assert everything > 12
    third = rows[len(rows) // 3]
    for filter_ in (
        spark.EqualTo(("physicalOffset",), third["physicalOffset"]),
        spark.In(("physicalOffset",), (third["physicalOffset"],)),
    ):
        reader = make_reader(tmp_path, splitBytes=4096, pushdown="true")
        reader.take_filters([filter_])
        assert len(reader.partitions()) == 1
        assert list(read_reader(reader)) == [third]
    reader = make_reader(tmp_path, splitBytes=4096, pushdown="true")
    reader.take_filters([spark.LessThan(("storeTimestamp",), datetime(2000, 1, 1, tzinfo=UTC))])
    assert reader.partitions() == []
    assert list(reader.read(spark.InputPartition(None))) == []


def test_a_row_about_damage_passes_the_filters_that_spark_would_let_it_pass(tmp_path: Path) -> None:
    from tests.pipeline.logs import log_file, overwrite

    write_files(tmp_path)
    overwrite(log_file(tmp_path), 4, b"\0")
    for filter_, is_there in (
        (spark.EqualTo(("topic",), "orders"), False),
        (spark.EqualTo(("topic",), ""), True),
        (spark.LessThan(("physicalOffset",), 10), True),
        (spark.GreaterThan(("physicalOffset",), 10), False),
        (spark.In(("queueId",), (-1, 7)), True),
    ):
        reader = make_reader(tmp_path, corrupt="report", pushdown="true")
        assert reader.take_filters([filter_]) == []
        rows = list(read_reader(reader))
        assert any(row["damage"] for row in rows) is is_there
        assert all(is_true(filter_, row) for row in rows)
