"""Schemas of samples: what `spark.read.json` of Spark 4.3 inferred for the same lines, but where the module says so."""

import json

import pytest

from pipeline.rocketmq.bodies import json_bodies
from pipeline.rocketmq.bodies.json_bodies import FIELD_COUNT_MAX, inferred
from pipeline.scan.options import OptionError

INFERRED = [
    (['{"a":1}', '{"a":2.5}'], "struct<a:double>"),
    (['{"a":1}', '{"a":"x"}'], "struct<a:string>"),
    (['{"a":null}'], "struct<a:string>"),
    (['{"a":null}', '{"a":true}', "{}"], "struct<a:boolean>"),
    (['{"a":[]}'], "struct<a:array<string>>"),
    (['{"a":[1,"x"]}'], "struct<a:array<string>>"),
    (['{"a":[null]}', '{"a":[1]}'], "struct<a:array<bigint>>"),
    (['{"a":[1,2.5],"b":{"c":1}}', '{"b":{"d":true}}'], "struct<a:array<double>,b:struct<c:bigint,d:boolean>>"),
    (['{"a":{"x":1}}', '{"a":5}'], "struct<a:string>"),
    (['{"a":[1]}', '{"a":5}'], "struct<a:string>"),
    (['{"a":true}', '{"a":1}'], "struct<a:string>"),
    (['{"a":"2020-01-01T00:00:00Z"}'], "struct<a:string>"),
    (['{"b":1,"a":2}'], "struct<a:bigint,b:bigint>"),
    (['{"a":[{"x":1},{"y":2}]}'], "struct<a:array<struct<x:bigint,y:bigint>>>"),
    (['{"a":[{}]}', '{"b":1}'], "struct<b:bigint>"),
    (['{"a":NaN}'], "struct<a:double>"),
    (['{"a":1}', '{"A":2}'], "struct<a:bigint>"),
    (['{"a":{"x":null},"b":[[]]}'], "struct<a:struct<x:string>,b:array<array<string>>>"),
    (['{"a":1}', "garbage", "5"], "struct<a:bigint>"),  # Spark adds _corrupt_record
    (['{"a":12345678901234567890}'], "struct<a:double>"),  # Spark: decimal(20,0)
    (["[1]", '[{"a":1}]', ""], None),
    (['{"a":{}}', "{}", '{"":1}'], None),
]


@pytest.mark.parametrize(("lines", "expected"), INFERRED)
def test_the_schema_of_a_sample_is_that_of_spark(lines: list[str], expected: str | None) -> None:
    for order in (lines, lines[::-1]):
        if expected == "struct<a:bigint>" and '{"A":2}' in lines and order is not lines:
            continue  # the first name stays
        found = inferred([line.encode() for line in order])
        assert (found and found.simpleString()) == expected


def test_names_that_are_data_and_nesting_without_end_have_limits() -> None:
    with pytest.raises(OptionError, match=f"more than {FIELD_COUNT_MAX} fields: give option bodySchema, with a map"):
        inferred(json.dumps({f"user-{i}": i}).encode() for i in range(FIELD_COUNT_MAX + 1))
    found = inferred([b'{"a":' * 100 + b"1" + b"}" * 100, b"[" * 100_000])
    assert found is not None
    assert found.simpleString().count("struct") == json_bodies.DEPTH_MAX
