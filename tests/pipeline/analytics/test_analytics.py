"""Every table of the analytics against brute force over the fixture's frames."""

import csv
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.analytics import analytics
from pipeline.analytics.digest import bucket_seconds_for
from pipeline.analytics.out import BEGUN_NAME, LOCK_NAME, MANIFEST_NAME, ObjectOut
from pipeline.job import JobReport
from pipeline.object_root import ObjectRoot
from store.errors import StoreLockedError
from store.format.record import Record, decode_record
from tests.support.command import run_command
from tests.support.fixture_stores import walk_frames
from tests.support.object_store import CREDENTIALS, running_object_store

HOUR = 3600
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def records(broker_store: Path) -> list[Record]:
    return [decode_record(frame, commit_log_offset=offset) for offset, frame in walk_frames(broker_store)]


@pytest.fixture(scope="module")
def made(
    spark: SparkSession, broker_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, JobReport, list[tuple[str, int, int]]]:
    out = tmp_path_factory.mktemp("analytics") / "out"
    steps: list[tuple[str, int, int]] = []
    report = analytics.run(spark, broker_store, out, progress=lambda *step: steps.append(step))
    return out, report, steps


def _table(out: Path, name: str) -> Rows:
    rows: Rows = pq.read_table(out / f"{name}.parquet").to_pylist()
    return rows


def _by(rows: Rows, *names: str) -> dict[Any, dict[str, Any]]:
    found = {tuple(row[name] for name in names): row for row in rows}
    assert len(found) == len(rows)
    return found


def _bucket(record: Record, seconds: int) -> datetime:
    return datetime.fromtimestamp(record.store_time_millis // 1000 // seconds * seconds, UTC)


def _percentile(values: Sequence[int], percent: int) -> int:
    return sorted(values)[math.ceil(percent / 100 * len(values)) - 1]


def _measures(group: Sequence[Record]) -> dict[str, Any]:
    sizes = [record.store_size_bytes for record in group]
    delays = [record.store_time_millis - record.born_time_millis for record in group]
    return {
        "message_count": len(group),
        "store_size_bytes": sum(sizes),
        "size_p50_bytes": _percentile(sizes, 50),
        "size_p95_bytes": _percentile(sizes, 95),
        "size_max_bytes": max(sizes),
        "delay_p50_millis": _percentile(delays, 50),
        "delay_p95_millis": _percentile(delays, 95),
        "delay_p99_millis": _percentile(delays, 99),
        "delay_max_millis": max(delays),
        "born_after_store_count": sum(delay < 0 for delay in delays),
        "first_commit_log_offset": min(record.commit_log_offset for record in group),
        "end_commit_log_offset": max(record.commit_log_offset + record.store_size_bytes for record in group),
    }


def _group(records: Sequence[Record], key: Any) -> dict[Any, list[Record]]:
    groups = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    return groups


def _has(row: dict[str, Any], expected: dict[str, Any]) -> None:
    assert {name: row[name] for name in expected} == expected


@pytest.mark.spark
def test_traffic_of_topics_and_of_hours(made: Any, records: list[Record]) -> None:
    out, report, _ = made
    topics = _by(_table(out, "topics"), "topic")
    groups = _group(records, lambda record: (record.topic,))
    assert topics.keys() == groups.keys()
    for name, group in groups.items():
        times = [record.store_time_millis for record in group]
        _has(topics[name], _measures(group))
        span = (max(times) - min(times)) / 1000
        assert topics[name]["messages_per_second"] == (pytest.approx(len(group) / span) if span else None)
    hours = _by(_table(out, "hours"), "topic", "queue_id", "hour")
    groups = _group(records, lambda record: (record.topic, record.queue_id, _bucket(record, HOUR)))
    assert hours.keys() == groups.keys()
    for name, group in groups.items():
        _has(hours[name], _measures(group))
        assert hours[name]["messages_per_second"] == pytest.approx(len(group) / HOUR)
    assert report.counts["message_count"] == len(records)
    assert [row["message_count"] for row in _table(out, "topics")] == sorted(
        (row["message_count"] for row in topics.values()), reverse=True
    )


@pytest.mark.spark
def test_the_timeline_is_in_buckets_that_the_span_fills(made: Any, records: list[Record]) -> None:
    times = [record.store_time_millis for record in records]
    seconds = bucket_seconds_for(max(times) - min(times))
    rows = _by(_table(made[0], "timeline"), "topic", "begin")
    groups = _group(records, lambda record: (record.topic, _bucket(record, seconds)))
    groups |= _group(records, lambda record: (None, _bucket(record, seconds)))
    assert rows.keys() == groups.keys()
    for name, group in groups.items():
        measures = _measures(group)
        _has(rows[name], {key: measures[key] for key in ("message_count", "store_size_bytes", "delay_p99_millis")})


@pytest.mark.spark
def test_queues_and_their_gaps(made: Any, records: list[Record]) -> None:
    queued = [record for record in records if record.sys_flag & 0xC not in (0x4, 0xC)]
    groups = _group(queued, lambda record: (record.topic, record.queue_id))
    queues = _by(_table(made[0], "queues"), "topic", "queue_id")
    assert queues.keys() == groups.keys()
    missing = set()
    for (topic, queue_id), group in groups.items():
        offsets = [record.queue_offset for record in group]
        lost = set(range(min(offsets), max(offsets))) - set(offsets)
        missing |= {(topic, queue_id, offset) for offset in lost}
        expected = {
            "message_count": len(offsets),
            "first_queue_offset": min(offsets),
            "last_queue_offset": max(offsets),
            "missing_count": len(lost),
            "repeated_count": len(offsets) - len(set(offsets)),
        }
        _has(queues[topic, queue_id], expected)
    assert {
        (row["topic"], row["queue_id"], row["first_missing_queue_offset"] + i)
        for row in _table(made[0], "gaps")
        for i in range(row["missing_count"])
    } == missing


@pytest.mark.spark
def test_keys_their_skew_and_the_hot_ones(made: Any, records: list[Record]) -> None:
    uses: dict[str, Counter[str]] = defaultdict(Counter)
    hourly: dict[Any, Counter[str]] = defaultdict(Counter)
    for record in records:
        keys = [key for key in (record.properties.get("KEYS") or "").split(" ") if key]
        if keys:
            uses[record.topic].update(keys)
            hourly[record.topic, record.queue_id, _bucket(record, HOUR)].update(keys)
    rows = _by(_table(made[0], "keys"), "topic")
    assert rows.keys() == {(topic,) for topic in uses}
    hot = _table(made[0], "hot_keys")
    for topic, counts in uses.items():
        expected = {
            "key_use_count": counts.total(),
            "distinct_key_count": len(counts),
            "top_key_use_count": max(counts.values()),
            "top_key_share": max(counts.values()) / counts.total(),
            "used_once_count": sum(count == 1 for count in counts.values()),
            "uses_per_key_p99": _percentile(list(counts.values()), 99),
        }
        _has(rows[topic,], expected)
        # Equal counts are in the order of their UTF-8 bytes.
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0].encode()))[:20]
        found = [row for row in hot if row["topic"] == topic]
        assert [(row["key"], row["use_count"]) for row in found] == ranked
        assert [row["rank"] for row in found] == list(range(1, len(ranked) + 1))
    for name, row in _by(_table(made[0], "hours"), "topic", "queue_id", "hour").items():
        counts = hourly.get(name)
        assert row["distinct_key_count"] == (len(counts) if counts else None)
        assert row["top_key_use_count"] == (max(counts.values()) if counts else None)


