"""Archives one log file: walks it, checks it, and makes the columns from which a segment is written.

It does not need Spark: `archive.py` calls it in a Spark task for each log file, tests call it directly.

The columns of an archive besides the record bytes: the native schema (`pipeline/scan/schema.py`) without the body.

Numbers are read from the log for all records at once; texts and properties record by record.
"""

import mmap
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.object_files import ObjectFileSystem
from store.archive.manifest import Segment
from store.archive.segment_writer import SegmentRecords, write_segment
from store.compiled import loading
from store.derive.dispatch_columns import DispatchColumns
from store.derive.dispatch_walk import KERNEL as DISPATCH_KERNEL
from store.derive.dispatch_walk import walk_columns
from store.errors import RecordCorruptedError, StoreCorruptedError
from store.files.file_system import FileSystem
from store.format.host import decode_host
from store.format.paths import commit_log_dir, log_file_name
from store.format.properties import KEYS, TAGS, UNIQ_KEY, parse_properties, split_keys
from store.format.record import BLANK_SIZE_BYTES, decode_header, decode_record
from store.format.record_layout import HEADS, MAGIC_V1, STORE_TIMES_AT
from store.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from store.walk.checks import FullCheck
from store.walk.record_runs import KERNEL as WALK_KERNEL
from store.walk.record_runs import RunCheck

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


RECORD_COUNT_MAX = (1 << 31) - 1
# More would make the report too long to read.
DAMAGED_RECORD_COUNT_MAX = 100
COPY_BYTES = 4 << 20  # of an object, at a time


@dataclass(slots=True)
class LogFileInArchive:
    """The outcome for one log file.

    Attributes:
        first_offset: its first commit-log offset, in bytes.
        segment: the segment to publish; None if the file is not archived (yet).
        why_not: why the file is not archived; empty otherwise.
        is_damaged: whether damage is the reason.
        record_count: count of records in the file.
        log_size_bytes: size of the log file.
        archive_size_bytes: size of the segment's files.
        damaged_offsets: commit-log offsets of records that were damaged before (bytes); they are archived unchanged.
    """

    first_offset: int
    segment: Segment | None = None
    why_not: str = ""
    is_damaged: bool = False
    record_count: int = 0
    log_size_bytes: int = 0
    archive_size_bytes: int = 0
    damaged_offsets: list[int] = field(default_factory=list)


class NotSealedError(Exception):
    """The log file still grows, or has no record yet."""


def log_path(store: Path, first_offset: int) -> Path:
    """The path of the log file that begins at this offset."""
    return Path(commit_log_dir(str(store))) / log_file_name(first_offset)


def archive_log_file(
    fs: FileSystem,
    store: Path,
    archive: Path,
    broker_name: str,
    first_offset: int,
    *,
    log_end_offset: int,
    include_active: bool = False,
    is_dry_run: bool = False,
    store_fs: FileSystem | None = None,
) -> LogFileInArchive:
    """Writes the segment of a log file, except its manifest.

    Args:
        fs: the port to the archive's disk.
        store: the store root.
        archive: the archive.
        broker_name: the shard.
        first_offset: first commit-log offset of the log file (bytes).
        log_end_offset: of `ReadableLog` (commit-log offset).
        include_active: also archive a file that still grows, up to its last whole record.
        is_dry_run: check the file, write nothing.
        store_fs: the port to the store's disk; None for the same as the archive's.

    Raises:
        StoreError, OSError: writing to the archive failed.
    """
    path = log_path(store, first_offset)
    outcome = LogFileInArchive(first_offset)
    try:
        log_file = map_log_file(store_fs or fs, path)
    except FileNotFoundError:
        outcome.why_not = f"{path} does not exist any more: retention removed it before it was archived"
        outcome.is_damaged = True
        return outcome
    if not len(log_file):
        outcome.why_not = f"{path} is empty"
        return outcome
    try:
        records, is_sealed = read_log_file(log_file, first_offset, path, log_end_offset)
        if not is_sealed and not include_active:
            raise NotSealedError(f"{path} is still written to")
        if not is_sealed and not len(records):
            raise NotSealedError(f"{path} has no record yet")
    except NotSealedError as reason:
        outcome.why_not = str(reason)
        return outcome
    except StoreCorruptedError as error:
        outcome.why_not = error.message
        outcome.is_damaged = True
        return outcome
    outcome.damaged_offsets = damaged_records(log_file[: records.end_position], first_offset)
    outcome.record_count, outcome.log_size_bytes = len(records), len(log_file)
    if not is_dry_run:
        segment = write_segment(
            fs, archive, broker_name, first_offset, log_file, records, is_sealed=is_sealed,
            read_size_bytes=log_end_offset - first_offset,
        )  # fmt: skip
        outcome.segment = segment
        outcome.archive_size_bytes = sum(os.path.getsize(archive / path) for path in segment.paths())
    return outcome


