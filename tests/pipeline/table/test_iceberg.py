"""A topic's table: rows and positions are in one commit, whatever a catalog answers and whoever else commits."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import RESTError

from pipeline.rocketmq.positions import Positions, QueueKey
from pipeline.table import iceberg
from pipeline.table.iceberg import (
    COMMIT_ATTEMPT_MAX,
    POSITIONS_PROPERTY,
    PositionsMovedError,
    TopicTable,
    opened_catalog,
)
from store.errors import InvalidArgumentError, ServiceUnavailableError
from tests.pipeline.table.lakes import TABLE, data_files, faulty, lake, rows

QUEUE = QueueKey("orders", "broker-a", 0)
DAY = datetime(2026, 11, 30, 12, tzinfo=UTC)
VALUE = pa.struct([("id", pa.int32()), ("note", pa.string())])


def schema_of(value: pa.DataType = VALUE) -> pa.Schema:
    return pa.schema(
        [
            ("queueOffset", pa.int64()),
            ("storeTimestamp", pa.timestamp("us", "UTC")),
            ("keys", pa.list_(pa.field("element", pa.string(), False))),
            ("uniqKey", pa.string()),
            ("bodyValue", value),
        ]
    )


SCHEMA = schema_of()


def table_of(catalog: Any, schema: pa.Schema = SCHEMA, topic: str = "orders") -> TopicTable:
    return TopicTable.of_topic(catalog, TABLE, topic, schema, sleep=lambda seconds: None)


def some(begin: int, end: int, schema: pa.Schema = SCHEMA, *, days: int = 1) -> pa.Table:
    """The messages of these queue offsets, in turn on so many days."""
    made = [
        {
            "queueOffset": at,
            "storeTimestamp": DAY.replace(day=DAY.day - at % days),
            "keys": [f"k{at}", "all"] if at % 2 else None,
            "uniqKey": f"U{at}",
            "bodyValue": {"id": at},
        }
        for at in range(begin, end)
    ]
    return pa.Table.from_pylist(made, schema)


def at(offset: int) -> Positions:
    return {QUEUE: offset}


def offsets(catalog: Any) -> list[int]:
    return sorted(row["queueOffset"] for row in rows(catalog))


def add(table: TopicTable, begin: int, end: int) -> None:
    table.append(table.write(some(begin, end)), at(begin) if begin else None, at(end))


def test_rows_and_positions_come_in_one_snapshot(tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    table = table_of(catalog)
    assert table.positions() is None

    add(table, 0, 10)
    add(table, 10, 15)

    assert offsets(catalog) == list(range(15))
    assert table_of(lake(tmp_path)).positions() == at(15)
    kept = [json.loads(snapshot.summary[POSITIONS_PROPERTY])["q"] for snapshot in catalog.load_table(TABLE).snapshots()]
    assert kept == [{"orders": {"broker-a": {"0": end}}} for end in (10, 15)]


def test_each_day_has_files_of_its_own(tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    table = table_of(catalog)
    table.append(table.write(some(0, 9, days=3)), None, at(9))

    files = catalog.load_table(TABLE).inspect.files().to_pylist()
    days = sorted(str(file["partition"]["day"]) for file in files)
    assert days == ["2026-11-28", "2026-11-29", "2026-11-30"]
    one = catalog.load_table(TABLE).scan("storeTimestamp >= '2026-11-30T00:00:00+00:00'")
    assert len(list(one.plan_files())) == 1
    assert sorted(one.to_arrow()["queueOffset"].to_pylist()) == [0, 3, 6]


def test_a_time_that_no_calendar_has_becomes_the_nearest_one_that_it_has(tmp_path: Path) -> None:
    """A producer states any time of birth: such a message must not stop the table."""
    catalog = lake(tmp_path)
    schema = SCHEMA.append(pa.field("bornTimestamp", pa.timestamp("us", "UTC")))
    table = table_of(catalog, schema)
    made = some(0, 4)
    born = pa.array([2**62, -(2**62), None, 1_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))

    table.append(table.write(made.append_column("bornTimestamp", born)), None, at(4))

    found = {row["queueOffset"]: row["bornTimestamp"] for row in rows(catalog)}
    assert [found[0].year, found[1].year, found[2], found[3].second] == [9999, 1, None, 1]


def test_a_text_that_has_no_upper_bound_stops_no_table(tmp_path: Path) -> None:
    """Behind U+D7FF, the 16th character here, there is none by which pyiceberg could bound it."""
    catalog = lake(tmp_path)
    table = table_of(catalog)
    made = some(0, 6, days=2)
    texts = pa.array(["a" * 15 + "\ud7ff" + "b", *(f"U{number}" for number in range(1, 6))])
    made = made.set_column(made.schema.get_field_index("uniqKey"), "uniqKey", texts)

    table.append(table.write(made), None, at(6))

    assert {row["uniqKey"] for row in rows(catalog)} == set(texts.to_pylist())
    assert len(list(catalog.load_table(TABLE).scan("storeTimestamp >= '2026-11-30T00:00:00+00:00'").plan_files())) == 1


@pytest.mark.parametrize("fault", ["refused", "lost", "answer lost"])
def test_a_commit_that_fails_or_whose_answer_is_lost_stores_its_rows_once(tmp_path: Path, fault: str) -> None:
    catalog = faulty(tmp_path)
    table = table_of(catalog)
    add(table, 0, 5)
    first = catalog.commit_count + 1
    catalog.fault = lambda number: fault if number == first else ""

    add(table, 5, 9)

    assert offsets(catalog) == list(range(9))
    assert table.positions() == at(9)


def test_a_catalog_that_never_answers_is_named_after_so_many_attempts(tmp_path: Path) -> None:
    catalog = faulty(tmp_path)
    table = table_of(catalog)
    add(table, 0, 5)
    done = catalog.commit_count
    catalog.fault = lambda number: "lost"

    with pytest.raises(ServiceUnavailableError, match="'lake' or its files cannot be reached") as failure:
        add(table, 5, 9)

    assert failure.value.metadata["catalog"] == "lake"
    assert catalog.commit_count == done + COMMIT_ATTEMPT_MAX
    catalog.fault = lambda number: ""
    assert (offsets(catalog), table_of(catalog).positions()) == (list(range(5)), at(5))


def test_of_two_writers_of_the_same_messages_one_adds_them(tmp_path: Path) -> None:
    """pyiceberg by itself would add both: it sends a refused append again behind the other one."""
    one, other = table_of(lake(tmp_path)), table_of(lake(tmp_path))
    add(one, 0, 5)
    files = other.write(some(0, 5))
    assert len(data_files(tmp_path)) == 2

    with pytest.raises(PositionsMovedError):
        other.append(files, None, at(5))

    assert offsets(lake(tmp_path)) == list(range(5))
    assert len(data_files(tmp_path)) == 1, "what was not added is removed"
    assert other.positions() == at(5)


def test_a_writer_that_is_overtaken_between_its_look_and_its_commit_adds_nothing(tmp_path: Path) -> None:
    slow, fast = faulty(tmp_path), table_of(lake(tmp_path))
    table = table_of(slow)
    overtakes = [lambda: add(fast, 0, 5)]
    slow.before = lambda: overtakes.pop()() if overtakes else None

    with pytest.raises(PositionsMovedError):
        table.append(table.write(some(0, 5)), None, at(5))

    assert offsets(slow) == list(range(5))


def test_files_stay_whose_commit_came_through_and_whose_snapshot_is_expired_before_the_next_look(
    tmp_path: Path,
) -> None:
    """Its answer was lost, another run went on behind it, and somebody expired all snapshots but the newest."""
    catalog = faulty(tmp_path)
    table = table_of(catalog)
    first = catalog.commit_count + 1
    catalog.fault = lambda number: "answer lost" if number == first else ""

    def meanwhile(seconds: float) -> None:
        add(table_of(lake(tmp_path)), 5, 9)
        loaded = lake(tmp_path).load_table(TABLE)
        loaded.maintenance.expire_snapshots().by_id(loaded.snapshots()[0].snapshot_id).commit()

    table._sleep = meanwhile
    with pytest.raises(PositionsMovedError):
        add(table, 0, 5)

    assert offsets(lake(tmp_path)) == list(range(9))


def test_a_delete_whose_answer_is_lost_says_how_many_it_deleted(tmp_path: Path) -> None:
    catalog = faulty(tmp_path)
    table = table_of(catalog)
    add(table, 0, 6)
    first = catalog.commit_count + 1
    catalog.fault = lambda number: "answer lost" if number == first else ""

    assert table.delete_by_key("all") == 3

    assert offsets(catalog) == [0, 2, 4]


def test_a_delete_of_somebody_else_does_not_stop_a_writer(tmp_path: Path) -> None:
    slow = faulty(tmp_path)
    table, other = table_of(slow), table_of(lake(tmp_path))
    add(table, 0, 5)
    meanwhile = [lambda: other.delete_by_key("U3")]
    slow.before = lambda: meanwhile.pop()() if meanwhile else None

    add(table, 5, 7)

    assert offsets(slow) == [0, 1, 2, 4, 5, 6]
    assert table.positions() == at(7)
    assert table.lost_commit_count == 1


def test_a_key_is_deleted_from_the_newest_snapshot_and_nothing_else(tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    table = table_of(catalog)
    table.append(table.write(some(0, 6, days=2)), None, at(6))
    before = {path.name: path.read_bytes() for path in (tmp_path / "warehouse").rglob("*.parquet")}

    assert table.delete_by_key("k3") == 1
    assert table.delete_by_key("U4") == 1
    assert table.delete_by_key("no such key") == 0
    assert offsets(catalog) == [0, 1, 2, 5]
    assert table.delete_by_key("all") == 2
    assert offsets(catalog) == [0, 2]

    assert table_of(lake(tmp_path)).positions() == at(6), "what is deleted does not come again"
    first = catalog.load_table(TABLE).snapshots()[0].snapshot_id
    assert len(catalog.load_table(TABLE).scan(snapshot_id=first).to_arrow()) == 6
    after = {path.name: path.read_bytes() for path in (tmp_path / "warehouse").rglob("*.parquet")}
    assert {name: after[name] for name in before} == before


def test_a_table_goes_on_where_its_snapshots_say_or_its_property_if_they_are_expired(tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    table = table_of(catalog)
    for begin in (0, 5, 10):
        add(table, begin, begin + 5)
    table.delete_by_key("U12")  # a snapshot without positions
    assert table_of(catalog).positions() == at(15)

    loaded = catalog.load_table(TABLE)
    older = [each.snapshot_id for each in loaded.snapshots()[:-1]]
    loaded.maintenance.expire_snapshots().by_ids(older).commit()
    assert len(catalog.load_table(TABLE).snapshots()) == 1
    assert table_of(catalog).positions() == at(15)


def test_a_table_that_is_rolled_back_goes_on_where_it_was_then(tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    table = table_of(catalog)
    add(table, 0, 5)
    add(table, 5, 9)
    loaded = catalog.load_table(TABLE)
    with loaded.manage_snapshots() as change:
        change.rollback_to_snapshot(loaded.snapshots()[0].snapshot_id)

    again = table_of(catalog)

    assert again.positions() == at(5)
    add(again, 5, 7)
    assert offsets(catalog) == list(range(7))


WIDER = pa.struct([("id", pa.int64()), ("note", pa.string()), ("price", pa.float64())])


def test_a_schema_that_adds_and_widens_fields_changes_the_table(tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    add(table_of(catalog), 0, 2)

    changed = table_of(catalog, schema_of(WIDER))
    changed.append(changed.write(some(2, 3, schema_of(WIDER))), at(2), at(3))
    narrow = table_of(catalog)  # an older program: its rows lack the new field
    narrow.append(narrow.write(some(3, 4)), at(3), at(4))

    found = {row["queueOffset"]: row["bodyValue"] for row in rows(catalog)}
    assert found == {each: {"id": each, "note": None, "price": None} for each in range(4)}
    assert str(catalog.load_table(TABLE).schema().find_field("bodyValue.id").field_type) == "long"


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (pa.struct([("id", pa.string())]), "bodyValue.id is int in the table and string in the schema"),
        (pa.struct([("note", pa.struct([("x", pa.int32())]))]), "bodyValue.note is string in the table"),
        (pa.string(), "bodyValue is struct<"),
        (pa.struct([("note", pa.binary())]), "bodyValue.note is string in the table and binary in the schema"),
    ],
)
def test_a_schema_that_iceberg_cannot_change_to_is_refused_by_its_column(
    tmp_path: Path, value: pa.DataType, named: str
) -> None:
    catalog = lake(tmp_path)
    add(table_of(catalog), 0, 2)
    before = catalog.load_table(TABLE).metadata_location

    with pytest.raises(InvalidArgumentError) as failure:
        table_of(catalog, schema_of(value))

    assert named in failure.value.message
    assert catalog.load_table(TABLE).metadata_location == before


@pytest.mark.parametrize(("precision", "scale"), [(12, 4), (8, 0)])
def test_a_decimal_of_another_scale_is_refused(tmp_path: Path, precision: int, scale: int) -> None:
    """pyiceberg takes it for a wider one, and other engines would read 12.50 as 0.1250."""
    catalog = lake(tmp_path)
    table_of(catalog, schema_of(pa.struct([("price", pa.decimal128(10, 2))])))

    with pytest.raises(InvalidArgumentError, match=r"bodyValue\.price is decimal\(10, 2\) in the table"):
        table_of(catalog, schema_of(pa.struct([("price", pa.decimal128(precision, scale))])))

    table_of(catalog, schema_of(pa.struct([("price", pa.decimal128(12, 2))])))
    assert str(catalog.load_table(TABLE).schema().find_field("bodyValue.price").field_type) == "decimal(12, 2)"


def test_two_runs_that_change_the_schema_at_once_both_go_on(tmp_path: Path) -> None:
    add(table_of(lake(tmp_path)), 0, 1)
    slow = faulty(tmp_path)
    meanwhile = [lambda: table_of(lake(tmp_path), schema_of(WIDER))]
    slow.before = lambda: meanwhile.pop()() if meanwhile else None

    table_of(slow, schema_of(WIDER))

    assert slow.load_table(TABLE).schema().find_field("bodyValue.price").optional


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    add(table_of(catalog), 0, 2)
    with pytest.raises(InvalidArgumentError, match=r"shop\.orders is of the topic 'orders'"):
        table_of(catalog, topic="returns")
    catalog.create_table("shop.other", SCHEMA)
    with pytest.raises(InvalidArgumentError, match=r"shop\.other is of something else"):
        TopicTable.of_topic(catalog, "shop.other", "orders", SCHEMA)
    with pytest.raises(InvalidArgumentError, match=r"shop\.other is of something else"):
        TopicTable.existing(catalog, "shop.other")
    with pytest.raises(InvalidArgumentError, match=r"There is no table shop\.none in the catalog 'lake'"):
        TopicTable.existing(catalog, "shop.none")
    with pytest.raises(InvalidArgumentError, match=r"not NAMESPACE\.TABLE"):
        TopicTable.existing(catalog, "orders")


def test_a_table_with_other_partitions_is_refused(tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    add(table_of(catalog), 0, 2)
    with catalog.load_table(TABLE).update_spec() as change:
        change.add_field("uniqKey", "bucket[4]", "key_bucket")
    with pytest.raises(InvalidArgumentError, match=r"is partitioned by .*bucket\[4\]"):
        table_of(catalog)


@pytest.mark.parametrize(
    "value",
    [
        pa.struct([("a", pa.struct([("b", pa.int64())])), ("a.b", pa.string())]),
        pa.struct([("l", pa.list_(pa.string())), ("l.element", pa.string())]),
    ],
)
def test_fields_that_have_one_name_for_iceberg_ended_a_job_with_a_traceback(tmp_path: Path, value: Any) -> None:
    catalog = lake(tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"multiple fields for name bodyValue\."):
        table_of(catalog, schema_of(value))
    assert catalog.list_namespaces() == []
    table_of(catalog, schema_of(pa.struct([value.field(0)])))
    with pytest.raises(InvalidArgumentError, match="columns of one Iceberg table"):
        table_of(catalog, schema_of(pa.struct([value.field(1)])))


@pytest.mark.parametrize("sign", ["#", "?"])
def test_a_place_with_a_sign_of_uris_in_its_name_had_all_files_written_over_one(tmp_path: Path, sign: str) -> None:
    """That one has the name before the sign. Where there is such a file already, the catalog seemed to be away."""
    (tmp_path / "lake").write_text("of somebody else")
    warehouse = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake{sign}1"}
    catalog = opened_catalog("lake", {"type": "sql", **warehouse})
    with pytest.raises(InvalidArgumentError, match="choose another place"):
        table_of(catalog)
    assert (tmp_path / "lake").read_text() == "of somebody else"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["catalog.db", "lake"]


@pytest.mark.parametrize("topic", ["orders", "returns"])
def test_rows_went_into_a_table_that_was_made_again_under_the_same_name(tmp_path: Path, topic: str) -> None:
    catalog = lake(tmp_path)
    table = table_of(catalog)
    add(table, 0, 2)
    rest = table.write(some(2, 4))
    catalog.drop_table(TABLE)
    with pytest.raises(InvalidArgumentError, match="dropped meanwhile"):
        table.append(rest, at(2), at(4))
    other = table_of(catalog, topic=topic)
    add(other, 0, 2)  # its positions are the same
    with pytest.raises(InvalidArgumentError, match="dropped and made again"):
        table.append(rest, at(2), at(4))
    assert offsets(catalog) == [0, 1]


def test_a_table_that_is_partitioned_anew_during_a_run_got_files_under_wrong_partitions(tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    table = table_of(catalog)
    add(table, 0, 2)
    rest = table.write(some(2, 4))
    with catalog.load_table(TABLE).update_spec() as change:
        change.remove_field("day")
        change.add_field("queueOffset", "identity", "offset")
    with pytest.raises(InvalidArgumentError, match="partitions were changed"):
        table.append(rest, at(2), at(4))
    assert offsets(catalog) == [0, 1]


def test_a_catalog_without_settings_is_refused_and_one_that_is_away_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with pytest.raises(InvalidArgumentError, match="The catalog 'nowhere' cannot be opened"):
        opened_catalog("nowhere", {})
    for uri in ("mysql://user:sesame@host/db", "postgresql+none://user:sesame@host/db"):
        with pytest.raises((InvalidArgumentError, ServiceUnavailableError)) as refused:
            opened_catalog("secret", {"uri": uri})
        assert "sesame" not in refused.value.message
    assert RESTError in iceberg.UNAVAILABLE
    with pytest.raises(ServiceUnavailableError, match="'away' or its files cannot be reached"):
        opened_catalog("away", {"type": "rest", "uri": "http://127.0.0.1:1"})


def test_files_have_field_ids_so_that_every_reader_finds_renamed_columns(tmp_path: Path) -> None:
    catalog = lake(tmp_path)
    add(table_of(catalog), 0, 2)
    with catalog.load_table(TABLE).update_schema() as change:
        change.rename_column("uniqKey", "unique_key")
    assert [row["unique_key"] for row in rows(catalog)] == ["U0", "U1"]
    (path,) = (tmp_path / "warehouse").rglob("*.parquet")
    assert all(b"PARQUET:field_id" in field.metadata for field in pq.read_schema(path))