@pytest.mark.spark
def test_unique_keys_that_occur_again(made: Any, records: list[Record]) -> None:
    groups = _group(
        [record for record in records if record.properties.get("UNIQ_KEY")],
        lambda record: (record.topic, record.properties["UNIQ_KEY"]),
    )
    rows = _by(_table(made[0], "duplicates"), "topic", "unique_key")
    assert rows.keys() == {name for name, group in groups.items() if len(group) > 1}
    for name, row in rows.items():
        offsets = [record.commit_log_offset for record in groups[name]]
        assert row["copy_count"] == len(offsets)
        assert (row["first_commit_log_offset"], row["last_commit_log_offset"]) == (min(offsets), max(offsets))
    assert rows, "the fixture has retried messages"


@pytest.mark.spark
def test_retries_of_the_real_broker_and_its_positions(made: Any, records: list[Record], broker_store: Path) -> None:
    """Its consumers pull and send back; it keeps positions in a file."""
    rows = _by(_table(made[0], "retries"), "consumer_group", "source_topic", "kind", "cause")
    groups = _group(
        [record for record in records if record.topic.startswith("%")],
        lambda record: (
            record.topic.split("%")[2], record.properties["RETRY_TOPIC"],
            "dead letter" if record.topic.startswith("%DLQ%") else "retry", "sent back",
        ),
    )  # fmt: skip
    assert rows.keys() == groups.keys()
    for name, group in groups.items():
        assert rows[name]["copy_count"] == len(group)
        assert rows[name]["attempts_max"] == max(record.reconsume_times for record in group)
    last = _bucket(max(records, key=lambda record: record.store_time_millis), 1)
    ends = {
        place: max(record.queue_offset for record in group) + 1
        for place, group in _group(records, lambda record: (record.topic, record.queue_id)).items()
    }
    text = (broker_store / "config" / "consumerOffset.json").read_text()
    table = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text))["offsetTable"]
    positions = {
        (name.split("@")[1], name.split("@")[0], int(queue_id)): position
        for name, queues in table.items()
        for queue_id, position in queues.items()
        if (name.split("@")[0], int(queue_id)) in ends
    }
    found = _by(_table(made[0], "lag"), "consumer_group", "topic", "queue_id")
    assert {name: (row["consumer_offset"], row["lag_count"]) for name, row in found.items()} == {
        name: (position, max(ends[name[1:]] - position, 0)) for name, position in positions.items()
    }
    assert {row["begin"] <= last for row in found.values()} == {True}