def map_file(path: Path) -> memoryview:
    """A file's bytes as a memory map; they stay readable after the file is removed."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def map_log_file(fs: FileSystem, path: Path) -> memoryview:
    """As `map_file`; an object is first copied to an unnamed file of this machine, in Spark's spill directory in a task."""
    if not isinstance(fs, ObjectFileSystem):
        return map_file(path)
    size_bytes = fs.stat_size(path)
    local = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    handle = fs.open(path, os.O_RDONLY)
    try:
        fs.will_read(handle, 0, size_bytes)
        with tempfile.TemporaryFile(prefix="reput-log-", dir=local if os.path.isdir(local) else None) as copy:
            for at in range(0, size_bytes, COPY_BYTES):
                copy.write(fs.pread(handle, COPY_BYTES, at))
            copy.flush()
            if not copy.tell():
                return memoryview(b"")
            return memoryview(mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ))
    finally:
        fs.close(handle)


def read_log_file(
    log_file: memoryview, first_offset: int, path: Path, log_end_offset: int
) -> tuple[SegmentRecords, bool]:
    """The records of a log file, and whether the file is sealed (never appended to again).

    Args:
        log_file: its bytes.
        first_offset: its first commit-log offset, in bytes.
        path: its name, for errors.
        log_end_offset: of `ReadableLog` (commit-log offset).

    Raises:
        StoreCorruptedError: the records end before the file's end, without a blank and not at the log's end.
    """
    columns, end, is_sealed = walk_log_file(log_file, first_offset, path, log_end_offset)
    positions = columns.commit_log_offsets - first_offset
    data = np.frombuffer(log_file, dtype=np.uint8)
    body_positions, body_sizes = _bodies(data, positions, columns.sys_flags)
    records = SegmentRecords(
        topics=columns.topics,
        topic_numbers=columns.topic_numbers,
        queue_ids=columns.queue_ids,
        queue_offsets=columns.queue_offsets,
        positions=positions,
        body_positions=body_positions,
        body_sizes_bytes=body_sizes,
        store_times_millis=columns.store_times_millis,
        sys_flags=columns.sys_flags,
        key_records=columns.key_records,
        key_hashes=columns.key_hashes,
        end_position=end,
        table=archive_table(log_file, columns, positions, body_positions + body_sizes),
    )
    return records, is_sealed


def walk_log_file(
    log_file: memoryview, first_offset: int, path: Path, log_end_offset: int
) -> tuple[DispatchColumns, int, bool]:
    """The records of a log file as columns, the position at which they end (bytes), and whether the file is sealed.

    A file is sealed if its records, or its blank, go to its end, and all of it may be read. Arguments are those of
    `read_log_file`.

    Raises:
        StoreCorruptedError: as `read_log_file`.
    """
    loading.load(DISPATCH_KERNEL)
    readable = log_file[: max(log_end_offset - first_offset, 0)]
    walked = walk_columns(readable, 0, first_offset, RECORD_COUNT_MAX)
    end = walked.next_offset - first_offset
    is_whole = len(readable) == len(log_file)
    is_sealed = is_whole and (end == len(log_file) or is_blank_to_the_end(log_file, end))
    is_last = first_offset + len(log_file) >= log_end_offset
    if not is_sealed and (not is_last or _goes_on(readable, end, first_offset)):
        raise StoreCorruptedError(
            f"{path} has no valid record at byte {end} (commit-log offset {walked.next_offset}), and the log continues "
            f"after it: {walked.why.message if walked.why else 'zeros.'} Run `reput fsck` on the store",
            file=path,
            offset=end,
            commitLogOffset=walked.next_offset,
        )
    return walked.columns, end, is_sealed


def is_blank_to_the_end(log_file: memoryview, at: int) -> bool:
    """Whether the blank that closes a log file starts at this position (bytes)."""
    if len(log_file) - at < BLANK_SIZE_BYTES:
        return False
    try:
        header = decode_header(log_file, at)
    except RecordCorruptedError:
        return False
    return header.is_blank and at + header.size_bytes == len(log_file)


def damaged_records(log: memoryview, first_offset: int) -> list[int]:
    """Commit-log offsets of walked records whose body CRC or `__CRC32#` does not match (bytes)."""
    loading.load(WALK_KERNEL)
    check = RunCheck(FullCheck(None))
    damaged: list[int] = []
    at = 0
    while at < len(log):
        try:
            _, at = check.take(log, at, first_offset + at)
        except RecordCorruptedError:
            if len(damaged) < DAMAGED_RECORD_COUNT_MAX:
                damaged.append(first_offset + at)
            at += decode_header(log, at).size_bytes
    return damaged


_HEAD_SIZES = np.array([head.size for head in HEADS], dtype=np.int64)


def _bodies(
    data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], sys_flags: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Position and size of each body, in bytes."""
    begins = positions + _HEAD_SIZES[(sys_flags >> 4) & 3]
    return begins, load(data, begins - 4, ">i4").astype(np.int64)


def _goes_on(log_file: memoryview, end: int, first_offset: int) -> bool:
    """Whether a valid record that states its own offset follows after `end`: then `end` is damage, not the log's end."""
    magic_prefix = b"\xda\xa3\x20"
    data = log_file.obj if isinstance(log_file.obj, mmap.mmap) else bytes(log_file)
    at = data.find(magic_prefix, end + 1, len(log_file))
    while at >= 0:
        try:
            decode_record(log_file, at=at - 4, commit_log_offset=first_offset + at - 4)
        except RecordCorruptedError:
            at = data.find(magic_prefix, at + 1, len(log_file))
        else:
            return True
    return False
