"""Sorted runs of timers, of which a TimerIndex is made: entries in memory or in files.

Entries: what is known of some timers, in columns, sorted by the order in which they are due.

    due_millis          i64   when the message is due (ms since 1970)
    queue_offset        i64   its position in queue 0 of the timer topic
    commit_log_offset   i64   its record (bytes)
    key                 i64   hash of its topic and unique key (`timer_record.py`); 0: it has none
    size_bytes          i32   of its record

36 bytes each.

Run: sorted entries of which a first part is taken; in memory, or in a file that is mapped.

A file holds the columns one after the other, in the byte order of the machine. It is derived: its table
(RunFiles) has its CRC, and one that is damaged or lost is made again from the timer topic.

RunFiles: the files of the runs, and the table that says which ones count (`runs.json`).

A file counts from the moment on that the table names it; the table is replaced atomically. Files that it does not name are
removed. All of it may be lost: the timers are read again from their topic.
"""

import contextlib
import mmap
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
ENTRY_SIZE_BYTES = 36


@dataclass(frozen=True, slots=True)
class Entries:
    """See the top of this file."""

    dues_millis: Int64s
    queue_offsets: Int64s
    commit_log_offsets: Int64s
    keys: Int64s
    sizes_bytes: Int32s

    def __len__(self) -> int:
        return len(self.dues_millis)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int, int]]) -> "Entries":
        """Entries from rows with the columns in their order, sorted."""
        table = np.array(rows, dtype=np.int64).reshape(-1, 5)
        sizes_bytes = table[:, 4].astype(np.int32)
        return cls(table[:, 0], table[:, 1], table[:, 2], table[:, 3], sizes_bytes).sorted()

    @classmethod
    def joined(cls, parts: Sequence["Entries"]) -> "Entries":
        """All of them, sorted."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.of(())
        return cls(
            np.concatenate([part.dues_millis for part in parts]),
            np.concatenate([part.queue_offsets for part in parts]),
            np.concatenate([part.commit_log_offsets for part in parts]),
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.sizes_bytes for part in parts]),
        ).sorted()

    def sorted(self) -> "Entries":
        """The same by due time and position."""
        return self.pick(np.lexsort((self.queue_offsets, self.dues_millis)))

    def pick(self, at: npt.NDArray[np.intp] | Mask | slice) -> "Entries":
        """Some of them; a slice is a view."""
        return Entries(
            self.dues_millis[at],
            self.queue_offsets[at],
            self.commit_log_offsets[at],
            self.keys[at],
            self.sizes_bytes[at],
        )

    def place(self, due_millis: int, queue_offset: int = 0) -> int:
        """The index of the first one that is not before a place in the order."""
        begin = int(np.searchsorted(self.dues_millis, due_millis))
        end = int(np.searchsorted(self.dues_millis[begin:], due_millis, side="right")) + begin
        return begin + int(np.searchsorted(self.queue_offsets[begin:end], queue_offset))


READ_BYTES = 1 << 20


class Run:
    """See the top of this file.

    Args:
        entries: sorted.
        path: the file that has them; None: they are in memory.
        crc: of the file.
        mapping: the file, mapped.

    Attributes:
        cursor: entries before this index are taken.
    """

    def __init__(
        self, entries: Entries, path: Path | None = None, crc: int = 0, mapping: mmap.mmap | None = None
    ) -> None:
        self.entries = entries
        self.path = path
        self.crc = crc
        self.cursor = 0
        self._mapping = mapping
        self._oldest_at = -1

    def __len__(self) -> int:
        return len(self.entries) - self.cursor

    def first_due_millis(self) -> int:
        """When its first entry is due; only while it has one."""
        return int(self.entries.dues_millis[self.cursor])

    def rest(self) -> Entries:
        """The entries that are not taken."""
        return self.entries.pick(slice(self.cursor, None))

    def oldest_offset(self) -> int:
        """The least commit log offset of those that are not taken (bytes); only while there is one."""
        if self._oldest_at < self.cursor:
            self._oldest_at = self.cursor + int(np.argmin(self.entries.commit_log_offsets[self.cursor :]))
            self.forget_pages()
        return int(self.entries.commit_log_offsets[self._oldest_at])

    def forget_pages(self) -> None:
        """Give the memory of the file's pages back; they are read again when they are needed."""
        if self._mapping is not None:
            self._mapping.madvise(mmap.MADV_DONTNEED)


