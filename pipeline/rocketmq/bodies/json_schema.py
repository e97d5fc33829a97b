"""The schema of JSON bodies from a sample, as Spark infers it (4.3, `spark.read.json`).

    integers                  long         true, false      boolean
    other numbers, or both    double       only null        string
    texts, also dates         string       anything else that goes together   string

Fields are sorted by name; objects without fields are left out. Unlike Spark, an integer of more than 64 bits makes a double and
no decimal, a body that is an array is left out, and of names that differ in case alone the first stays.
"""

from collections.abc import Iterable
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pipeline.rocketmq.bodies.ddl import DEPTH_MAX
from pipeline.rocketmq.bodies.json_values import object_of
from pipeline.scan.options import OptionError

# More are no columns but data used as names, which a map in `bodySchema` reads.
FIELD_COUNT_MAX = 2_000

_LONG_END = 1 << 63
_NULL = "null"
_TYPES: dict[str, DataType] = {
    _NULL: StringType(),
    "boolean": BooleanType(),
    "long": LongType(),
    "double": DoubleType(),
    "string": StringType(),
}
# A name of _TYPES, the one kind of the elements of an array, or the kinds of an object's fields.
Kind = str | list[Any] | dict[str, Any]


def inferred(bodies: Iterable[bytes | None]) -> StructType | None:
    """The schema of all objects among the bodies; None when none has a field.

    Raises:
        OptionError: they have more than FIELD_COUNT_MAX fields.
    """
    whole: Kind = {}
    for body in bodies:
        value = object_of(body)
        if value is not None:
            whole = _merged(whole, _kind_of(value, 1))
            if _field_count(whole) > FIELD_COUNT_MAX:
                raise OptionError(
                    f"The sampled JSON bodies have more than {FIELD_COUNT_MAX} fields: give option bodySchema, with a map "
                    "where names are data."
                )
    made = _type_of(whole)
    return made if isinstance(made, StructType) else None


def _kind_of(value: Any, depth: int) -> Kind:
    if isinstance(value, dict | list) and depth > DEPTH_MAX:
        return "string"
    if isinstance(value, dict):
        fields: dict[str, Any] = {}
        seen: set[str] = set()
        for name, each in value.items():
            if name and name.lower() not in seen:
                seen.add(name.lower())
                fields[name] = _kind_of(each, depth + 1)
        return fields
    if isinstance(value, list):
        element: Kind = _NULL
        for each in value:
            element = _merged(element, _kind_of(each, depth + 1))
        return [element]
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if -_LONG_END <= value < _LONG_END else "double"
    return "double" if isinstance(value, float) else "string"


def _merged(one: Kind, other: Kind) -> Kind:
    if other in (one, _NULL):
        return one
    if one == _NULL:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        fields = dict(one)
        names = {name.lower(): name for name in one}
        for name, kind in other.items():
            known = names.get(name.lower())
            fields[known or name] = _merged(fields[known], kind) if known else kind
        return fields
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(one[0], other[0])]
    return "double" if (one, other) in (("long", "double"), ("double", "long")) else "string"


def _type_of(kind: Kind) -> DataType | None:
    """Spark's type; None for one without fields."""
    if isinstance(kind, str):
        return _TYPES[kind]
    if isinstance(kind, list):
        element = _type_of(kind[0])
        return None if element is None else ArrayType(element, True)
    fields = [(name, _type_of(each)) for name, each in sorted(kind.items())]
    made = [StructField(name, each, True) for name, each in fields if each is not None]
    return StructType(made) if made else None


def _field_count(kind: Kind) -> int:
    if isinstance(kind, dict):
        return sum(1 + _field_count(each) for each in kind.values())
    return _field_count(kind[0]) if isinstance(kind, list) else 0
