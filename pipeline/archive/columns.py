"""The columns of an archive besides the record bytes: the native schema (`pipeline/scan/schema.py`) without the body.

Numbers are read from the log for all records at once; texts and properties record by record.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from store.derive.dispatch_columns import DispatchColumns
from store.format.host import decode_host
from store.format.properties import KEYS, TAGS, UNIQ_KEY, parse_properties, split_keys
from store.format.record_layout import MAGIC_V1, STORE_TIMES_AT
from store.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_STRINGS = pa.list_(pa.field("element", pa.string(), nullable=False))
_STRING_MAP = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))
# The greatest time whose microseconds fit into 64 bits.
_TIME_MILLIS_MAX = ((1 << 63) - 1) // 1000

ARCHIVE_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queueId", pa.int32(), nullable=False),
        pa.field("queueOffset", pa.int64(), nullable=False),
        pa.field("physicalOffset", pa.int64(), nullable=False),
        pa.field("storeSize", pa.int32(), nullable=False),
        pa.field("flag", pa.int32(), nullable=False),
        pa.field("sysFlag", pa.int32(), nullable=False),
        pa.field("bornTimestamp", _TIMESTAMP, nullable=False),
        pa.field("bornHost", pa.string(), nullable=False),
        pa.field("storeTimestamp", _TIMESTAMP, nullable=False),
        pa.field("storeHost", pa.string(), nullable=False),
        pa.field("reconsumeTimes", pa.int32(), nullable=False),
        pa.field("preparedTransactionOffset", pa.int64(), nullable=False),
        pa.field("bodyCRC", pa.int32(), nullable=False),
        pa.field("tags", pa.string()),
        pa.field("tagsCode", pa.int64(), nullable=False),
        pa.field("keys", _STRINGS),
        pa.field("uniqKey", pa.string()),
        pa.field("properties", _STRING_MAP, nullable=False),
    ]
)


def archive_table(
    log_file: memoryview,
    columns: DispatchColumns,
    positions: npt.NDArray[np.int64],
    tail_positions: npt.NDArray[np.int64],
) -> pa.Table:
    """The columns of all records, in log order.

    Args:
        log_file: the bytes of the log file.
        columns: its records.
        positions: where each record starts in the file (bytes).
        tail_positions: where the body of each record ends in the file (bytes).
    """
    data = np.frombuffer(log_file, dtype=np.uint8)
    variants = (columns.sys_flags >> 4) & 3
    store_time_at = positions + np.array(STORE_TIMES_AT, dtype=np.int64)[variants]
    behind_hosts = store_time_at + 8 + np.where(columns.sys_flags & STORE_HOST_V6, 20, 8)
    topics = pa.array([topic.encode("utf-8", "replace").decode() for topic in columns.topics], pa.string())
    ends = positions + columns.record_sizes_bytes
    arrays: dict[str, Any] = {
        "topic": topics.take(pa.array(columns.topic_numbers)) if len(columns) else pa.array([], pa.string()),
        "queueId": columns.queue_ids,
        "queueOffset": columns.queue_offsets,
        "physicalOffset": columns.commit_log_offsets,
        "storeSize": columns.record_sizes_bytes,
        "flag": load(data, positions + 16, ">i4"),
        "sysFlag": columns.sys_flags,
        "bornTimestamp": _micros(load(data, positions + 40, ">i8")),
        "bornHost": _hosts(data, positions + 48, (columns.sys_flags & BORN_HOST_V6) != 0),
        "storeTimestamp": _micros(columns.store_times_millis),
        "storeHost": _hosts(data, store_time_at + 8, (columns.sys_flags & STORE_HOST_V6) != 0),
        "reconsumeTimes": load(data, behind_hosts, ">i4"),
        "preparedTransactionOffset": load(data, behind_hosts + 4, ">i8"),
        "bodyCRC": load(data, positions + 8, ">i4"),
        "tagsCode": columns.tags_codes,
        **_properties(log_file, data, tail_positions, ends, load(data, positions + 4, ">i4")),
    }
    return pa.Table.from_arrays(
        [_array(arrays[field.name], field.type) for field in ARCHIVE_SCHEMA], schema=ARCHIVE_SCHEMA
    )


def load(data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], dtype: str) -> npt.NDArray[Any]:
    """The big-endian numbers at the given positions.

    Args:
        data: the bytes; every number must lie inside.
        positions: where each number starts (bytes).
        dtype: the type of the numbers, such as ">i4".
    """
    size = np.dtype(dtype).itemsize
    picked = np.ascontiguousarray(data[positions[:, None] + np.arange(size)])
    numbers: npt.NDArray[Any] = picked.view(dtype)[:, 0]
    return numbers.astype(np.dtype(dtype).newbyteorder("="))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    return pa.array(values, kind)


def _micros(times_millis: npt.NDArray[np.int64]) -> pa.Array:
    micros = np.clip(times_millis, -_TIME_MILLIS_MAX, _TIME_MILLIS_MAX) * 1000
    return pa.array(micros).cast(_TIMESTAMP)


def _hosts(data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], is_v6: npt.NDArray[np.bool_]) -> pa.Array:
    """The addresses at the positions, as `ip:port`. Equal ones are decoded once, because a log has few different ones."""
    if not is_v6.any():
        packed = np.ascontiguousarray(data[positions[:, None] + np.arange(8)]).view(">u8")[:, 0]
        kinds, numbers = np.unique(packed, return_inverse=True)
        packed_kinds = kinds.astype(">u8").tobytes()
        texts = [str(decode_host(packed_kinds[at : at + 8])) for at in range(0, len(packed_kinds), 8)]
        return pa.array(texts, pa.string()).take(pa.array(numbers))
    sizes = np.where(is_v6, 20, 8).tolist()
    hosts = [
        str(decode_host(data[at : at + size].tobytes())) for at, size in zip(positions.tolist(), sizes, strict=True)
    ]
    return pa.array(hosts, pa.string())


def _properties(
    log_file: memoryview,
    data: npt.NDArray[np.uint8],
    tail_positions: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    magics: npt.NDArray[np.int32],
) -> dict[str, pa.Array]:
    """Columns `tags`, `keys`, `uniqKey` and `properties`."""
    is_v1 = magics == MAGIC_V1
    topic_sizes = np.where(is_v1, data[tail_positions], load(data, tail_positions, ">i2"))
    begins = tail_positions + np.where(is_v1, 1, 2) + topic_sizes + 2
    tags: list[str | None] = []
    keys: list[tuple[str, ...] | None] = []
    unique_keys: list[str | None] = []
    names: list[str] = []
    values: list[str] = []
    offsets = [0]
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        properties = parse_properties(log_file[begin:end])
        tags.append(properties.get(TAGS))
        text = properties.get(KEYS)
        keys.append(None if text is None else split_keys(text))
        unique_keys.append(properties.get(UNIQ_KEY))
        names.extend(properties)
        values.extend(properties.values())
        offsets.append(len(names))
    return {
        "tags": pa.array(tags, pa.string()),
        "keys": pa.array(keys, _STRINGS),
        "uniqKey": pa.array(unique_keys, pa.string()),
        "properties": pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string()), type=_STRING_MAP
        ),
    }
