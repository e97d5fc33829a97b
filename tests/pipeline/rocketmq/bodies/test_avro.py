"""Avro bodies written by fastavro come back as its values; what no column can hold is refused by name."""

import io
import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from pipeline.rocketmq.bodies.avro import AvroBodies
from pipeline.scan.options import OptionError

fastavro = pytest.importorskip("fastavro", reason="Avro bodies need the optional library fastavro")

POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "double"}]}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop.v1",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": "boolean"},
        {"name": "rate", "type": "float"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "raw", "type": ["bytes", "null"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "DONE"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "from", "type": POINT},
        {"name": "to", "type": ["null", "Point"]},
        {"name": "way", "type": {"type": "array", "items": ["null", "Point"]}},
        {"name": "counts", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exactly", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
    ],
}
COLUMNS = (
    "struct<id:bigint,paid:boolean,rate:float,note:string,raw:binary,state:string,before:string,hash:binary,"
    "from:struct<x:int,y:double>,to:struct<x:int,y:double>,way:array<struct<x:int,y:double>>,"
    "counts:map<string,array<bigint>>,day:date,at:timestamp,exactly:timestamp,price:decimal(9,2),key:string,clock:int>"
)


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def decoded(schema: Any, bodies: list[bytes | None]) -> list[Any]:
    avro = AvroBodies(json.dumps(schema))
    found = avro.decode(bodies, to_arrow_type(avro.schema, timezone="UTC"))
    assert isinstance(found, pa.Array)
    return found.to_pylist()


points = st.fixed_dictionaries({"x": st.integers(-(2**31), 2**31 - 1), "y": st.floats(allow_nan=False)})
longs = st.integers(-(2**63), 2**63 - 1)
times = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)).map(lambda each: each.replace(tzinfo=UTC))
orders = st.fixed_dictionaries(
    {
        "id": longs,
        "paid": st.booleans(),
        "rate": st.floats(width=32, allow_nan=False),
        "note": st.none() | st.text(max_size=5),
        "raw": st.none() | st.binary(max_size=5),
        "state": st.sampled_from(["OPEN", "DONE"]),
        "before": st.sampled_from([None, "OPEN"]),
        "hash": st.binary(min_size=4, max_size=4),
        "from": points,
        "to": st.none() | points,
        "way": st.lists(st.none() | points, max_size=3),
        "counts": st.dictionaries(st.text(max_size=3), st.lists(longs, max_size=2), max_size=3),
        "day": st.dates(date(1900, 1, 1), date(2200, 1, 1)),
        "at": times.map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000)),
        "exactly": st.none() | times,
        "price": st.decimals(-9_999_999, 9_999_999, places=2),
        "key": st.uuids(),
        "clock": st.integers(0, 86_399_999),
    }
)


@given(st.lists(orders, min_size=1, max_size=3))
def test_what_fastavro_writes_comes_back(values: list[dict[str, Any]]) -> None:
    plain = json.loads(json.dumps(ORDER))
    plain["fields"][-1]["type"] = "int"  # a column of milliseconds
    bodies = [written(plain, value) for value in values]
    expected = [value | {"key": str(value["key"]), "counts": list(value["counts"].items())} for value in values]

    assert decoded(ORDER, list(bodies)) == expected


def test_the_columns_of_a_schema() -> None:
    assert AvroBodies(json.dumps(ORDER)).schema.simpleString() == COLUMNS


def test_a_bad_body_costs_only_itself() -> None:
    good = written(POINT, {"x": 1, "y": 2.0})
    found = decoded(POINT, [good, b"", good + b"\x00", b"\xff" * 20, None, good[:-1], good])
    assert found == [{"x": 1, "y": 2.0}, None, None, None, None, None, {"x": 1, "y": 2.0}]

    too_far = {"type": "record", "name": "T", "fields": [{"name": "at", "type": ORDER["fields"][13]["type"]}]}
    plain = {"type": "record", "name": "T", "fields": [{"name": "at", "type": "long"}]}
    bodies = [written(plain, {"at": millis}) for millis in (1_000, 2**62)]
    assert decoded(too_far, [*bodies]) == [{"at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}, None]
    small = {"type": "record", "name": "D", "fields": [{"name": "price", "type": ORDER["fields"][15]["type"]}]}
    raw = {"type": "record", "name": "D", "fields": [{"name": "price", "type": "bytes"}]}
    bodies = [written(raw, {"price": number.to_bytes(9, "big")}) for number in (150, 10**18)]
    assert decoded(small, [*bodies]) == [{"price": Decimal("1.50")}, None]


def field(kind: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": kind}}]}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ('{"type": ', "bodySchema is not an Avro schema"),
        ({"type": "recrod"}, "bodySchema is not an Avro schema"),
        ("string", "of no record"),
        ({"type": "array", "items": "long"}, "of no record"),
        (field(["string", "long"]), r"bodyValue.a\[\] is a union of 2 types besides null"),
        (field(["null", "string", POINT]), r"bodyValue.a\[\] is a union of 2 types"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]},
            "bodyValue.next holds its own type R again",
        ),
        ({"type": "record", "name": "R", "fields": [{"name": "no", "type": "null"}]}, "bodyValue.no has type null"),
        ({"type": "record", "name": "R", "fields": [{"name": "no", "type": ["null"]}]}, "union of 0 types"),
        (field("null"), "without bytes"),
        (field({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 0}), "decimal of 40 digits"),
    ],
)
def test_what_no_column_can_hold_is_refused_by_name(schema: Any, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        AvroBodies(schema if isinstance(schema, str) and schema[:1] == "{" else json.dumps(schema))


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(OptionError, match=r"pip install 'reput\[avro\]'"):
        AvroBodies(json.dumps(POINT))
