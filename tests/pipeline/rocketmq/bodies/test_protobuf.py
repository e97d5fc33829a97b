"""Protobuf bodies written by protobuf's own classes come back; what no column can hold is refused by name."""

import base64
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_tools import protoc
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from pipeline.rocketmq.bodies import protobuf
from pipeline.rocketmq.bodies.protobuf import ProtobufBodies, descriptor_content
from pipeline.scan.options import OptionError

ORDER = "shop.v1.Order"
COLUMNS = (
    "struct<id:bigint,large:decimal(20,0),wide:bigint,change:int,paid:boolean,rate:float,note:string,comment:string,"
    "raw:binary,state:string,states:array<string>,from:struct<x:int,y:double>,items:array<struct<name:string,count:bigint>>,"
    "counts:map<string,bigint>,places:map<int,struct<x:int,y:double>>,card:string,cash:struct<>,parts:array<binary>>"
)


def shop(directory: Path) -> bytes:
    here = Path(__file__).parent
    target = directory / "shop.binpb"
    assert protoc.main(["protoc", f"-I{here}", f"--descriptor_set_out={target}", str(here / "shop.proto")]) == 0
    return target.read_bytes()


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def order_class(descriptors: bytes) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(ORDER))


def decoded(content: bytes, bodies: list[bytes | None]) -> list[Any]:
    of_order = ProtobufBodies(content, ORDER)
    found = of_order.decode(bodies, to_arrow_type(of_order.schema, timezone="UTC"))
    assert isinstance(found, pa.Array)
    return found.to_pylist()


points = st.fixed_dictionaries({}, optional={"x": st.integers(-9, 9), "y": st.floats(allow_nan=False)})
orders = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1),
        "large": st.integers(0, 2**64 - 1),
        "wide": st.integers(0, 2**32 - 1),
        "change": st.integers(-(2**31), 2**31 - 1),
        "paid": st.booleans(),
        "rate": st.floats(width=32, allow_nan=False),
        "note": st.text(max_size=3),
        "comment": st.text(max_size=3),
        "raw": st.binary(max_size=3),
        "state": st.sampled_from([0, 1, 7]),
        "states": st.lists(st.sampled_from([0, 1, 7]), max_size=2),
        "from": points,
        "items": st.lists(st.fixed_dictionaries({"name": st.text(max_size=2), "count": st.integers(0, 9)}), max_size=2),
        "counts": st.dictionaries(st.text(max_size=2), st.integers(-9, 9), max_size=2),
        "places": st.dictionaries(st.integers(-9, 9), points, max_size=2),
        "parts": st.lists(st.binary(max_size=2), max_size=2),
    },
)
STATES = {0: "STATE_UNSPECIFIED", 1: "STATE_OPEN", 7: "7"}


def as_row(value: dict[str, Any]) -> dict[str, Any]:
    """What protobuf says of a message that was made of the value: defaults, and None for what is not set and knows it."""

    def point(given: dict[str, Any]) -> dict[str, Any]:
        return {"x": given.get("x", 0), "y": given.get("y")}

    return {
        "id": value.get("id", 0),
        "large": Decimal(value.get("large", 0)),
        "wide": value.get("wide", 0),
        "change": value.get("change", 0),
        "paid": value.get("paid", False),
        "rate": value.get("rate", 0.0),
        "note": value.get("note", ""),
        "comment": value.get("comment"),
        "raw": value.get("raw", b""),
        "state": STATES[value.get("state", 0)],
        "states": [STATES[each] for each in value.get("states", [])],
        "from": point(value["from"]) if "from" in value else None,
        "items": value.get("items", []),
        "counts": sorted(value.get("counts", {}).items()),
        "places": [(place, point(each)) for place, each in sorted(value.get("places", {}).items())],
        "card": value.get("card"),
        "cash": value.get("cash"),
        "parts": value.get("parts", []),
    }


def message_of(order_class: Any, value: dict[str, Any]) -> Any:
    message = order_class(**{name: each for name, each in value.items() if name != "places"})
    for place, each in value.get("places", {}).items():
        message.places[place].SetInParent()
        for name, number in each.items():
            setattr(message.places[place], name, number)
    return message


@given(st.lists(orders, min_size=1, max_size=3), st.sampled_from([{}, {"card": "c"}, {"cash": {}}]))
def test_what_protobuf_writes_comes_back(
    descriptors: bytes, order_class: Any, values: list[dict[str, Any]], payment: dict[str, Any]
) -> None:
    values = [value | payment for value in values]
    bodies: list[bytes | None] = [message_of(order_class, value).SerializeToString() for value in values]
    assert decoded(descriptors, bodies) == [as_row(value) for value in values]


def test_the_columns_of_a_message(descriptors: bytes) -> None:
    assert ProtobufBodies(descriptors, ORDER).schema.simpleString() == COLUMNS


def test_a_bad_body_costs_only_itself(descriptors: bytes, order_class: Any) -> None:
    good = json_format.ParseDict({"id": "5", "note": "n"}, order_class()).SerializeToString()
    # Not a message; one of another type, none of whose fields is known; a string that is not UTF-8; the empty one is a message.
    bad: list[bytes | None] = [b"\xff\xff", b"\xa2\x06\x01x", b"\x3a\x01\xff", None, good[:-1]]
    found = decoded(descriptors, [good, *bad, b"", good])
    assert [row and row["id"] for row in found] == [5, None, None, None, None, None, 0, 5]


def test_what_no_column_can_hold_is_refused_by_name(descriptors: bytes) -> None:
    with pytest.raises(OptionError, match=r"bodyValue.children\[\] holds its own type shop.v1.Tree again"):
        ProtobufBodies(descriptors, "shop.v1.Tree")
    with pytest.raises(OptionError, match=r"bodyValue.trees\{\}.children\[\] holds its own type"):
        ProtobufBodies(descriptors, "shop.v1.Forest")
    with pytest.raises(OptionError, match=r"has no message 'Order'\. It has shop.v1.Forest, "):
        ProtobufBodies(descriptors, "Order")
    with pytest.raises(OptionError, match="is not a descriptor set"):
        ProtobufBodies(b"\xff\xff", ORDER)


def test_descriptors_are_a_file_or_base64(descriptors: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.binpb").write_bytes(descriptors)
    assert descriptor_content(str(tmp_path / "shop.binpb")) == descriptors
    assert descriptor_content(base64.b64encode(descriptors).decode()) == descriptors
    for wrong in (str(tmp_path / "none.binpb"), str(tmp_path), "ä" * 5_000):
        with pytest.raises(OptionError, match="on the driver there is no such file that can be read"):
            descriptor_content(wrong)
    monkeypatch.setattr(protobuf, "DESCRIPTOR_BYTES_MAX", 100)
    with pytest.raises(OptionError, match="more than 100: leave source info out"):
        descriptor_content(str(tmp_path / "shop.binpb"))
