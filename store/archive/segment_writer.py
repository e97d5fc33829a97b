"""Writes the files of a segment from the records of one log file, except the manifest.

Every file is written under a temporary name, flushed and renamed. A killed run leaves names that begin with a dot, or files
that no manifest names. The same log file results in the same bytes, with the same version of pyarrow.
"""

import hashlib
import os
import secrets
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from store.archive import layout
from store.archive.manifest import ArchivedFile, Segment, damaged
from store.archive.parquet_files import row_group_ends, write_parquet
from store.archive.segment_index import QueueRun, encode_segment_index
from store.derive.queue_placement import NO_UNIT_BITS
from store.errors import DiskFullError
from store.files.file_system import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa

# A blank is 8 bytes; a longer tail gets a file of its own.
TAIL_INLINE_BYTES_MAX = 64
_HASHED_BYTES = 8 << 20
_DAY_MILLIS = 86_400_000
_QUEUE_COLUMNS = ("queueId", "queueOffset")


@dataclass(frozen=True, slots=True)
class SegmentRecords:
    """The records of a log file in log order; all arrays have one length, except the two of the keys.

    Attributes:
        topics: each topic once.
        topic_numbers: indices in `topics`.
        queue_ids: as stored.
        queue_offsets: in messages.
        positions: where each record starts in the file, in bytes; without gaps, from 0 on.
        body_positions: where each body starts in the file.
        body_sizes_bytes: size of each body.
        store_times_millis: since 1970 UTC.
        sys_flags: see `store/format/sys_flag.py`.
        key_records: for each key the index of its record.
        key_hashes: see `store/format/derived/index_layout.key_hash`.
        end_position: the byte behind the last record.
        table: the archive's columns besides the records' bytes; one row for each record.
    """

    topics: tuple[str, ...]
    topic_numbers: npt.NDArray[np.int32]
    queue_ids: npt.NDArray[np.int32]
    queue_offsets: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    body_positions: npt.NDArray[np.int64]
    body_sizes_bytes: npt.NDArray[np.int64]
    store_times_millis: npt.NDArray[np.int64]
    sys_flags: npt.NDArray[np.int32]
    key_records: npt.NDArray[np.int32]
    key_hashes: npt.NDArray[np.int32]
    end_position: int
    table: "pa.Table"

    def __len__(self) -> int:
        return len(self.positions)


def write_segment(
    fs: FileSystem,
    root: Path,
    broker_name: str,
    first_offset: int,
    log_file: memoryview,
    records: SegmentRecords,
    *,
    is_sealed: bool,
    read_size_bytes: int,
) -> Segment:
    """Writes Parquet files, index and tail of a log file; returns the segment, to be published by the caller.

    Args:
        fs: the disk port.
        root: the archive.
        broker_name: the shard.
        first_offset: the log file's first commit-log offset, in bytes.
        log_file: its bytes.
        records: its records.
        is_sealed: nothing will be appended to it any more.
        read_size_bytes: what lies behind so many bytes of the file counts as zeros; it may change while this runs.
    """
    end_offset = first_offset + records.end_position
    writer = _Writer(fs, root)
    files: list[ArchivedFile] = []
    runs: list[QueueRun] = []
    rows = np.empty(len(records), dtype=np.uint32)
    row_count = 0
    frames = _frame_parts(log_file, records)
    for topic, date, unsorted in _partitions(records):
        path = layout.messages_path(broker_name, first_offset, end_offset, topic, date)
        places, queued_count = _sorted_by_queue(records, unsorted)
        size_bytes = writer.parquet(path, records, frames, places, is_sorted=queued_count == len(places))
        rows[places] = np.arange(row_count, row_count + len(places), dtype=np.uint32)
        runs.extend(_queue_runs(records, places[:queued_count], len(files), row_count))
        is_shortened, crc32 = layout.is_shortened(topic), file_crc32(fs, root / path)
        files.append(ArchivedFile(path, topic, date, len(places), size_bytes, is_shortened, crc32))
        row_count += len(places)
    keys_path = layout.keys_path(broker_name, first_offset, end_offset)
    index = encode_segment_index(
        records.positions.astype(np.uint32),
        rows,
        records.key_hashes.astype(np.uint32),
        records.key_records.astype(np.uint32),
        runs,
    )
    writer.data(keys_path, index)
    read = log_file[:read_size_bytes]
    tail = _tail(read, records.end_position)
    tail_path = ""
    if len(tail) > TAIL_INLINE_BYTES_MAX:
        tail_path = layout.tail_path(broker_name, first_offset, end_offset)
        writer.data(tail_path, _compressed(tail))
    writer.flush_directories()
    times = records.store_times_millis
    return Segment(
        broker_name=broker_name,
        first_offset=first_offset,
        records_end_offset=end_offset,
        file_end_offset=first_offset + len(log_file),
        is_sealed=is_sealed,
        record_count=len(records),
        begin_time_millis=int(times.min()) if len(times) else 0,
        end_time_millis=int(times.max()) if len(times) else 0,
        log_sha256=log_digest(read, len(log_file)),
        tail="" if tail_path else tail.hex(),
        tail_path=tail_path,
        tail_size_bytes=len(tail),
        keys_path=keys_path,
        keys_size_bytes=len(index),
        files=tuple(files),
    )


