"""Turns a run of records into an Arrow batch, column by column; makes only the columns that are asked for.

Texts and bodies are copied together. An Arrow array is laid over the bytes as they were read, with an element for each text
and one for each stretch between two texts, and `take` copies every other element:

    bytes    ....|topic|....|body....|..|topic|..       offsets 4 9 13 22 ...   elements 0, 2, 4 ... are taken

Bytes that are not valid UTF-8 are rare: the plain codec makes the rows with such texts, and they are put into their places.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, IntegerType, LongType, MapType, StringType, TimestampType

from pipeline.scan.boundaries import kernel
from pipeline.scan.filters import TIME_MILLIS_MAX, TIME_MILLIS_MIN, Condition, clamp_micros
from pipeline.scan.scan import Damage, RecordRun
from pipeline.scan.schema import FROM_PROPERTIES, NATIVE_SCHEMA
from store.format.derived.queue_unit import tags_code
from store.format.host import decode_host
from store.format.java_text import decode_java_utf8
from store.format.message_type import priority_of
from store.format.properties import KEYS, LITE_TOPIC, PRIORITY, TAGS, UNIQ_KEY, parse_properties, split_keys
from store.format.topic import SCHEDULE_TOPIC
from store.walk.scan_layout import (
    AT,
    BODY_AT,
    BODY_CRC,
    BODY_SIZE,
    BORN_HOST,
    BORN_TIME,
    FLAG,
    KEY_AT,
    KEY_ROW_COUNT,
    KEY_SIZE,
    KEYS_SIZE,
    NOT_ASCII,
    PREPARED_OFFSET,
    PROPERTIES_SIZE,
    PROPERTY_NAME_AT,
    PROPERTY_NAME_SIZE,
    PROPERTY_ROW_COUNT,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    SIZE,
    SPAN_ROW_COUNT,
    STATED_OFFSET,
    STORE_HOST,
    STORE_TIME,
    SYS_FLAG,
    TAGS_AT,
    TAGS_HASH,
    TAGS_SIZE,
    TOO_MANY,
    TOPIC,
    UNIQUE_KEY_AT,
    UNIQUE_KEY_SIZE,
    VALUE_AT,
    VALUE_SIZE,
)

Rows = npt.NDArray[Any]
# Space for properties and keys in a batch, per row on average; rows beyond it are read by the plain codec.
PROPERTIES_PER_ROW = 32
KEYS_PER_ROW = 8
# The columns of `pipeline/scan/schema.py` that are rows of a run, and the row of each.
NUMBER_ROWS = {
    "queueId": QUEUE_ID, "storeSize": SIZE, "flag": FLAG, "sysFlag": SYS_FLAG, "reconsumeTimes": RECONSUME_TIMES,
    "bodyCRC": BODY_CRC, "queueOffset": QUEUE_OFFSET, "physicalOffset": STATED_OFFSET,
    "preparedTransactionOffset": PREPARED_OFFSET,
}  # fmt: skip
TIME_ROWS = {"bornTimestamp": BORN_TIME, "storeTimestamp": STORE_TIME}
HOST_ROWS = {"bornHost": BORN_HOST, "storeHost": STORE_HOST}
_WIDE = frozenset(field.name for field in NATIVE_SCHEMA if isinstance(field.dataType, LongType))
# Values of columns that must not be null, in a row about damage.
_BLANKS: dict[type[DataType], Any] = {
    StringType: "", IntegerType: 0, LongType: 0, TimestampType: clamp_micros(0), MapType: (),
}  # fmt: skip
_NO_RECORD = {field.name: None if field.nullable else _BLANKS[type(field.dataType)] for field in NATIVE_SCHEMA} | {
    "queueId": -1,
    "queueOffset": -1,
    "priority": None,
    "lite_topic": None,
}


@dataclass(slots=True)
class _Properties:
    """Contents of the property strings of a run's rows; `odd` are the rows that the plain codec must read.

    `names` and `values` are those of all properties, where a column asks for them; they are copies, made once for all columns.
    """

    spans: Rows
    names: pa.Array | None
    values: pa.Array | None
    property_ends: Rows
    keys: Rows
    key_ends: Rows
    odd: list[int]
    foreign: list[int]  # rows with valid UTF-8 beyond ASCII


class ArrowBatches:
    """Makes batches of one schema.

    Args:
        schema: Arrow's form of the Spark schema, as Spark compares it.
        names: the columns' own names, in the schema's order.
        row_count_max: rows in a batch, at most.
    """

    def __init__(self, schema: pa.Schema, names: Sequence[str], row_count_max: int) -> None:
        self._schema = schema
        self._names = list(names)
        wanted = set(names)
        self.needs_hosts = bool(wanted & HOST_ROWS.keys())
        self._needs_properties = bool(wanted & FROM_PROPERTIES)
        self._with_map = not wanted.isdisjoint(("properties", "priority", "lite_topic"))
        self._with_keys = "keys" in wanted
        self._spans: Rows = np.empty((SPAN_ROW_COUNT, row_count_max), dtype=np.int32)
        self._kinds: Rows = np.empty(row_count_max, dtype=np.int8)
        properties = PROPERTIES_PER_ROW * row_count_max if self._with_map else 0
        keys = KEYS_PER_ROW * row_count_max if self._with_keys else 0
        self._properties: Rows = np.empty((PROPERTY_ROW_COUNT, properties), dtype=np.int32)
        self._property_ends: Rows = np.empty(row_count_max, dtype=np.int32)
        self._keys: Rows = np.empty((KEY_ROW_COUNT, keys), dtype=np.int32)
        self._key_ends: Rows = np.empty(row_count_max, dtype=np.int32)

    def of_run(self, run: RecordRun) -> pa.RecordBatch:
        """The batch with these records."""
        found = self._find_properties(run) if self._needs_properties else None
        arrays = [
            self._column(name, field.type, run, found) for name, field in zip(self._names, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def of_damage(self, damages: Sequence[Damage]) -> pa.RecordBatch:
        """The batch with a row for each stretch of damage: its place, its first bytes and what is wrong."""
        arrays = []
        for name, field in zip(self._names, self._schema, strict=True):
            arrays.append(pa.array([damage_row(damage)[name] for damage in damages], field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _find_properties(self, run: RecordRun) -> _Properties:
        count = len(run)
        begins, sizes = _property_strings(run)
        spans, kinds = self._spans[:, :count], self._kinds[:count]
        property_ends, key_ends = self._property_ends[:count], self._key_ends[:count]
        kernel().find_properties(
            run.data,
            begins,
            sizes,
            self._spans,
            kinds,
            self._with_map,
            self._properties,
            property_ends,
            self._with_keys,
            self._keys,
            key_ends,
        )
        odd = np.flatnonzero(kinds == TOO_MANY).tolist()
        foreign = []
        for row in np.flatnonzero(kinds == NOT_ASCII).tolist():
            try:
                str(run.data[begins[row] : begins[row] + sizes[row]].data, "utf-8")
                foreign.append(row)
            except UnicodeDecodeError:
                odd.append(row)
        names = values = None
        if self._with_map:
            used = self._properties[:, : int(property_ends[-1]) if count else 0]
            names = _stretches(run.data, used[PROPERTY_NAME_AT], used[PROPERTY_NAME_SIZE], pa.string())
            values = _stretches(run.data, used[VALUE_AT], used[VALUE_SIZE], pa.string())
        return _Properties(spans, names, values, property_ends, self._keys, key_ends, odd, foreign)

    def _column(self, name: str, kind: pa.DataType, run: RecordRun, found: _Properties | None) -> pa.Array:
        if name in NUMBER_ROWS:
            return _fixed(_numbers(run, name), kind)
        if name in TIME_ROWS:
            return _fixed(times_micros(run.rows_64[TIME_ROWS[name]]), kind)
        if name in HOST_ROWS:
            texts = [str(decode_host(host)) for host in run.hosts]
            return pa.array(texts, kind).take(pa.array(run.rows_32[HOST_ROWS[name]]))
        match name:
            case "topic":
                texts = [decode_java_utf8(topic) for topic in run.topics]
                return pa.array(texts, kind).take(pa.array(run.rows_32[TOPIC]))
            case "body":
                return _stretches(run.data, run.rows_64[BODY_AT], run.rows_32[BODY_SIZE], kind)
            case "raw":
                return _stretches(run.data, run.rows_64[AT], run.rows_32[SIZE], kind)
            case "damage":
                return pa.nulls(len(run), kind)
        assert found is not None, name
        column = _PROPERTY_COLUMNS[name](run, found, kind)
        return replaced(column, found.odd, [_plainly(run, row)[name] for row in found.odd], kind)


def mask_of(run: RecordRun, conditions: Sequence[Condition]) -> Rows | None:
    """Which records fulfil all conditions; None without conditions."""
    mask: Rows | None = None
    for condition in conditions:
        if condition.column == "topic":
            fulfilled = np.array([condition.of_text(decode_java_utf8(topic)) for topic in run.topics], dtype=np.bool_)
            now = fulfilled[run.rows_32[TOPIC]]
        elif condition.column in TIME_ROWS:
            now = condition.of_numbers(times_micros(run.rows_64[TIME_ROWS[condition.column]]))
        else:
            now = condition.of_numbers(_numbers(run, condition.column))
        mask = now if mask is None else mask & now
    return mask


def times_micros(times_millis: Rows) -> Rows:
    """Store or born times as Spark's timestamps: microseconds since 1970 UTC, limited to the years 1 to 9999."""
    micros: Rows = np.clip(times_millis, TIME_MILLIS_MIN, TIME_MILLIS_MAX) * 1000
    return micros


