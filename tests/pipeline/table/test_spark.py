"""Spark's Iceberg reads tables as pyiceberg and DuckDB do, and maintains a table while the job goes on writing it."""

import io
import json
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pipeline.table import archived, table
from store.errors import InvalidArgumentError
from tests.pipeline.rocketmq.gateways import append
from tests.pipeline.table.lakes import duckdb_with_iceberg, lake, rows
from tests.pipeline.table.rest_catalog import rest_catalog
from tests.pipeline.table.spark_engine import SparkEngine, spark_engine
from tests.rocketmq.real_broker import why_unavailable
from tests.support.archives import BROKER, Archived, message, write_log
from tests.support.archives import archived as archive_of
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))]

TYPED, PAID, ARCHIVED, KEPT = "shop.orders", "shop.paid", "shop.archived", "shop.kept"
CATALOGS = ("lake", "rest")
BEFORE = "id int, price float"
AFTER = (
    "id long, price double, tags array<string>, numbers map<string,long>, "
    "address struct<city:string,lines:array<struct<text:string>>>"
)
WHOLE = {
    "id": 1 << 40,
    "price": 0.1,
    "tags": ["a", "支付"],
    "numbers": {"one": 1},
    "address": {"city": "Zürich", "lines": [{"text": "x"}, {}]},
}
# What JSON has no types for.
AVRO = {
    "type": "record",
    "name": "Paid",
    "fields": [
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "proof", "type": "bytes"},
    ],
}
PAYMENTS = [
    {"amount": Decimal("-1234567.25"), "at": datetime(2026, 11, 30, 12, 0, 0, 123456, UTC), "day": date(2026, 11, 30),
     "proof": b"\x00\xff"},
    {"amount": Decimal("0.01"), "at": None, "day": date(1969, 12, 31), "proof": b""},
]  # fmt: skip
DAY_MILLIS = 86_400_000


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark-tables")


@pytest.fixture(scope="module")
def stack(directory: Path) -> Iterator[HostedStack]:
    with hosted_stack(directory / "store") as stack:
        yield stack


@pytest.fixture(scope="module")
def engine(directory: Path) -> Iterator[SparkEngine]:
    """Spark with the SQL catalog of `lake`, and with the same behind REST."""
    catalog = lake(directory / "lake")
    with rest_catalog(catalog) as uri:
        catalogs = {
            "lake": {"type": "jdbc", "uri": f"jdbc:sqlite:{directory}/lake/catalog.db",
                     "warehouse": f"file://{directory}/lake/warehouse"},
            "rest": {"type": "rest", "uri": uri, "rest-metrics-reporting-enabled": "false"},
        }  # fmt: skip
        # Each statement is to see what the job has committed: Spark would ask again after half a minute.
        fresh = {name: {**settings, "cache-enabled": "false"} for name, settings in catalogs.items()}
        with spark_engine(directory / "spark", fresh) as engine:
            yield engine


@pytest.fixture(scope="module")
def catalog(directory: Path) -> Any:
    return lake(directory / "lake")


def fill(stack: HostedStack, topic: str, bodies: list[bytes], key: str) -> None:
    append(stack.addresses["gateway"], topic, bodies, keys=[key])
    stack.wait_until_built()


def kept(stack: HostedStack, catalog: Any, name: str, topic: str, schema: str, body_format: str = "json") -> None:
    options = {"bodyFormat": body_format, "bodySchema": schema}
    table.run(stack.addresses["gateway"], topic, catalog, name, options, until_caught_up=True)


@pytest.fixture(scope="module")
def typed(stack: HostedStack, catalog: Any) -> str:
    """A table of a topic whose schema has grown, with nulls and undecoded bodies, and from which a key was deleted."""
    fill(stack, "Orders", [b'{"id":%d,"price":%d.5}' % (i, i) for i in range(20)], "first")
    kept(stack, catalog, TYPED, "Orders", BEFORE)
    fill(stack, "Orders", [json.dumps(WHOLE).encode(), b"{}", b"no JSON", b'{"tags":[null,"b"]}'], "second")
    fill(stack, "Orders", [b'{"id":99}'], "gone")
    kept(stack, catalog, TYPED, "Orders", AFTER)
    assert table.delete_key(catalog, TYPED, "gone").counts["deleted_count"] == 1
    return TYPED


@pytest.fixture(scope="module")
def paid(stack: HostedStack, catalog: Any) -> str:
    """A table of Avro bodies."""
    fastavro = pytest.importorskip("fastavro", reason="Avro bodies need the optional library fastavro")
    bodies = []
    for payment in PAYMENTS:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, AVRO, payment)
        bodies.append(out.getvalue())
    fill(stack, "Paid", bodies, "paid")
    kept(stack, catalog, PAID, "Paid", json.dumps(AVRO), "avro")
    return PAID


