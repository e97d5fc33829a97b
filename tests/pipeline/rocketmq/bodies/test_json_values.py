"""JSON bodies as structs: a batch at once gives what each body gives by itself; Spark is asked in test_source.py."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from pipeline.rocketmq.bodies.json_bodies import JsonBodies, java_double, struct_of
from tests.pipeline.rocketmq.bodies.json_cases import DDL, DDL_WITH_MAP, NO_OBJECTS, OBJECTS, WITH_MAPS

GOOD = b'{"id":1,"name":"x","many":[1,2],"inner":{"x":5}}'


def decoder(ddl: str) -> JsonBodies:
    schema = struct_of(ddl)
    return JsonBodies(schema, to_arrow_type(schema, timezone="UTC"))


BODIES = decoder(DDL)


@pytest.mark.parametrize("body", [*NO_OBJECTS, *OBJECTS])
def test_a_batch_at_once_gives_what_its_bodies_give_one_by_one(body: bytes) -> None:
    batch = [GOOD, body, GOOD]
    single = BODIES.decoded_one_by_one(batch)
    at_once = BODIES.decoded_at_once(batch)

    assert at_once is None or at_once.equals(single)
    assert single[0].as_py()["id"] == single[2].as_py()["id"] == 1
    assert single[1].is_valid == (body not in NO_OBJECTS)


def test_good_bodies_are_parsed_at_once() -> None:
    batch = [GOOD, b'{"amount":1.5,"deep":{"in":{"y":["a"]}}}', b'{"zzz":[{}]}', b"null"] * 100
    found = BODIES.decoded_at_once(batch)
    assert found is not None
    assert found[1].as_py()["deep"] == {"in": {"x": None, "y": ["a"]}}
    assert found.type == BODIES.decoded_one_by_one(batch).type


@pytest.mark.parametrize(
    ("body", "is_whole"),
    [
        (b'{"id":1,"inner":{"x":1},"many":[1]}', True),
        (b' {"id":null,"more":[1]}\n', True),
        (b'{"id":9223372036854775808}', False),
        (b'{"id":1.5}', False),
        (b'{"id":"1"}', False),
        (b'{"inner":{"x":"1"}}', False),
        (b'{"inner":7}', False),
        (b'{"many":[1,"a"]}', False),
        (b'{"id":1}{"id":2}', False),
        (b'{"name":"\xff"}', False),
        (b"[1]", False),
        (b"", False),
        (None, False),
    ],
)
def test_a_body_is_whole_when_nothing_of_it_under_the_names_of_the_schema_is_lost(
    body: bytes | None, is_whole: bool
) -> None:
    assert BODIES.are_whole([body]) == [is_whole]
    assert BODIES.are_whole([GOOD, body]) == [True, is_whole]


@pytest.mark.parametrize(
    "batch",
    [
        [b'{"id":1}}\n{"v":{"id":2}', b'{"id":3}'],  # a body that is two, and then one more
        [b'{"id":1', b'}'],  # two that would be one together
        [b'{"id":1}}\n{"v":{"id":2}', b'{"id":[', b"]"],
        [b"", b'{"id":1}{"id":2}'],
        [b'{"id":', b'1}'],
        [b'{"name":"', b'"}'],
    ],
)  # fmt: skip
def test_bodies_do_not_run_into_one_another(batch: list[bytes]) -> None:
    assert BODIES.decode(batch).equals(pa.concat_arrays([BODIES.decode([body]) for body in batch]))
    assert BODIES.decoded_at_once(batch) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "in", "id", "zz"]), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from([field.name for field in struct_of(DDL)] + ["unknown"])
TEXTS = st.dictionaries(NAMES, JSON, max_size=4).map(lambda value: json.dumps(value).encode())


@given(st.lists(TEXTS | st.binary(max_size=12) | st.sampled_from(OBJECTS), min_size=1, max_size=5))
def test_any_bodies_in_one_batch_are_what_they_are_alone(batch: list[bytes]) -> None:
    assert_equal(BODIES.decode(batch), pa.concat_arrays([BODIES.decoded_one_by_one([body]) for body in batch]))
    at_once = BODIES.decoded_at_once(batch)
    if at_once is not None:
        assert_equal(at_once, BODIES.decoded_one_by_one(batch))


def assert_equal(one: pa.Array, other: pa.Array) -> None:
    assert repr(one.to_pylist()) == repr(other.to_pylist())  # NaN is NaN


def test_maps_of_a_schema_take_objects() -> None:
    found = decoder(DDL_WITH_MAP).decode([*WITH_MAPS, None]).to_pylist()
    assert found[0]["counts"] is None
    assert found[0]["id"] == 2
    assert found[1]["counts"] == [("a", 1), ("b", 2)]
    assert found[6]["named"] == [("a", {"x": 1}), ("b", None)]
    assert found[-1] is None


# Double.toString, Java 21.
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.5"), (1e7, "1.0E7"), (9999999.0, "9999999.0"), (0.001, "0.001"), (0.0001, "1.0E-4"), (-0.0, "-0.0"),
        (12345678.9, "1.23456789E7"), (-2.5e20, "-2.5E20"), (100.0, "100.0"), (0.5, "0.5"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_java_does(value: float, text: str) -> None:
    assert java_double(value) == text