@pytest.mark.spark
def test_csv_says_the_same_as_parquet(made: Any) -> None:
    out, report, steps = made
    names = {path.stem for path in out.glob("*.parquet")}
    assert names == set(analytics.TABLE_NAMES)
    assert {path.name for path in out.iterdir()} == {f"{n}.{k}" for n in names for k in ("parquet", "csv")} | {
        "report.html", "report.zh.html", LOCK_NAME, MANIFEST_NAME
    }  # fmt: skip
    for name in names:
        rows = _table(out, name)
        with open(out / f"{name}.csv", encoding="utf-8", newline="") as file:
            read = list(csv.DictReader(file))
        assert len(read) == len(rows) == report.counts[f"{name}_row_count"]
        for row, texts in zip(rows, read, strict=True):
            for column, value in row.items():
                if isinstance(value, int | str):
                    assert texts[column].removeprefix("'") == str(value)
    assert steps[0] == ("analytics", 0, len(analytics.STEPS))
    assert steps[-1] == ("analytics", len(analytics.STEPS), len(analytics.STEPS))


@pytest.mark.spark
def test_the_page_names_every_topic(made: Any, records: list[Record]) -> None:
    text = (made[0] / "report.html").read_text(encoding="utf-8")
    assert all(topic in text for topic in {record.topic for record in records})


def test_a_dry_run_needs_no_spark_and_writes_nothing(broker_store: Path, tmp_path: Path) -> None:
    arguments = ["pipeline", "analytics", "--store", str(broker_store), "--out", str(tmp_path / "out"), "--dry-run"]
    ended = run_command(*arguments)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["is_dry_run"] is True
    assert said["counts"]["log_bytes"] == sum(path.stat().st_size for path in (broker_store / "commitlog").iterdir())
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    arguments = ["pipeline", "analytics", "--store", str(tmp_path), "--out", str(tmp_path / "out")]
    ended = run_command(*arguments)
    assert ended.returncode == 2
    assert "has no commitlog/" in ended.stderr


@pytest.mark.spark
def test_tables_of_and_in_an_object_store_are_those_of_a_directory(
    spark: SparkSession, broker_store: Path, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but what depends on the disk, which an object store does not have."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    with running_object_store() as server:
        server.fs.create_dir("stores")
        out = server.uri("stores/tables")
        ObjectRoot(out).put_bytes(".analytics/killed/topics/part-00000.parquet", b"left by a killed run")
        there = analytics.run(spark, server.upload(broker_store, "stores/broker"), out)
        server.download("stores/tables", tmp_path / "there")
    out_here, here, _ = made
    assert there.counts == here.counts
    assert there.outputs["page"] == "s3://stores/tables/report.html"
    for name in analytics.TABLE_NAMES:
        disk_columns = {"disk_free_bytes", "disk_size_bytes", "full_after_seconds", "fits_seconds"}
        rows = [
            [{n: v for n, v in row.items() if n not in disk_columns} for row in _table(out, name)]
            for out in (tmp_path / "there", out_here)
        ]
        assert rows[0] == rows[1], name
        assert pq.read_schema(tmp_path / f"there/{name}.parquet") == pq.read_schema(out_here / f"{name}.parquet")
    assert all(row["full_after_seconds"] is None for row in _table(tmp_path / "there", "growth"))
    assert "s3://stores/broker" in (tmp_path / "there/report.html").read_text(encoding="utf-8")
    files = {
        path.relative_to(tmp_path / "there").as_posix(): path.stat().st_size for path in _files(tmp_path / "there")
    }
    manifest = json.loads((tmp_path / "there" / MANIFEST_NAME).read_bytes())
    assert {file["path"]: file["size_bytes"] for file in manifest["files"]} == {
        name: size for name, size in files.items() if name not in (BEGUN_NAME, MANIFEST_NAME)
    }
    assert {path.name for path in _files(out_here)} == {file["path"] for file in manifest["files"]} | {
        LOCK_NAME, MANIFEST_NAME
    }  # fmt: skip


def test_a_run_into_an_object_store_is_not_complete_before_its_end_and_ends_when_another_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with running_object_store() as server:
        server.fs.create_dir("stores")
        root = ObjectRoot(server.uri("stores/twice"))
        with ObjectOut(root, 1) as first:
            (first.folder / "report.html").write_text("first")
            first.complete()
        whole = root.top_names()
        with ObjectOut(root, 2) as second:
            (second.folder / "report.html").write_text("second")
            begun = root.top_names()
            with (
                ObjectOut(root, 3),
                pytest.raises(StoreLockedError, match="another analytics run to s3://stores/twice"),
            ):
                second.complete()
        left = root.top_names()

    assert whole == {"report.html", BEGUN_NAME, MANIFEST_NAME}
    assert begun == left == {"report.html", BEGUN_NAME}


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]
