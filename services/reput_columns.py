"""DispatchColumns <-> ReputColumns. A message from the wire is checked for contradictions before it is used.

Not in `convert.py`, because it needs numpy, which a process loads only with its first record.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.convert import dispatch_from_proto, dispatch_to_proto
from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_keys import NO_TAGS
from store.derive.queue_placement import LightUnit
from store.errors import ServiceUnavailableError
from store.format.topic import TOPIC_NAME_SHOWN

RECORD_COLUMNS = {
    "topic_numbers": "<i4",
    "queue_ids": "<i4",
    "queue_offsets": "<i8",
    "commit_log_offsets": "<i8",
    "record_sizes_bytes": "<i4",
    "tags_codes": "<i8",
    "store_times_millis": "<i8",
    "sys_flags": "<i4",
    "tags_hashes": "<i4",
}
KEY_COLUMNS = {"key_records": "<i4", "key_hashes": "<i4"}
ALL_COLUMNS = RECORD_COLUMNS | KEY_COLUMNS
_DTYPES = {name: (np.dtype(dtype), np.dtype(dtype.replace("<", "="))) for name, dtype in ALL_COLUMNS.items()}


def columns_to_proto(columns: DispatchColumns) -> pb.ReputColumns:
    """A run of records for the wire."""
    message = pb.ReputColumns(topics=columns.topics)
    for name, (on_the_wire, _) in _DTYPES.items():
        setattr(message, name, getattr(columns, name).astype(on_the_wire, copy=False).tobytes())
    if columns.first is not None:
        message.first.CopyFrom(dispatch_to_proto(columns.first))
    if columns.last is not None:
        message.last.CopyFrom(dispatch_to_proto(columns.last))
    message.light_units.extend(pb.LightUnit(**unit._asdict()) for unit in columns.light_units)
    return message


def columns_from_proto(message: pb.ReputColumns) -> DispatchColumns:
    """A run of records from the wire.

    Raises:
        ServiceUnavailableError: the message contradicts itself, so its sender cannot be followed.
    """
    arrays = {}
    for name, (on_the_wire, here) in _DTYPES.items():
        data = getattr(message, name)
        if len(data) % on_the_wire.itemsize:
            raise _contradiction(f"{name} has {len(data)} bytes")
        arrays[name] = np.frombuffer(data, on_the_wire).astype(here, copy=False)
    if not message.tags_hashes:  # a version before does not send them
        arrays["tags_hashes"] = np.full(len(arrays["queue_ids"]), NO_TAGS, dtype=np.int32)
    return checked(
        DispatchColumns(
            topics=tuple(message.topics),
            **arrays,
            first=dispatch_from_proto(message.first) if message.HasField("first") else None,
            last=dispatch_from_proto(message.last) if message.HasField("last") else None,
            light_units=tuple(
                LightUnit(unit.queue, unit.queue_offset, unit.commit_log_offset, unit.record_size_bytes, unit.tags_code)
                for unit in message.light_units
            ),
        )
    )


def columns_from_requests(requests: Iterable[pb.DispatchRequest]) -> DispatchColumns:
    """A run of records from a server that sends no columns; raises like `columns_from_proto`."""
    return checked(DispatchColumns.of([dispatch_from_proto(request) for request in requests]))


def checked(columns: DispatchColumns) -> DispatchColumns:
    """The columns, when each index in them lies inside what it points into and the records stand in log order.

    Raises:
        ServiceUnavailableError: they do not.
    """
    count, key_count = len(columns.commit_log_offsets), len(columns.key_records)
    for name in RECORD_COLUMNS:
        if len(getattr(columns, name)) != count:
            raise _contradiction(f"{len(getattr(columns, name))} {name} for {count} records")
    if len(columns.key_hashes) != key_count:
        raise _contradiction(f"{len(columns.key_hashes)} key_hashes for {key_count} keys")
    if len(columns.topics) > 1 and len(set(columns.topics)) != len(columns.topics):
        raise _contradiction("a topic occurs twice")
    _check_range("topic_numbers", columns.topic_numbers, len(columns.topics))
    if np.count_nonzero(columns.tags_hashes < NO_TAGS):
        raise _contradiction("tags_hashes has a negative hash")
    _check_range("key_records", columns.key_records, count)
    _check_range("key_hashes", columns.key_hashes, 1 << 31)
    offsets = columns.commit_log_offsets
    if count and (int(offsets[0]) < 0 or np.count_nonzero(offsets[1:] <= offsets[:-1])):
        raise _contradiction("commit_log_offsets do not rise from 0 on")
    if np.count_nonzero(columns.key_records[1:] < columns.key_records[:-1]):
        raise _contradiction("key_records do not rise")
    if np.count_nonzero(columns.record_sizes_bytes <= 0):
        raise _contradiction("a record has no size")
    ends = [None if end is None else end.commit_log_offset for end in (columns.first, columns.last)]
    before = 0
    for unit in columns.light_units:  # few
        row = int(np.searchsorted(offsets, unit.commit_log_offset))
        if (
            unit.commit_log_offset < before
            or row == count
            or (int(offsets[row]), int(columns.record_sizes_bytes[row])) != unit[2:4]
        ):
            raise _contradiction(f"a unit of {unit.queue[:TOPIC_NAME_SHOWN]!r} has no record")
        if unit.queue_offset < 0:
            raise _contradiction(f"a unit of {unit.queue[:TOPIC_NAME_SHOWN]!r} has a negative position")
        before = unit.commit_log_offset
    if ends != ([int(offsets[0]), int(offsets[-1])] if count else [None, None]):
        raise _contradiction("the first and the last record are not those of the columns")
    return columns


def _check_range(name: str, values: npt.NDArray[np.int32], end: int) -> None:
    if np.count_nonzero(values.view(np.uint32) >= end):  # a negative one is larger than every end
        raise _contradiction(f"{name} reach outside 0 to {end - 1}")


def _contradiction(what: str) -> ServiceUnavailableError:
    return ServiceUnavailableError(f"commitlog sent a batch that contradicts itself: {what}", service="commitlog")