@pytest.fixture(scope="module")
def made(directory: Path) -> Archived:
    """An archive of several log files and three days."""
    messages = [message(n, keys=f"k{n}", tags="T" * (n % 2), body=b"%d" % n) for n in range(900)]
    store = write_log(directory / "log", messages, millis_between=3 * DAY_MILLIS // 900)
    return archive_of(store, directory / "archive")


@pytest.fixture(scope="module")
def of_archive(made: Archived, catalog: Any) -> str:
    archived.run(made.archive, "orders", catalog, ARCHIVED, broker_name=BROKER)
    return ARCHIVED


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: row["physicalOffset"])


def by_duckdb(catalog: Any, name: str) -> list[dict[str, Any]]:
    database = duckdb_with_iceberg()
    database.execute("SET TimeZone = 'UTC'")
    place = catalog.load_table(name).metadata_location
    return list(database.sql(f"SELECT * FROM iceberg_scan('{place}')").to_arrow_table().to_pylist())


@pytest.mark.parametrize("where", CATALOGS)
def test_spark_reads_the_table_of_a_topic_as_pyiceberg_and_duckdb_do(
    engine: SparkEngine, catalog: Any, typed: str, where: str
) -> None:
    found = in_order(engine.arrow(f"SELECT * FROM {where}.{typed}").to_pylist())
    assert found == in_order(rows(catalog, typed)) == in_order(by_duckdb(catalog, typed))
    values = [row["bodyValue"] for row in found]
    nothing = dict.fromkeys(WHOLE)
    assert values[3] == nothing | {"id": 3, "price": 3.5}
    lines = [{"text": "x"}, {"text": None}]
    assert values[20:] == [
        WHOLE | {"numbers": [("one", 1)], "address": {"city": "Zürich", "lines": lines}},
        nothing,
        None,
        nothing | {"tags": [None, "b"]},
    ]
    assert found[22]["body"] == b"no JSON"


@pytest.mark.parametrize("where", CATALOGS)
def test_decimals_times_days_and_bytes_are_the_same_to_all_three(
    engine: SparkEngine, catalog: Any, paid: str, where: str
) -> None:
    found = in_order(engine.arrow(f"SELECT * FROM {where}.{paid}").to_pylist())
    assert found == in_order(rows(catalog, paid)) == in_order(by_duckdb(catalog, paid))
    assert [row["bodyValue"] for row in found] == PAYMENTS


@pytest.mark.parametrize("where", CATALOGS)
def test_spark_reads_the_table_of_an_archive_as_pyiceberg_and_duckdb_do(
    engine: SparkEngine, catalog: Any, made: Archived, of_archive: str, where: str
) -> None:
    found = in_order(engine.arrow(f"SELECT * FROM {where}.{of_archive}").to_pylist())
    assert found == in_order(rows(catalog, of_archive)) == in_order(by_duckdb(catalog, of_archive))
    assert [row["body"] for row in found] == [bytes(record.body) for record in made.records]
    assert [row["keys"] for row in found] == [list(record.keys) for record in made.records]


@pytest.mark.parametrize("where", CATALOGS)
def test_spark_opens_the_files_of_a_day_alone(
    engine: SparkEngine, catalog: Any, made: Archived, of_archive: str, where: str
) -> None:
    days = [row["partition"]["day"] for row in engine.sql(f"SELECT partition FROM {where}.{of_archive}.partitions")]
    assert len(days) >= 3
    filtered = f"{where}.{of_archive} WHERE storeTimestamp >= TIMESTAMP '{max(days)} 00:00:00'"
    begin = datetime.fromisoformat(f"{max(days)}T00:00:00+00:00").timestamp() * 1000
    expected = [record.commit_log_offset for record in made.records if record.store_time_millis >= begin]
    found = engine.sql(f"SELECT physicalOffset, input_file_name() AS file FROM {filtered}")
    assert sorted(row["physicalOffset"] for row in found) == expected
    assert len({row["file"] for row in found}) < len(list(catalog.load_table(of_archive).scan().plan_files()))


