"""Python values as an Arrow array, where a bad value costs only itself."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_ERRORS = (pa.ArrowException, ValueError, TypeError, OverflowError)


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values as an array of a type; null where one does not fit."""
    try:
        return pa.array(values, kind)
    except _ERRORS:
        return pa.array([each if _fits(each, kind) else None for each in values], kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except _ERRORS:
        return False
    return True