def log_digest(log_file: memoryview, size_bytes: int = 0) -> str:
    """SHA-256 of a log file of at least `size_bytes`, with zeros behind the given bytes."""
    digest = hashlib.sha256()
    for at in range(0, len(log_file), _HASHED_BYTES):
        digest.update(log_file[at : at + _HASHED_BYTES])
    for at in range(len(log_file), size_bytes, _HASHED_BYTES):
        digest.update(bytes(min(_HASHED_BYTES, size_bytes - at)))
    return digest.hexdigest()


def file_crc32(fs: FileSystem, path: Path) -> int:
    """CRC-32 of a whole file."""
    crc32, at = 0, 0
    fd = fs.open(path, os.O_RDONLY)
    try:
        while data := fs.pread(fd, _HASHED_BYTES, at):
            crc32 = zlib.crc32(data, crc32)
            at += len(data)
    finally:
        fs.close(fd)
    return crc32


def read_tail(fs: FileSystem, root: Path, segment: Segment) -> bytes:
    """The bytes behind the last record up to the last one that is not zero; StoreCorruptedError when they are lost."""
    if not segment.tail_path:
        return bytes.fromhex(segment.tail)
    import pyarrow as pa

    path = root / segment.tail_path
    try:
        fd = fs.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise damaged(path, 0, "it is missing") from error
    try:
        data = fs.pread(fd, fs.stat_size(path), 0)
    finally:
        fs.close(fd)
    try:
        tail: bytes = pa.decompress(data, segment.tail_size_bytes, codec="zstd", asbytes=True)
    except (OSError, ValueError) as error:
        raise damaged(path, 0, f"it cannot be read ({error})") from error
    return tail


class _Writer:
    """Writes files of an archive under temporary names, flushes and renames them."""

    def __init__(self, fs: FileSystem, root: Path) -> None:
        self._fs = fs
        self._root = root
        self._directories: set[Path] = set()

    def data(self, path: str, data: bytes) -> int:
        """Writes a file of these bytes; returns its size."""

        def write(temporary: Path) -> None:
            fd = self._fs.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                self._fs.pwrite(fd, data, 0)
            finally:
                self._fs.close(fd)

        return self._place(path, write)

    def parquet(
        self,
        path: str,
        records: SegmentRecords,
        frames: "pa.Array",
        places: npt.NDArray[np.int64],
        *,
        is_sorted: bool,
    ) -> int:
        """Writes the Parquet file of the records at these places; returns its size in bytes."""
        import pyarrow as pa

        fields = [
            *records.table.schema,
            *(pa.field(name, pa.binary(), nullable=False) for name in ("head", "body", "tail")),
        ]
        schema = pa.schema(fields)
        sizes = np.diff(records.positions, append=records.end_position)[places]
        ends = row_group_ends(sizes)
        counts = np.diff(ends, prepend=0)

        def row_groups() -> Iterator["pa.Table"]:
            begin = 0
            for end in ends:
                some = places[begin:end]
                columns = records.table.take(pa.array(some)).columns
                parts = [frames.take(pa.array(3 * some + part)) for part in range(3)]
                yield pa.Table.from_arrays([*columns, *parts], schema=schema)
                begin = end

        def write(temporary: Path) -> None:
            write_parquet(temporary, schema, row_groups(), ndv=int(counts.max()), is_sorted=is_sorted)

        return self._place(path, write)

    def flush_directories(self) -> None:
        """Flushes the directories, so that the names of all files are on the disk."""
        for directory in sorted(self._directories):
            self._fs.fsync_dir(directory)

    def _place(self, path: str, write: Callable[[Path], None]) -> int:
        target = self._root / path
        self._fs.mkdirs(target.parent)
        temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")  # two runs for one segment never share a file
        try:
            try:
                write(temporary)
            except OSError as error:
                if "No space left" in str(error):  # pyarrow's error has the text, not the number
                    raise DiskFullError(f"no space left for {target}: free some and try again", file=target) from error
                raise
            fd = self._fs.open(temporary, os.O_RDWR)
            try:
                self._fs.fdatasync(fd)
            finally:
                self._fs.close(fd)
            size_bytes = self._fs.stat_size(temporary)
            self._fs.rename(temporary, target)
        except BaseException:
            if self._fs.exists(temporary):
                self._fs.unlink(temporary)
            raise
        self._directories.add(target.parent)
        return size_bytes