@pytest.mark.parametrize("where", CATALOGS)
def test_a_table_that_spark_maintains_while_the_job_writes_it_has_each_message_once(
    engine: SparkEngine, stack: HostedStack, catalog: Any, directory: Path, where: str
) -> None:
    name, topic, count = f"{KEPT}_{where}", f"Kept-{where}", 160
    options = {"bodyFormat": "json", "bodySchema": "id long"}
    stop = threading.Event()

    def fill_some(begin: int) -> None:
        fill(stack, topic, [b'{"id":%d}' % i for i in range(begin, begin + 40)], f"k{begin}")

    def has(end: int) -> None:
        wait_until(lambda: catalog.load_table(name).scan().count() >= end, f"{name} has {end} rows")

    def maintain(procedure: str, **given: str) -> dict[str, Any]:
        words = ", ".join(f"{key} => {value}" for key, value in {"table": f"'{name}'", **given}.items())
        return next(iter(engine.sql(f"CALL {where}.system.{procedure}({words})")), {})

    fill_some(0)
    kept(stack, catalog, name, topic, "id long")
    with ThreadPoolExecutor(1) as threads:
        job = threads.submit(
            table.run, stack.addresses["gateway"], topic, catalog, name, options, commit_seconds=0.05, stop_event=stop
        )
        try:
            compacted_count = 0
            for begin in range(40, count, 40):
                fill_some(begin)
                has(begin + 40)
                done = maintain("rewrite_data_files", options="map('min-input-files', '2')")
                compacted_count += done["rewritten_data_files_count"]
                maintain("expire_snapshots", older_than="current_timestamp()", retain_last="1")
        finally:
            stop.set()
        job.result()
    assert compacted_count >= 2 * (count // 40 - 1)
    place = Path(catalog.load_table(name).location().removeprefix("file://"))
    orphan = shutil.copy(next(place.rglob("*.parquet")), place / "data/killed.parquet")
    os.utime(orphan, (0, 0))
    orphans = engine.sql(f"CALL {where}.system.remove_orphan_files(table => '{name}')")
    assert [row["orphan_file_location"].rpartition("/")[2] for row in orphans] == ["killed.parquet"]
    assert not Path(orphan).exists()

    fill_some(count)
    kept(stack, catalog, name, topic, "id long")

    ids = sorted(row["bodyValue"]["id"] for row in rows(catalog, name))
    assert ids == list(range(count + 40))
    assert engine.arrow(f"SELECT bodyValue.id FROM {where}.{name} ORDER BY 1")["id"].to_pylist() == ids
    assert len(catalog.load_table(name).snapshots()) <= 3


@pytest.mark.parametrize("where", CATALOGS)
def test_keys_are_deleted_beside_rows_that_spark_has_marked_as_deleted(
    engine: SparkEngine, stack: HostedStack, catalog: Any, where: str
) -> None:
    """With merge-on-read, Spark writes positions of deleted rows and leaves the data files."""
    name, topic = f"shop.deleted_{where}", f"Deleted-{where}"
    for key in range(10):
        append(stack.addresses["gateway"], topic, [b'{"id":%d}' % key], keys=[f"k{key}"])
    stack.wait_until_built()
    kept(stack, catalog, name, topic, "id long")
    engine.sql(f"ALTER TABLE {where}.{name} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    engine.sql(f"DELETE FROM {where}.{name} WHERE bodyValue.id IN (2, 3)")
    assert table.delete_key(catalog, name, "k5").counts["deleted_count"] == 1
    assert table.delete_key(catalog, name, "k2").counts["deleted_count"] == 0
    engine.sql(f"DELETE FROM {where}.{name} WHERE bodyValue.id = 7")
    fill(stack, topic, [b'{"id":10}'], "k10")
    kept(stack, catalog, name, topic, "id long")

    left = [0, 1, 4, 6, 8, 9, 10]
    assert sorted(row["bodyValue"]["id"] for row in rows(catalog, name)) == left
    assert sorted(row["bodyValue"]["id"] for row in by_duckdb(catalog, name)) == left
    assert engine.arrow(f"SELECT bodyValue.id FROM {where}.{name} ORDER BY 1")["id"].to_pylist() == left


def test_no_engine_removes_the_files_of_an_archive_by_its_table(
    engine: SparkEngine, catalog: Any, made: Archived, of_archive: str
) -> None:
    """Once, a compaction and an expiry of snapshots removed the archive's own files, and the next run added all rows again."""
    name = "shop.compacted"
    archived.run(made.archive, "orders", catalog, name, broker_name=BROKER)
    files = sorted(made.archive.rglob("*.parquet"))
    engine.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    with pytest.raises(AssertionError, match="GC is disabled"):
        engine.sql(f"CALL lake.system.expire_snapshots(table => '{name}', older_than => current_timestamp())")
    assert sorted(made.archive.rglob("*.parquet")) == files
    with pytest.raises(InvalidArgumentError, match=f"The table {name} has files that are not of the archive"):
        archived.run(made.archive, "orders", catalog, name, broker_name=BROKER)
    assert catalog.load_table(name).scan().count() == len(made.records)
    with pytest.raises(AssertionError, match="GC is disabled"):
        engine.sql(f"DROP TABLE lake.{name} PURGE")
    engine.sql(f"DROP TABLE lake.{name}")
    assert sorted(made.archive.rglob("*.parquet")) == files
    archived.run(made.archive, "orders", catalog, name, broker_name=BROKER)
    assert catalog.load_table(name).scan().count() == len(made.records)
