"""The tables about consumer groups and growth, against brute force over small logs."""

import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.analytics import analytics
from pipeline.analytics.digest import bucket_seconds_for
from pipeline.analytics.groups import Span, positions_of_broker, write_group_tables
from pipeline.analytics.growth import Disk, growth, window_of
from pipeline.job import JobReport
from store.errors import StoreCorruptedError
from store.files.file_system import RealFileSystem
from tests.pipeline.analytics.group_logs import BEGIN_MILLIS, GroupLog, random_log

FREE, SIZE = 123_456_789, 987_654_321
Rows = list[dict[str, Any]]


def _log() -> GroupLog:
    """Groups that consume at random; then retries and dead letters of each kind."""
    log, popped = random_log(5), {"1ST_POP_TIME": "5"}

    def add(topic: str, attempts: int, properties: dict[str, str]) -> None:
        log.time_millis += 10
        log.append(topic, properties=properties, reconsume_times=attempts)

    for number in range(3):
        again = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": f"ID{number % 2}"}
        add("%RETRY%g_orders", number + 1, again | popped)
    add("%RETRY%g_orders", 2, {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "ID7"})  # group g_orders pulls
    add("%RETRY%g+payments", 1, {"RETRY_TOPIC": "payments"} | popped)
    add("%DLQ%g", 16, {"RETRY_TOPIC": "orders", "DLQ_ORIGIN_TOPIC": "orders"} | popped)
    add("%DLQ%g_orders", 3, {"RETRY_TOPIC": "x", "DLQ_ORIGIN_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "ID9"})
    add("%RETRY%lost", 1, {})  # names no source
    return log


RETRIES = {
    ("g", "orders", "retry", "not acknowledged"): (3, 2, 3),
    ("g_orders", "orders", "retry", "sent back"): (1, 1, 2),
    ("g", "payments", "retry", "not acknowledged"): (1, 1, 1),
    ("g", "orders", "dead letter", "not acknowledged"): (1, 1, 16),
    ("g_orders", "orders", "dead letter", "sent back"): (1, 1, 3),
    ("lost", "", "retry", "sent back"): (1, 1, 1),
}  # copies, messages, most attempts


@pytest.fixture(scope="module")
def log() -> GroupLog:
    return _log()


@pytest.fixture(scope="module")
def made(spark: SparkSession, log: GroupLog, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, JobReport]:
    root = tmp_path_factory.mktemp("groups")
    log.write(root / "store")
    return root / "out", analytics.run(spark, root / "store", root / "out", disk=lambda _: (SIZE, FREE))


def _table(out: Path, name: str) -> Rows:
    rows: Rows = pq.read_table(out / f"{name}.parquet").to_pylist()
    return rows


def _percentile(values: Sequence[int], percent: int) -> int:
    return sorted(values)[math.ceil(percent / 100 * len(values)) - 1]


@pytest.mark.spark
def test_lag_of_each_queue_at_the_end_of_each_bucket(made: Any, log: GroupLog) -> None:
    times = [row[5] for row in log.records]
    step = bucket_seconds_for(max(times) - min(times))
    queued = [row for row in log.records if row[3] & 4 == 0]
    expected = {}
    for begin in range(min(times) // 1000 // step * step, max(times) // 1000 + 1, step):
        until = (begin + step) * 1000
        newest = {place: position for time, place, position in log.positions if time < until}
        for place, position in newest.items():
            _, topic, queue_id = place
            offsets = {row[2]: row[5] for row in queued if row[:2] == (topic, queue_id) and row[5] < until}
            if position is None or not offsets:
                continue
            behind = max(max(offsets) + 1 - position, 0)
            waited = max(min(until - 1, max(times)) - offsets[position], 0) if behind else 0
            at = datetime.fromtimestamp(begin, UTC)
            expected[*place, at] = (position, max(offsets) + 1, behind, waited)
    names = ("consumer_offset", "end_queue_offset", "lag_count", "lag_millis")
    rows = _table(made[0], "lag")
    found = {
        (row["consumer_group"], row["topic"], row["queue_id"], row["begin"]): tuple(row[name] for name in names)
        for row in rows
    }
    assert len(found) == len(rows)
    assert found == expected
    assert any(lag[2] for lag in expected.values())


@pytest.mark.spark
def test_delays_until_messages_are_consumed(made: Any, log: GroupLog) -> None:
    stored = {row[:3]: (row[4], row[5]) for row in log.records if row[3] & 4 == 0}
    waits: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for time, (group, topic, queue_id), offset in log.consumed:
        born, store_time = stored[topic, queue_id, offset]
        waits[group, topic].append((time - born, time - store_time))
    rows = {(row["consumer_group"], row["topic"]): row for row in _table(made[0], "consume_delays")}
    assert rows.keys() == waits.keys()
    for place, found in waits.items():
        row = rows[place]
        assert row["consumed_count"] == len(found)
        for kind, values in zip(("born", "stored"), zip(*found, strict=True), strict=True):
            assert row[f"{kind}_to_consumed_max_millis"] == max(values)
            for percent in (50, 95, 99):
                assert row[f"{kind}_to_consumed_p{percent}_millis"] == _percentile(values, percent)


@pytest.mark.spark
def test_retries_and_dead_letters_by_group_and_cause(made: Any) -> None:
    rows = _table(made[0], "retries")
    found = {
        (row["consumer_group"], row["source_topic"], row["kind"], row["cause"]): (
            row["copy_count"], row["message_count"], row["attempts_max"],
        )
        for row in rows
    }  # fmt: skip
    assert found == RETRIES
    assert len(rows) == len(RETRIES)


@pytest.mark.spark
def test_growth_goes_by_records_units_and_entries(made: Any, log: GroupLog) -> None:
    times = [row[5] for row in log.records]
    entries = sum(len(row[6].get("KEYS", "").split()) + ("UNIQ_KEY" in row[6]) for row in log.records)
    (row,) = _table(made[0], "growth")  # the log is shorter than an hour
    seconds = (max(times) - min(times)) / 1000
    assert row["window"] == "log"
    assert row["window_seconds"] == seconds
    assert row["message_count"] == len(log.records)
    assert row["log_bytes"] == log.size_bytes
    assert row["derived_bytes"] == 20 * len(log.records) + 20 * entries
    rate = (row["log_bytes"] + row["derived_bytes"]) / seconds
    assert row["full_after_seconds"] == pytest.approx(FREE / rate)
    assert row["fits_seconds"] == pytest.approx((FREE + rate * seconds) / rate)
    assert (row["disk_free_bytes"], row["disk_size_bytes"]) == (FREE, SIZE)


@pytest.mark.spark
def test_both_pages_name_every_group(made: Any) -> None:
    for name, words in (("report.html", "Consumers"), ("report.zh.html", "消费进度")):
        text = (made[0] / name).read_text(encoding="utf-8")
        assert words in text
        assert all(f">{group}</span>" in text for group in ("g", "g_orders", "lost"))


@pytest.mark.spark
def test_a_store_of_a_broker_has_the_lag_of_its_file(spark: SparkSession, tmp_path: Path) -> None:
    log = GroupLog()
    for number in range(5):
        log.time_millis = BEGIN_MILLIS + number * 10
        log.append("orders", 1)
    root = log.write(tmp_path / "store")
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@g":{"1":2},"gone@g":{"0":9}}}')

    def read_log(columns: Sequence[str], topics: Sequence[str] = ()) -> DataFrame:
        chosen = {"topics": ",".join(topics)} if topics else {}
        return spark.read.format("commitlog").options(columns=",".join(columns), **chosen).load(str(root))

    rows: dict[str, Rows] = {}

    def write(name: str, table: DataFrame) -> None:
        rows[name] = [row.asDict() for row in table.collect()]

    span = Span(BEGIN_MILLIS, BEGIN_MILLIS + 40, 1)
    notes = write_group_tables(spark, read_log, write, ["orders"], span, positions_of_broker(RealFileSystem(), root))
    (row,) = rows["lag"]
    assert (row["consumer_group"], row["topic"], row["queue_id"]) == ("g", "orders", 1)
    assert (row["consumer_offset"], row["end_queue_offset"], row["lag_count"], row["lag_millis"]) == (2, 5, 3, 20)
    assert rows["consume_delays"] == rows["retries"] == []
    assert any("config/consumerOffset.json" in note for note in notes)


def test_a_broken_file_of_positions_is_named(tmp_path: Path) -> None:
    assert positions_of_broker(RealFileSystem(), tmp_path) == []
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text("{")
    with pytest.raises(StoreCorruptedError, match=r"consumerOffset\.json"):
        positions_of_broker(RealFileSystem(), tmp_path)


def test_windows_end_with_the_log_and_the_forecast_goes_by_a_day() -> None:
    day = 86_400_000
    found: dict[str, int] = {}
    for name, count in (("hour", 0), ("day", 10), ("log", 1000)):
        found |= {f"{name}_message_count": count, f"{name}_log_bytes": count * 100, f"{name}_entry_count": 0}
    rows = growth(found, Disk(10**9, 10**6), 0, 3 * day).to_pylist()
    assert [row["window"] for row in rows] == ["hour", "day", "log"]
    assert rows[0]["full_after_seconds"] is None
    chosen = window_of(rows)
    assert chosen is not None
    assert chosen["full_after_seconds"] == pytest.approx(10**6 / (1200 / 86_400))
    assert window_of(growth({}, Disk(1, 1), 0, 0).to_pylist()) is None
