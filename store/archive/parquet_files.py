"""Writes the Parquet files of an archive, and reads single records from them.

    topic | queueId | queueOffset | ... every column of the pipeline's native schema but the body | head | body | tail
                                                                                                    -------------------
                                                                                                    the record, in 3 parts

`head + body + tail` are the bytes of the record as it was in the log; `body` is the column that an engine shows. Rows are
sorted by queue and queue offset. Row groups are small (4 MiB of records), because a lookup reads one. Each has statistics for
every column where they help, and a Bloom filter over the unique keys. Every page has a CRC, which readers here check.

pyarrow is imported where it is needed: a service without an archive does not load it.
"""

import io
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from store.archive.manifest import damaged, unreadable
from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.open_files import open_file_count_max

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_BYTES = 4 << 20
# Limits row groups of very small records: a lookup has to pass over their rows.
ROW_GROUP_ROW_COUNT_MAX = 32_768
COMPRESSION, COMPRESSION_LEVEL = "zstd", 3
BLOOM_COLUMN = "uniqKey"
BLOOM_FALSE_RATE = 0.01
FRAME_COLUMNS = ("head", "body", "tail")
PLACE_COLUMNS = ("queueOffset", "physicalOffset", "storeSize")
TIME_COLUMN = "storeTimestamp"
# Columns whose values repeat.
DICTIONARY_COLUMNS = (
    "topic", "queueId", "flag", "sysFlag", "bornHost", "storeHost", "reconsumeTimes", "preparedTransactionOffset", "tags",
    "tagsCode",
)  # fmt: skip
# The least and greatest of keys and properties do not help; those of record parts would be as large as records.
WITHOUT_STATISTICS = frozenset(("head", "body", "tail", "properties", "keys"))
OPEN_FILE_COUNT_MAX = 64
# Decoded row groups that are kept: the messages of one page often come from the same few.
KEPT_BYTES_MAX = 64 << 20
_INT64 = np.iinfo(np.int64)


def row_group_ends(sizes_bytes: npt.NDArray[np.int64]) -> list[int]:
    """The ends of the row groups (rows), for records of these sizes."""
    ends: list[int] = []
    begin = 0
    totals = np.cumsum(sizes_bytes)
    while begin < len(sizes_bytes):
        before = int(totals[begin - 1]) if begin else 0
        end = int(np.searchsorted(totals, before + ROW_GROUP_BYTES, side="right"))
        begin = min(max(end, begin + 1), begin + ROW_GROUP_ROW_COUNT_MAX)
        ends.append(begin)
    return ends


def write_parquet(
    path: Path, schema: "pa.Schema", row_groups: Iterable["pa.Table"], *, ndv: int, is_sorted: bool
) -> None:
    """Writes a Parquet file; the caller renames and flushes it.

    Args:
        path: the file to write.
        schema: of every row group.
        row_groups: tables; each becomes a row group.
        ndv: most distinct unique keys in a row group.
        is_sorted: whether all rows are sorted by queue and queue offset.
    """
    import pyarrow.parquet as pq

    names = schema.names
    order = [pq.SortingColumn(names.index("queueId")), pq.SortingColumn(names.index("queueOffset"))]
    with pq.ParquetWriter(
        path,
        schema,
        version="2.6",
        compression=COMPRESSION,
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=[name for name in DICTIONARY_COLUMNS if name in names],
        write_statistics=[name for name in names if name not in WITHOUT_STATISTICS],
        write_page_checksum=True,
        sorting_columns=order if is_sorted else None,
        bloom_filter_options={BLOOM_COLUMN: {"ndv": max(ndv, 1), "fpp": BLOOM_FALSE_RATE}},
    ) as writer:
        for table in row_groups:
            writer.write_table(table, row_group_size=max(len(table), 1))


