"""Spark DDL as Spark reads it (the Spark test compares), and what is refused."""

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, TimestampType

from pipeline.rocketmq.bodies.json_bodies import DEPTH_MAX, check_json_type, struct_of
from pipeline.scan.options import OptionError

# What Spark shows as simpleString of the same text; test_source.py asks Spark.
DDL = {
    "id long, name string": "struct<id:bigint,name:string>",
    "ID: LONG , `order ``id``` bigint NOT NULL COMMENT 'of the ''shop', n Double": (
        "struct<ID:bigint,order `id`:bigint,n:double>"
    ),
    "struct<a:int,b:array<map<string,struct<x:byte,y:array<short>>>>>": (
        "struct<a:int,b:array<map<string,struct<x:tinyint,y:array<smallint>>>>>"
    ),
    "not boolean, comment float, struct real": "struct<not:boolean,comment:float,struct:float>",
}


@pytest.mark.parametrize("text", DDL)
def test_a_ddl_text_is_a_struct(text: str) -> None:
    assert struct_of(text).simpleString() == DDL[text]
    assert all(field.nullable for field in struct_of(text))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "at its end: a name or a type is missing"),
        ("id", "at its end: a name or a type is missing"),
        ("id long,", "a name or a type is missing"),
        ("id long name string", "at 'name string': a comma or the end is missing"),
        ("id array<long", "at its end: '>' is missing"),
        ("struct<a:int>, b int", "at ', b int': a comma or the end"),
        ("id long comment x", "a text in quotation marks"),
        ("id ?", "at '?': a name or a type is missing"),
        ("id long, Id int", "bodyValue has field 'Id' twice"),
        ("a struct<at: timestamp>", "bodyValue.a.at has type timestamp, which JSON bodies are not read as"),
        ("price decimal(10,2)", "bodyValue.price has type decimal"),
        ("m map<long, long>", "bodyValue.m has keys of type bigint"),
        ("a " + "array<" * 40 + "int" + ">" * 40, f"nested deeper than {DEPTH_MAX}"),
    ],
)
def test_what_is_no_ddl_of_json_bodies_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(OptionError) as failure:
        struct_of(text)
    assert problem in str(failure.value)


def test_a_type_that_a_query_asks_for_is_checked_by_the_same_rule() -> None:
    check_json_type(StructType([StructField("a", ArrayType(LongType()))]), "bodyValue")
    with pytest.raises(OptionError, match=r"bodyValue\.a\[\] has type timestamp"):
        check_json_type(StructType([StructField("a", ArrayType(TimestampType()))]), "bodyValue")
    with pytest.raises(OptionError, match="bodyValue has no fields"):
        check_json_type(StructType([]), "bodyValue")
    assert StringType() in [field.dataType for field in struct_of("a string")]