def write_run(path: Path, entries: Entries) -> Run:
    """A new file with entries, on the disk, as a run."""
    crc = 0
    with open(path, "wb") as file:
        for column in (
            entries.dues_millis,
            entries.queue_offsets,
            entries.commit_log_offsets,
            entries.keys,
            entries.sizes_bytes,
        ):
            data = np.ascontiguousarray(column).data.cast("B") if len(column) else b""
            file.write(data)
            crc = zlib.crc32(data, crc)
        file.flush()
        os.fsync(file.fileno())
    return map_run(path, len(entries), crc)


def map_run(path: Path, count: int, crc: int) -> Run:
    """The run of a file with so many entries.

    Raises:
        OSError, ValueError: there is no such file.
    """
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), count * ENTRY_SIZE_BYTES, access=mmap.ACCESS_READ)
    dues, offsets, log_offsets, keys = (
        np.frombuffer(mapping, np.int64, count, number * count * 8) for number in range(4)
    )
    sizes_bytes = np.frombuffer(mapping, np.int32, count, 4 * count * 8)
    return Run(Entries(dues, offsets, log_offsets, keys, sizes_bytes), path, crc, mapping)


def is_intact(path: Path, count: int, crc: int) -> bool:
    """Whether a file has so many entries and this CRC."""
    found = 0
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size != count * ENTRY_SIZE_BYTES:
                return False
            while data := file.read(READ_BYTES):
                found = zlib.crc32(data, found)
    except OSError:
        return False
    return found == crc


VERSION = 1
SUFFIX = ".run"


@dataclass(frozen=True, slots=True)
class SavedRuns:
    """The contents of the table of runs.

    Attributes:
        runs: the files.
        next_queue_offset: they have everything of the timer topic before this position.
        last_log_offset: where the record before that position is (bytes), to know the log again.
    """

    runs: Sequence[Run]
    next_queue_offset: int
    last_log_offset: int


@dataclass(frozen=True, slots=True)
class NewRuns:
    """Files that are written and do not count yet. `can_count`: asks whether the log can lose nothing that they rely on."""

    saved: SavedRuns
    can_count: Callable[[], bool]


class RunFiles:
    """See the top of this file.

    Args:
        fs: the disk port; for the table.
        directory: where the files are.
    """

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._directory = directory
        self._table = directory / "runs.json"
        self._number = 0

    def load(self) -> SavedRuns | None:
        """The runs that were kept; None when there are none, or any of it is damaged."""
        self._directory.mkdir(parents=True, exist_ok=True)
        names = [path.name for path in self._directory.glob("*" + SUFFIX)]
        self._number = max(
            (int(name.removesuffix(SUFFIX)) for name in names if name[: -len(SUFFIX)].isdigit()), default=0
        )
        table = read_json_state(self._fs, self._table)
        saved = self._read(table) if table is not None and table.get("version") == VERSION else None
        self._remove_others(saved.runs if saved is not None else ())
        return saved

    def write(self, entries: Entries) -> Run:
        """A file with entries, which does not count yet."""
        self._number += 1
        self._directory.mkdir(parents=True, exist_ok=True)
        return write_run(self._directory / f"{self._number:012}{SUFFIX}", entries)

    def keep(self, runs: Sequence[Run], next_queue_offset: int, last_log_offset: int) -> None:
        """Have exactly these files count from now on; see SavedRuns."""
        rows = [[run.path.name, len(run.entries), run.crc] for run in runs if run.path is not None]
        table = {"version": VERSION, "next_queue_offset": next_queue_offset, "last_log_offset": last_log_offset}
        write_json_state(self._fs, self._table, {**table, "runs": rows})
        self._remove_others(runs)

    def forget(self) -> None:
        """Remove all of it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._table)
        self._remove_others(())

    def _read(self, table: dict[str, Any]) -> SavedRuns | None:
        runs: list[Run] = []
        try:
            for name, count, crc in table["runs"]:
                path = self._directory / str(name)
                if not is_intact(path, count, crc):
                    return None
                runs.append(map_run(path, count, crc))
            return SavedRuns(runs, int(table["next_queue_offset"]), int(table["last_log_offset"]))
        except (KeyError, TypeError, ValueError, OSError):
            return None

    def _remove_others(self, runs: Sequence[Run]) -> None:
        kept = {run.path for run in runs}
        for path in self._directory.glob("*" + SUFFIX):
            if path not in kept:
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