class _File(io.RawIOBase):
    """A file of the archive, which pyarrow reads through the disk port."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self._fd = fs.open(path, os.O_RDONLY)
        self._size = fs.stat_size(path)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def size(self) -> int:
        """Size in bytes."""
        return self._size

    def read(self, size: int | None = -1) -> bytes:
        count = self._size - self._at if size is None or size < 0 else size
        data = self._fs.pread(self._fd, count, self._at)
        self._at += len(data)
        return data

    def close(self) -> None:
        if not self.closed:
            self._fs.close(self._fd)
        super().close()


class _OpenParquet:
    """One Parquet file with its footer read."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        import pyarrow.parquet as pq

        self.path = path
        self.lock = Lock()  # a ParquetFile is for one thread at a time
        source = _File(fs, path)
        try:
            self.file = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False)
        except BaseException:
            source.close()  # the error refers to it: a caller that keeps the error would keep the descriptor open
            raise
        metadata = self.file.metadata
        counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        self.ends: npt.NDArray[np.int64] = np.cumsum(np.array(counts, dtype=np.int64))

    def read(self, row_group: int, columns: Sequence[str]) -> "pa.Table":
        with self.lock:
            table = self.file.read_row_group(row_group, columns=list(columns), use_threads=False)
        if missing := set(columns).difference(table.column_names):  # pyarrow silently omits these
            raise damaged(self.path, 0, f"it has no column {', '.join(sorted(missing))}")
        return table

    def bounds(self, row_group: int, column: str) -> tuple[int, int] | None:
        """The least and the greatest value of a column in a row group; None without statistics."""
        metadata = self.file.metadata.row_group(row_group)
        number = self.file.schema_arrow.names.index(column)
        for at in range(number, metadata.num_columns):  # nested columns before it shift its number
            chunk = metadata.column(at)
            if chunk.path_in_schema == column:
                statistics = chunk.statistics
                is_known = statistics is not None and statistics.has_min_max
                return (statistics.min_raw, statistics.max_raw) if is_known else None
        return None


