"""The summaries of the sealed index files: opened, made if they are missing, and removed with their files.

One thread does this while searches and the builder run; it ends when there is no work. First it opens the summaries that
exist. Then it makes those that are missing, damaged, of another version or of another file: the newest file first, at a
limited rate. A file without a summary is searched without it, so a failure here is logged and tried again after a pause;
the builder does not see it.

A file with an impossible entry gets no summary, so that searches find the damage.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from store.derive.index_summary import SummaryMaker
from store.errors import StoreError
from store.files.file_system import FileSystem
from store.files.json_state import write_bytes_atomic
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import ENTRY_SIZE, entry_position
from store.format.derived.index_summary import TIME_UNKNOWN_EARLY, SummaryHeader, TimeSpan, index_header_crc
from store.format.paths import is_index_file_name, own_state_dir
from store.readers.index_reader import IndexFileView, IndexSummaryReader, list_index_files, read_summary_header

# Reading index files to make summaries: a full file takes 3 s, and most of the disk's throughput stays for others.
BYTES_PER_SECOND_MAX = 128 << 20
ENTRY_CHUNK_COUNT = 1 << 16
# Pause after a failure: space or a disk seldom comes back sooner.
RETRY_SECONDS = 30.0
# How long `close` waits for the thread, which may be waiting for the log.
CLOSE_SECONDS_MAX = 5.0
# Files open at the same time, in addition to those of searches.
OPEN_FILE_COUNT_MAX = 64

# Returns the earliest store time (ms) of the log's records from one offset to another (bytes, both inclusive); None if
# the log does not have it. Raises StoreError if the log does not answer.
EarliestOf = Callable[[int, int], int | None]

_log = logging.getLogger("reput.index")


@dataclass(eq=False, slots=True)
class _Sealed:
    """A sealed file, and the store times of its records if they are known."""

    view: IndexFileView
    span: TimeSpan | None


class IndexSummaries:
    """The summaries of one root; thread-safe.

    Args:
        root: the store root.
        fs: the file system.
        makes: make missing summaries; if False, nothing on the disk is changed.
        earliest_of: asks the log for a time that entries do not prove; None: the time stays unknown.
        bytes_per_second_max: limit for reading index files.
        retry_seconds: pause between two tries.
    """

    def __init__(
        self,
        root: Path,
        fs: FileSystem,
        *,
        makes: bool = True,
        earliest_of: EarliestOf | None = None,
        bytes_per_second_max: float = BYTES_PER_SECOND_MAX,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.directory = Path(own_state_dir(str(root), "index")) / "summaries"
        self._root = root
        self._fs = fs
        self._makes = makes
        self._earliest_of = earliest_of
        self._bytes_per_second_max = bytes_per_second_max
        self._retry_seconds = retry_seconds
        self._files = OpenFiles(fs, count_max=OPEN_FILE_COUNT_MAX)
        self._stopping = threading.Event()
        self._changed = threading.Condition()  # held to look at or change what follows
        self._sealed: dict[Path, _Sealed] = {}
        self._to_open: list[_Sealed] = []
        self._to_make: list[_Sealed] = []
        self._thread: threading.Thread | None = None
        self._is_swept = not makes

    def want(self, views: Sequence[IndexFileView], span: TimeSpan | None = None) -> None:
        """Gives sealed files, oldest first, their summaries as soon as possible.

        Args:
            views: the files.
            span: the store times of their records; None if unknown.
        """
        with self._changed:
            for view in views:
                sealed = _Sealed(view, span)
                self._sealed[view.path] = sealed
                self._to_open.append(sealed)
            self._work()

    def forget(self, path: Path) -> None:
        """Removes the summary of an index file that is gone."""
        with self._changed:
            self._sealed.pop(path, None)
            summary = self._path_of(path)
            self._files.forget(path)
            self._files.forget(summary)
            if self._makes:
                with suppress(FileNotFoundError):
                    self._fs.unlink(summary)

    def settle(self, seconds_max: float) -> bool:
        """Waits until there is no work; returns False if it took longer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, seconds_max)

    def close(self) -> None:
        """Stops the work and closes the files."""
        self._stopping.set()
        thread = self._thread
        if thread is not None:
            thread.join(CLOSE_SECONDS_MAX)
        self._files.close()

    def _path_of(self, path: Path) -> Path:
        return self.directory / path.name

    def _work(self) -> None:
        """Starts the thread if there is work and no thread."""
        if self._thread is None and (self._to_open or self._to_make) and not self._stopping.is_set():
            self._thread = threading.Thread(target=self._run, name="index-summaries", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (step := self._next()) is not None:
            try:
                step()
            except (StoreError, OSError) as error:
                if not self._stopping.is_set():
                    _log.warning("an index file is searched without its summary, tried again later: %s", error)
                    self._pause()
            except Exception:
                # The thread must not end here: the files would stay without summaries until the next start.
                _log.exception("the thread of the index summaries failed")
                self._pause()

    def _pause(self) -> None:
        """Waits after a failure; other files come first then."""
        with self._changed:
            for works in (self._to_open, self._to_make):
                works[:] = works[-1:] + works[:-1]
        self._stopping.wait(self._retry_seconds)

    def _next(self) -> Callable[[], None] | None:
        """The next work; None ends the thread."""
        with self._changed:
            if not self._stopping.is_set():
                if not self._is_swept:
                    return self._sweep
                if self._to_open:
                    return lambda: self._open(self._to_open[-1])
                if self._to_make:
                    return lambda: self._make(self._to_make[-1])
            self._thread = None
            self._changed.notify_all()
            return None

    def _sweep(self) -> None:
        """Removes summaries without an index file, and half-made ones that a crash left."""
        names = {path.name for path in list_index_files(self._fs, self._root)}
        for name in self._fs.listdir(self.directory):
            if name not in names and is_index_file_name(name.removesuffix(".tmp")):
                self._fs.unlink(self.directory / name)
        self._is_swept = True

    def _open(self, sealed: _Sealed) -> None:
        path = self._path_of(sealed.view.path)
        try:
            header = read_summary_header(self._files, path, index_header_crc(sealed.view.header()))
        except FileNotFoundError:
            header = None  # the index file is gone
        with self._changed:
            self._to_open.remove(sealed)
            if header is not None:
                sealed.view.summary = self._reader(sealed, header)
            elif self._makes and self._is_wanted(sealed):
                self._to_make.insert(0, sealed)

    def _make(self, sealed: _Sealed) -> None:
        view = sealed.view
        if not self._is_wanted(sealed):
            data = None
        else:
            try:
                data = self._summary_of(sealed)
            except FileNotFoundError:
                if self._is_wanted(sealed):
                    raise
                data = None
        if self._stopping.is_set():
            return
        path = self._path_of(view.path)
        if data is not None:
            write_bytes_atomic(self._fs, path, data)
        with self._changed:
            self._to_make.remove(sealed)
            self._files.forget(view.path)
            self._files.forget(path)
            if data is None:
                return
            if not self._is_wanted(sealed):  # its file went meanwhile
                with suppress(FileNotFoundError):
                    self._fs.unlink(path)
                return
            header = read_summary_header(self._files, path, index_header_crc(view.header()))
            if header is not None:
                view.summary = self._reader(sealed, header)

    def _is_wanted(self, sealed: _Sealed) -> bool:
        return self._sealed.get(sealed.view.path) is sealed

    def _summary_of(self, sealed: _Sealed) -> bytes | None:
        """The summary's bytes; None if the file is damaged, or if the thread must stop."""
        view = sealed.view
        header = view.header()
        if not 0 <= header.entry_count <= view.layout.entry_count_max:
            _log.warning("%s gets no summary: it says that it holds %d entries", view.path, header.entry_count - 1)
            return None
        maker = SummaryMaker(header)
        file = self._files.get(view.path)
        for first in range(1, header.entry_count, ENTRY_CHUNK_COUNT):
            size_bytes = min(ENTRY_CHUNK_COUNT, header.entry_count - first) * ENTRY_SIZE
            data = file.read(entry_position(first, view.layout.slot_count), size_bytes)
            damaged = maker.add(data) if len(data) == size_bytes else first
            if damaged:
                _log.warning("%s gets no summary: its entry %d is impossible; run `reput fsck`", view.path, damaged)
                return None
            if self._stopping.wait(size_bytes / self._bytes_per_second_max):
                return None
        span = sealed.span or maker.span()
        if span.begin_millis == TIME_UNKNOWN_EARLY and maker.unproven_offset >= 0 and self._earliest_of is not None:
            earliest = self._earliest_of(header.begin_commit_log_offset, maker.unproven_offset)
            if earliest is not None:
                span = TimeSpan(min(earliest, header.begin_time_millis), span.end_millis)
        return maker.encode(span)

    def _reader(self, sealed: _Sealed, header: SummaryHeader) -> IndexSummaryReader:
        path = self._path_of(sealed.view.path)
        return IndexSummaryReader(self._files, path, header, lambda: self._damaged(sealed))

    def _damaged(self, sealed: _Sealed) -> None:
        """A page of a summary is damaged: the file is searched without it, and the summary is made again."""
        with self._changed:
            if sealed.view.summary is None:
                return
            sealed.view.summary = None
            if not self._is_wanted(sealed):
                return  # its file is gone, and so is the summary
            _log.warning("%s is damaged: its index file is searched without it", self._path_of(sealed.view.path))
            if self._makes:
                self._to_make.insert(0, sealed)
                self._work()
