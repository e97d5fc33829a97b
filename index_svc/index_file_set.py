"""All index files of a root, oldest first, of which only the newest is being filled.

Rules, from `IndexService` of RocketMQ 5.3.3:
- The next file is made by the next *message* after the newest is full, even by one without keys; so is a store's first.
- The keys of one message may lie in two files.
- Names are wall-clock times, yyyyMMddHHmmssSSS; a name that would not be the newest is moved up by milliseconds.
"""

import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from index_svc.index_file import IndexFile
from store.builders.index_keys import index_keys
from store.dispatch import DispatchRequest
from store.errors import StoreCorruptedError, StoreError
from store.files.cached_pages import drop_cached_pages
from store.files.file_system import FileSystem
from store.format.index_layout import HEADER_SIZE, IndexHeader, key_hash
from store.format.paths import index_dir, index_file_name
from store.readers.index_reader import IndexFileView, IndexLayout, list_index_files
from store.readers.open_files import OpenFiles

WRITE_KEY_COUNT = 65_536


class IndexFileSet:
    """The index files of a root. One thread writes, any may search.

    Args:
        root: the store root.
        fs: the door to the disk.
        layout: how the files are divided.
        clock_millis: wall clock, for names.

    Attributes:
        live: the newest file; None before the first message.
        applied_offset: the record whose keys were written last (bytes); -1 for none.
        applied_key_count: how many of its keys are written.
    """

    def __init__(self, root: Path, fs: FileSystem, layout: IndexLayout, clock_millis: Callable[[], int]) -> None:
        self.fs = fs
        self.layout = layout
        self.live: IndexFile | None = None
        self.applied_offset = -1
        self.applied_key_count = 0
        self.files = OpenFiles(fs)
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
        """Makes the files read as the disk holds them: a flush was refused before."""
        drop_cached_pages(self.fs, self.paths())

    def views(self) -> list[IndexFileView]:
        """All files to search in, oldest first."""
        live = self.live
        sealed = list(self._sealed)
        return sealed if live is None else [*(view for view in sealed if view.path != live.path), live.view()]

    @property
    def key_count(self) -> int:
        """Keys in all files."""
        return self._sealed_key_count + (self.live.state.key_count if self.live else 0)

    def adopt_sealed(self, paths: Sequence[Path]) -> None:
        """Takes over files that are not written any more."""
        self._sealed = [IndexFileView(self.files, path, self.layout) for path in paths]
        self._sealed_key_count = sum(max(view.header().entry_count - 1, 0) for view in self._sealed)

    def adopt_live(self, live: IndexFile | None, applied_offset: int, applied_key_count: int) -> None:
        """Takes over the newest file, and how far its keys go."""
        self.live = live
        self.applied_offset = applied_offset
        self.applied_key_count = applied_key_count

    def remove(self, paths: Sequence[Path]) -> None:
        """Removes files that are to be built again."""
        for path in paths:
            self.files.forget(path)
            self._header_crcs.pop(path, None)
            self.fs.unlink(path)
        if paths:
            self.fs.fsync_dir(self._directory)

    def marks(self) -> list[tuple[str, int]]:
        """Name and CRC-32 of the header of each file, oldest first; 0 for the newest, whose header still changes."""
        live = self.live
        sealed = [(view.path.name, self.header_crc(view.path)) for view in self._sealed]
        return sealed if live is None else [*sealed, (live.path.name, 0)]

    def header_crc(self, path: Path) -> int:
        """Of a file that is not written any more, as it was when first asked for."""
        if path not in self._header_crcs:
            self._header_crcs[path] = zlib.crc32(self.files.get(path).read(0, HEADER_SIZE))
        return self._header_crcs[path]

    def hide_expired(self, log_first_offset: int, file_count_max: int) -> list[Path]:
        """Takes at most so many files that end before the log's first record out of the set, never the newest.

        To be removed once a checkpoint without them is written.
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
        self.live = None
        self._sealed = []
        self._sealed_key_count = 0
        self.applied_offset, self.applied_key_count = -1, 0
        self.remove(self.paths())

    def apply(self, requests: Sequence[DispatchRequest]) -> None:
        """Indexes records, given in log order; what was applied already is passed over."""
        hashes: list[int] = []
        offsets: list[int] = []
        times: list[int] = []
        room = self.live.state.room if self.live else 0
        for request in requests:
            offset = request.commit_log_offset
            if offset < self.applied_offset:
                continue
            keys = index_keys(request)
            if offset == self.applied_offset and self.applied_offset >= 0 and not hashes:
                keys = keys[self.applied_key_count :]
                if not keys:
                    continue
            if room <= 0:
                self._write(hashes, offsets, times)
                room = self._roll()
            for key in keys:
                if room <= 0:
                    self._write(hashes, offsets, times)
                    room = self._roll()
                hashes.append(key_hash(key))
                offsets.append(offset)
                times.append(request.store_time_millis)
                room -= 1
            if len(hashes) >= WRITE_KEY_COUNT:
                self._write(hashes, offsets, times)
        self._write(hashes, offsets, times)

    def flush(self) -> None:
        """Everything applied is on the disk afterwards, or FlushFailedError."""
        if self.live is not None:
            self.live.flush()

    def close(self) -> None:
        """Closes all files."""
        self.files.close()

    def _write(self, hashes: list[int], offsets: list[int], times: list[int]) -> None:
        if not hashes:
            return
        assert self.live is not None
        last = offsets[-1]
        count = self.live.put(
            np.array(hashes, dtype=np.int64), np.array(offsets, dtype=np.int64), np.array(times, dtype=np.int64)
        )
        assert count == len(hashes), (count, len(hashes))
        of_last = len(offsets) - offsets.index(last)
        self.applied_key_count = of_last + (self.applied_key_count if last == self.applied_offset else 0)
        self.applied_offset = last
        hashes.clear()
        offsets.clear()
        times.clear()

    def _roll(self) -> int:
        """Begins the next file; its room."""
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
            # Tried again under a new name: a half-made file must not stay each time.
            with suppress(OSError, StoreError):
                if self.fs.exists(path):
                    self.remove([path])
            raise
        if full is not None:
            self._sealed.append(IndexFileView(self.files, full.path, self.layout))
            self._sealed_key_count += full.state.key_count
        self.live = live
        return live.state.room

    def _next_path(self) -> Path:
        name = index_file_name(self._clock_millis())
        paths = self.paths()
        if paths and name <= paths[-1].name:
            name = _name_behind(paths[-1].name)
        return self._directory / name


def _name_behind(last: str) -> str:
    """The next name that sorts behind `last`; digits that are no date are counted up."""
    try:
        moment = datetime.strptime(last[:14], "%Y%m%d%H%M%S") + timedelta(milliseconds=int(last[14:]) + 1)
    except (ValueError, OverflowError):
        if not last.strip("9"):
            raise StoreCorruptedError(
                f"no name sorts behind {last}: rename that index file to the time it was made", file=last, offset=0
            ) from None
        return f"{int(last) + 1:0{len(last)}d}"
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"