class ParquetFiles:
    """Reads rows of Parquet files; thread-safe, with a bounded number of them open and of row groups kept.

    Args:
        fs: the disk port.
        kept_bytes_max: row groups kept in memory, in bytes.
    """

    def __init__(self, fs: FileSystem | None = None, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._fs = fs or RealFileSystem()
        self._kept_bytes_max = kept_bytes_max
        self._lock = Lock()
        self._open: OrderedDict[Path, _OpenParquet] = OrderedDict()
        self._open_count_max = min(OPEN_FILE_COUNT_MAX, open_file_count_max())
        self._kept: OrderedDict[tuple[Path, int, tuple[str, ...]], pa.Table] = OrderedDict()
        self._kept_bytes = 0

    def frame(self, path: Path, row: int) -> bytes:
        """The bytes of the record in a row of a file, as in the log.

        Raises:
            StoreCorruptedError: the file is missing or damaged; the other methods raise it, too.
            ServiceUnavailableError: the file system refuses to read it (ESTALE, EACCES, or EIO at opening); the other
                methods raise it, too. EIO while reading counts as damage.
        """
        row_group, within = self._locate(path, row)
        table = self._row_group(path, row_group, FRAME_COLUMNS)
        return b"".join(table.column(name)[within].as_py() for name in FRAME_COLUMNS)

    def places(self, path: Path, first_row: int, end_row: int) -> list[tuple[int, int, int]]:
        """Queue offset, commit-log offset and size in bytes of the records in rows [first_row, end_row)."""
        places: list[tuple[int, int, int]] = []
        while first_row < end_row:
            row_group, within = self._locate(path, first_row)
            table = self._row_group(path, row_group, PLACE_COLUMNS).slice(within, end_row - first_row)
            if not len(table):
                raise damaged(path, 0, f"row group {row_group} has fewer rows than its footer says")
            places.extend(zip(*(table.column(name).to_pylist() for name in PLACE_COLUMNS), strict=True))
            first_row += len(table)
        return places

    def store_time_millis(self, path: Path, row: int) -> int:
        """When the record in a row was stored, milliseconds since 1970 UTC."""
        row_group, within = self._locate(path, row)
        micros: int = self._row_group(path, row_group, (TIME_COLUMN,)).column(0)[within].value
        return micros // 1000

    def first_row_from(self, path: Path, first_row: int, end_row: int, queue_offset: int) -> int:
        """The first of the rows [first_row, end_row), of one queue, with this queue offset or a greater one; `end_row` if none.

        Row groups with only smaller queue offsets by their statistics are not read.
        """
        row = first_row
        file = self._opened(path)
        while row < end_row:
            row_group, within = self._locate(path, row)
            group_end = int(file.ends[row_group])
            bounds = self._guarded(path, partial(file.bounds, row_group, "queueOffset"))
            if bounds is None or bounds[1] >= queue_offset:
                table = self._row_group(path, row_group, PLACE_COLUMNS).slice(within, end_row - row)
                found = int(np.searchsorted(table.column("queueOffset").to_numpy(), queue_offset))
                if found < len(table):
                    return row + found
            row = group_end
        return end_row

    def row_at_time(self, path: Path, first_row: int, end_row: int, time_millis: int, *, is_upper: bool) -> int | None:
        """The first of the rows [first_row, end_row) stored at or after a time, or the last at or before it; None if none.

        Times may fall from row to row. Row groups with only other times by their statistics are not read.
        """
        file = self._opened(path)
        micros = min(max(time_millis * 1000, _INT64.min), _INT64.max)
        while first_row < end_row:
            row_group, _ = self._locate(path, end_row - 1 if is_upper else first_row)
            group_begin = int(file.ends[row_group - 1]) if row_group else 0
            begin, end = max(first_row, group_begin), min(end_row, int(file.ends[row_group]))
            bounds = self._guarded(path, partial(file.bounds, row_group, TIME_COLUMN))
            if bounds is None or (bounds[0] <= micros if is_upper else bounds[1] >= micros):
                table = self._row_group(path, row_group, (TIME_COLUMN,)).slice(begin - group_begin, end - begin)
                times = table.column(0).to_numpy().astype("datetime64[us]").astype(np.int64)
                fitting = np.flatnonzero(times <= micros if is_upper else times >= micros)
                if len(fitting):
                    return begin + int(fitting[-1 if is_upper else 0])
            first_row, end_row = (first_row, begin) if is_upper else (end, end_row)
        return None

    def tables(self, path: Path, columns: Sequence[str]) -> Iterator["pa.Table"]:
        """Some columns of each row group, in order."""
        file = self._opened(path)
        for row_group in range(len(file.ends)):
            yield self._guarded(path, partial(file.read, row_group, columns))

    def columns(self, path: Path) -> list[str]:
        """Names of all columns of a file."""
        names: list[str] = self._opened(path).file.schema_arrow.names
        return names

    def forget(self) -> None:
        """Closes the open files and drops the kept row groups."""
        with self._lock:
            self._open.clear()
            self._kept.clear()
            self._kept_bytes = 0

    def _locate(self, path: Path, row: int) -> tuple[int, int]:
        ends = self._opened(path).ends
        row_group = int(np.searchsorted(ends, row, side="right"))
        if row_group == len(ends):
            raise damaged(path, 0, f"it has {int(ends[-1]) if len(ends) else 0} rows, and row {row} is missing")
        return row_group, row - (int(ends[row_group - 1]) if row_group else 0)

    def _opened(self, path: Path) -> _OpenParquet:
        with self._lock:
            known = self._open.get(path)
            if known is not None:
                self._open.move_to_end(path)
                return known
        file: _OpenParquet = self._guarded(path, partial(_OpenParquet, self._fs, path))
        with self._lock:
            self._open[path] = file
            if len(self._open) > self._open_count_max:
                self._open.popitem(last=False)
        return file

    def _row_group(self, path: Path, row_group: int, columns: tuple[str, ...]) -> "pa.Table":
        key = (path, row_group, columns)
        with self._lock:
            table = self._kept.get(key)
            if table is not None:
                self._kept.move_to_end(key)
                return table
        file = self._opened(path)
        table = self._guarded(path, partial(file.read, row_group, columns))
        with self._lock:
            if key not in self._kept:
                self._kept[key] = table
                self._kept_bytes += table.nbytes
            while self._kept_bytes > self._kept_bytes_max and len(self._kept) > 1:
                self._kept_bytes -= self._kept.popitem(last=False)[1].nbytes
        return table

    def _guarded(self, path: Path, read: Callable[[], Any]) -> Any:
        """The result of `read`; errors for a damaged or unreadable file name the file."""
        try:
            return read()
        except StoreCorruptedError:
            self._close(path)
            raise
        except FileNotFoundError as error:
            raise damaged(path, 0, "it is missing") from error
        except (OSError, ValueError, KeyError, IndexError, OverflowError, MemoryError) as error:
            self._close(path)
            # pyarrow's own errors are ValueError, KeyError, and OSError without a number; errors of the file system have one.
            if not isinstance(error, OSError) or error.errno is None:
                raise damaged(path, 0, f"it cannot be read ({error})") from error
            raise unreadable(path, error) from error

    def _close(self, path: Path) -> None:
        """Closes a file; the next lookup opens it anew, because a stale descriptor stays stale and the file may be replaced."""
        with self._lock:
            self._open.pop(path, None)