def _frame_parts(log_file: memoryview, records: SegmentRecords) -> "pa.Array":
    """Head, body and tail of each record in order, without a copy."""
    import pyarrow as pa

    offsets = np.empty(3 * len(records) + 1, dtype=np.int64)
    offsets[0:-1:3] = records.positions
    offsets[1::3] = records.body_positions
    offsets[2::3] = records.body_positions + records.body_sizes_bytes
    offsets[-1] = records.end_position
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(log_file)]
    return pa.Array.from_buffers(pa.binary(), 3 * len(records), buffers)


def _partitions(records: SegmentRecords) -> Iterator[tuple[str, str, npt.NDArray[np.int64]]]:
    """Topic, date and the indices of their records in log order; sorted by topic and date."""
    if not len(records):
        return
    days = records.store_times_millis // _DAY_MILLIS
    order = np.lexsort((days, records.topic_numbers))
    topics, days = records.topic_numbers[order], days[order]
    begins = np.flatnonzero(np.append(True, (topics[1:] != topics[:-1]) | (days[1:] != days[:-1])))
    # Days outside the years 1 to 9999 share the nearest date, and so one file.
    parts: dict[tuple[str, str], list[npt.NDArray[np.int64]]] = {}
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(order)], strict=True):
        key = (records.topics[int(topics[begin])], layout.date_of(int(days[begin]) * _DAY_MILLIS))
        parts.setdefault(key, []).append(order[begin:end])
    for (topic, date), places in sorted(parts.items()):
        yield topic, date, np.sort(np.concatenate(places))


def _sorted_by_queue(records: SegmentRecords, places: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """The places by queue, queue offset and log order, records without a queue last; and how many come before these."""
    is_outside = records.sys_flags[places] & NO_UNIT_BITS != 0
    order = np.lexsort((places, records.queue_offsets[places], records.queue_ids[places], is_outside))
    return places[order], int(len(places) - np.count_nonzero(is_outside))


def _queue_runs(
    records: SegmentRecords, places: npt.NDArray[np.int64], file_number: int, first_row: int
) -> Iterator[QueueRun]:
    if not len(places):
        return
    queue_ids, queue_offsets = records.queue_ids[places], records.queue_offsets[places]
    begins = np.flatnonzero(np.append(True, queue_ids[1:] != queue_ids[:-1]))
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(places)], strict=True):
        yield QueueRun(
            file_number,
            int(queue_ids[begin]),
            first_row + begin,
            end - begin,
            int(queue_offsets[begin]),
            int(queue_offsets[end - 1]),
        )


def _tail(log_file: memoryview, position: int) -> bytes:
    """The bytes from `position` up to the last one that is not zero."""
    end = len(log_file)
    while end > position:
        begin = max(position, end - _HASHED_BYTES)
        piece = bytes(log_file[begin:end]).rstrip(b"\0")
        if piece:
            return bytes(log_file[position : begin + len(piece)])
        end = begin
    return b""


def _compressed(data: bytes) -> bytes:
    import pyarrow as pa

    compressed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return compressed