def damage_row(damage: Damage) -> dict[str, Any]:
    """The row about a stretch of damage, as values for Arrow's columns."""
    where = {"physicalOffset": damage.offset, "storeSize": damage.size_bytes}
    return _NO_RECORD | where | {"raw": damage.head, "damage": damage.why}


def _numbers(run: RecordRun, name: str) -> Rows:
    """A column that equals a row of the run."""
    numbers: Rows = (run.rows_64 if name in _WIDE else run.rows_32)[NUMBER_ROWS[name]]
    return numbers


def _property_strings(run: RecordRun) -> tuple[Rows, Rows]:
    """Where each record's property string begins in the run's bytes, and its length in bytes."""
    sizes = np.ascontiguousarray(run.rows_32[PROPERTIES_SIZE])
    return run.rows_64[AT] + run.rows_32[SIZE] - sizes, sizes


def _fixed(values: Rows, kind: pa.DataType) -> pa.Array:
    """A column of numbers, copied out of the run."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.copy())])


def _stretches(data: npt.NDArray[np.uint8], begins: Rows, sizes: Rows, kind: pa.DataType) -> pa.Array:
    """The stretches of `data` at ascending, disjoint `begins`; null where a size is negative."""
    count = len(begins)
    if not count:
        return pa.array([], kind)
    first = int(begins[0])
    # Subtracted in 64 bits, stored in 32: places are 64 bits wide, offsets within one batch fit into 32.
    offsets = np.empty(2 * count, dtype=np.int32)
    np.subtract(begins, first, out=offsets[0::2], casting="unsafe")
    np.add(offsets[0::2], np.maximum(sizes, 0), out=offsets[1::2], casting="unsafe")
    laid = pa.Array.from_buffers(
        kind, 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data[first : first + int(offsets[-1])])]
    )
    missing = sizes < 0
    return laid.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=missing if missing.any() else None))


def _starts(ends: Rows) -> pa.Array:
    """Arrow's list offsets, from the place after each row's last element."""
    return pa.array(np.concatenate((np.zeros(1, dtype=np.int32), ends)))


def _tags(run: RecordRun, found: _Properties, kind: pa.DataType) -> pa.Array:
    return _stretches(run.data, found.spans[TAGS_AT], found.spans[TAGS_SIZE], kind)


def _unique_key(run: RecordRun, found: _Properties, kind: pa.DataType) -> pa.Array:
    return _stretches(run.data, found.spans[UNIQUE_KEY_AT], found.spans[UNIQUE_KEY_SIZE], kind)


def _tags_code(run: RecordRun, found: _Properties, kind: pa.DataType) -> pa.Array:
    codes = found.spans[TAGS_HASH].astype(np.int64)
    scheduled = [number for number, topic in enumerate(run.topics) if topic == SCHEDULE_TOPIC.encode()]
    by_hand = set(found.foreign)
    if scheduled:
        by_hand.update(np.flatnonzero(run.rows_32[TOPIC] == scheduled[0]).tolist())
    for row in by_hand.difference(found.odd):
        codes[row] = _plainly(run, row)["tagsCode"]
    return _fixed(codes, kind)


def _map(run: RecordRun, found: _Properties, kind: pa.DataType) -> pa.Array:
    return pa.MapArray.from_arrays(_starts(found.property_ends), found.names, found.values, type=kind)


def _priorities(run: RecordRun, found: _Properties, kind: pa.DataType) -> pa.Array:
    texts = pc.map_lookup(_map(run, found, pa.map_(pa.string(), pa.string())), PRIORITY, "last").dictionary_encode()
    values = [priority_of({PRIORITY: text}) for text in texts.dictionary.to_pylist()]
    return pa.array(values, kind).take(texts.indices)


def _lite_topics(run: RecordRun, found: _Properties, kind: pa.DataType) -> pa.Array:
    return pc.map_lookup(_map(run, found, pa.map_(pa.string(), pa.string())), LITE_TOPIC, "last").cast(kind)


def _key_lists(run: RecordRun, found: _Properties, kind: pa.DataType) -> pa.Array:
    used = found.keys[:, : int(found.key_ends[-1]) if len(run) else 0]
    keys = _stretches(run.data, used[KEY_AT], used[KEY_SIZE], pa.string())
    missing = found.spans[KEYS_SIZE] < 0
    return pa.ListArray.from_arrays(_starts(found.key_ends), keys, type=kind, mask=pa.array(missing))


_PROPERTY_COLUMNS: dict[str, Callable[[RecordRun, _Properties, pa.DataType], pa.Array]] = {
    "tags": _tags,
    "tagsCode": _tags_code,
    "keys": _key_lists,
    "uniqKey": _unique_key,
    "properties": _map,
    "priority": _priorities,
    "lite_topic": _lite_topics,
}


def replaced(column: pa.Array, places: Sequence[int], values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The column with `values` at `places`."""
    if not places:
        return column
    order = np.arange(len(column), dtype=np.int32)
    order[list(places)] = np.arange(len(column), len(column) + len(places), dtype=np.int32)
    return pa.concat_arrays([column, pa.array(values, kind)]).take(pa.array(order))


def _plainly(run: RecordRun, row: int) -> dict[str, Any]:
    """The columns made from properties for one record, decoded by the plain codec."""
    size = int(run.rows_32[PROPERTIES_SIZE, row])
    end = int(run.rows_64[AT, row]) + int(run.rows_32[SIZE, row])
    properties = parse_properties(run.data[end - size : end].tobytes())
    topic = decode_java_utf8(run.topics[int(run.rows_32[TOPIC, row])])
    keys = properties.get(KEYS)
    return {
        "tags": properties.get(TAGS),
        "tagsCode": tags_code(topic, properties, int(run.rows_64[STORE_TIME, row])),
        "keys": None if keys is None else list(split_keys(keys)),
        "uniqKey": properties.get(UNIQ_KEY),
        "properties": list(properties.items()),
        "priority": priority_of(properties),
        "lite_topic": properties.get(LITE_TOPIC),
    }
