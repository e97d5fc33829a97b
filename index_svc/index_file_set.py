"""All index files of a root, oldest first; only the newest is being filled.

`store/derive/index_files.py` says when the next file begins. Names are wall-clock times, yyyyMMddHHmmssSSS, as in
`IndexService` of RocketMQ 5.3.3; a name that would not be the newest is moved up by milliseconds.
"""

import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from index_svc.index_file import IndexFile
from index_svc.index_summaries import IndexSummaries
from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_files import is_followed
from store.derive.index_state import Ints
from store.errors import StoreCorruptedError, StoreError
from store.files.cached_pages import drop_cached_pages
from store.files.file_system import FileSystem
from store.files.open_files import OpenFiles
from store.format.index_layout import HEADER_SIZE, IndexHeader
from store.format.paths import index_dir, index_file_name
from store.readers.index_reader import IndexFileView, IndexLayout, list_index_files

WRITE_KEY_COUNT = 65_536


class IndexFileSet:
    """The index files of a root. One thread writes, any may search.

    Args:
        root: the store root.
        fs: the file system.
        layout: how the files are divided.
        clock_millis: wall clock, for names.
        summaries: makes the summaries of sealed files, and is closed with the set; None: there are none.

    A sealed file is one that is not written any more: all but the newest.

    Attributes:
        generation: how often all files were removed, to be built again.
        live: the newest file; None before the first record.
        applied_offset: the record whose keys were written last (bytes); -1 for none.
        applied_key_count: how many of its keys are written.
    """

    def __init__(
        self,
        root: Path,
        fs: FileSystem,
        layout: IndexLayout,
        clock_millis: Callable[[], int],
        *,
        summaries: IndexSummaries | None = None,
    ) -> None:
        self.fs = fs
        self.layout = layout
        self.live: IndexFile | None = None
        self.applied_offset = -1
        self.applied_key_count = 0
        self.files = OpenFiles(fs)
        self.generation = 0
        self.summaries = summaries
        self._root = root
        self._directory = Path(index_dir(str(root)))
        self._clock_millis = clock_millis
        self._sealed: list[IndexFileView] = []
        self._sealed_key_count = 0
        self._header_crcs: dict[Path, int] = {}

    def paths(self) -> list[Path]:
        """The files on the disk, oldest first."""
        return list_index_files(self.fs, self._root)

    def has_full_length(self, path: Path) -> bool:
        """Whether a file is as long as the layout says."""
        return self.fs.stat_size(path) == self.layout.file_size_bytes

    def drop_cache(self) -> None:
        """Drops the files from the page cache, so that they are read from the disk: a flush failed before."""
        drop_cached_pages(self.fs, self.paths())

    def views(self) -> list[IndexFileView]:
        """All files to search in, oldest first."""
        live = self.live
        sealed = list(self._sealed)
        return sealed if live is None else [*(view for view in sealed if view.path != live.path), live.view()]

    def sealed_views(self) -> list[IndexFileView]:
        """The sealed files, oldest first."""
        return list(self._sealed)

    @property
    def key_count(self) -> int:
        """Keys in all files."""
        return self._sealed_key_count + (self.live.state.key_count if self.live else 0)

    def adopt_sealed(self, paths: Sequence[Path]) -> None:
        """Takes over sealed files."""
        self._sealed = [IndexFileView(self.files, path, self.layout) for path in paths]
        self._sealed_key_count = sum(max(view.header().entry_count - 1, 0) for view in self._sealed)
        if self.summaries is not None:
            self.summaries.want(self._sealed)

    def adopt_live(self, live: IndexFile | None, applied_offset: int, applied_key_count: int) -> None:
        """Takes over the newest file, and which keys were written last; see the attributes."""
        self.live = live
        self.applied_offset = applied_offset
        self.applied_key_count = applied_key_count

    def remove(self, paths: Sequence[Path]) -> None:
        """Removes files that are to be built again."""
        for path in paths:
            self.files.forget(path)
            self._header_crcs.pop(path, None)
            self.fs.unlink(path)
            if self.summaries is not None:
                self.summaries.forget(path)
        if paths:
            self.fs.fsync_dir(self._directory)

    def marks(self) -> list[tuple[str, int]]:
        """Name and CRC-32 of the header of each file, oldest first; 0 for the newest, because its header changes."""
        live = self.live
        sealed = [(view.path.name, self.header_crc(view.path)) for view in self._sealed]
        return sealed if live is None else [*sealed, (live.path.name, 0)]

    def header_crc(self, path: Path) -> int:
        """CRC-32 of the header of a sealed file; read once."""
        if path not in self._header_crcs:
            self._header_crcs[path] = zlib.crc32(self.files.get(path).read(0, HEADER_SIZE))
        return self._header_crcs[path]

    def hide_expired(self, log_first_offset: int, file_count_max: int) -> list[Path]:
        """Takes files that end before the log's first record out of the set, at most so many, never the newest.

        Remove them (`remove`) when a checkpoint without them is written.
        """
        expired = []
        for view in self._sealed[:file_count_max]:
            header = view.header()
            if header.end_commit_log_offset >= log_first_offset:
                break
            expired.append(view.path)
            self._sealed_key_count -= max(header.entry_count - 1, 0)
        self._sealed = self._sealed[len(expired) :]
        return expired

    def clear(self) -> None:
        """Removes all files."""
        self.generation += 1
        self.live = None
        self._sealed = []
        self._sealed_key_count = 0
        self.applied_offset, self.applied_key_count = -1, 0
        self.remove(self.paths())

    def apply(self, columns: DispatchColumns) -> None:
        """Indexes records, given in log order; keys that were applied already are skipped."""
        columns = columns.behind(self.applied_offset)
        hashes = columns.key_hashes.astype(np.int64)
        offsets = columns.commit_log_offsets[columns.key_records]
        times_millis = columns.store_times_millis[columns.key_records]
        begin = 0
        record_count = len(columns)
        if record_count and int(columns.commit_log_offsets[0]) == self.applied_offset:
            key_count = int(np.searchsorted(columns.key_records, 1))
            begin = min(self.applied_key_count, key_count)
            record_count -= begin == key_count  # all of its keys are applied
        if not record_count:
            return
        if self._room <= 0:
            self._roll()
        while begin < len(hashes):
            if self._room <= 0:
                self._roll()
            end = min(begin + self._room, begin + WRITE_KEY_COUNT, len(hashes))
            self._write(hashes[begin:end], offsets[begin:end], times_millis[begin:end])
            begin = end
        last_key_offset = int(offsets[-1]) if len(offsets) else -1
        if self._room <= 0 and is_followed(int(columns.commit_log_offsets[-1]), last_key_offset):
            self._roll()

    def flush(self) -> None:
        """Brings everything applied to the disk.

        Raises:
            FlushFailedError: the disk refused.
        """
        self.prepare_flush()()

    def prepare_flush(self) -> Callable[[], None]:
        """A function that flushes everything applied so far; any thread may call it while more is applied."""
        return self.live.prepare_flush() if self.live is not None else lambda: None

    def close(self) -> None:
        """Closes all files."""
        if self.summaries is not None:
            self.summaries.close()
        self.files.close()

    @property
    def _room(self) -> int:
        """Entries that still fit into the newest file; 0 if there is none."""
        return self.live.state.room if self.live is not None else 0

    def _write(self, hashes: Ints, offsets: Ints, times_millis: Ints) -> None:
        assert self.live is not None
        count = self.live.put(hashes, offsets, times_millis)
        assert count == len(hashes), (count, len(hashes))
        last = int(offsets[-1])
        of_last = count - int(np.searchsorted(offsets, last))
        self.applied_key_count = of_last + (self.applied_key_count if last == self.applied_offset else 0)
        self.applied_offset = last

    def _roll(self) -> None:
        """Begins the next file."""
        before: IndexHeader | None = None
        full = self.live
        if full is not None:
            full.flush()
            before = full.state.header
        path = self._next_path()
        try:
            live = IndexFile.create(self.files, path, self.layout, before)
            self.fs.fsync_dir(self._directory)
        except BaseException:
            # The next try uses a new name, so the half-made file must go.
            with suppress(OSError, StoreError):
                if self.fs.exists(path):
                    self.remove([path])
            raise
        if full is not None:
            view = IndexFileView(self.files, full.path, self.layout)
            self._sealed.append(view)
            self._sealed_key_count += full.state.key_count
            if self.summaries is not None:
                self.summaries.want([view], full.time_span)
        self.live = live

    def _next_path(self) -> Path:
        name = index_file_name(self._clock_millis())
        paths = self.paths()
        if paths and name <= paths[-1].name:
            name = _name_behind(paths[-1].name)
        return self._directory / name


def _name_behind(last: str) -> str:
    """The next name that sorts behind `last`; digits that are no date are counted up by 1."""
    try:
        moment = datetime.strptime(last[:14], "%Y%m%d%H%M%S") + timedelta(milliseconds=int(last[14:]) + 1)
    except (ValueError, OverflowError):
        if not last.strip("9"):
            raise StoreCorruptedError(
                f"no name sorts behind {last}: rename that index file to the time it was made", file=last, offset=0
            ) from None
        return f"{int(last) + 1:0{len(last)}d}"
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"
