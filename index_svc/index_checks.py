"""The index files as checked files (`services/following/file_check.py`), and a single file made again from the log.

A sealed file is made again from the record in which its first key lies. It equals the damaged one as it was written, unless
retention has removed the first records meanwhile: then it has only the entries of the others. The newest file is removed,
and the log is followed again from the end of the file before it.
"""

import errno
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from index_svc.index_file import IndexFile
from index_svc.index_file_set import WRITE_KEY_COUNT, IndexFileSet, Seal
from services.following.file_check import CheckedFile, GoesOn, Repair
from services.following.follower_progress import FollowerProgress
from store.derive.dispatch_columns import DispatchColumns
from store.derive.read_log import ReadLog
from store.errors import StoreCorruptedError
from store.files.checksums import ChecksumTable, Extent
from store.format.derived.index_layout import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader, entry_position
from store.readers.index_reader import IndexFileView


class IndexChecks:
    """Gives the files of a set to a FileChecker.

    Args:
        files: the index files.
        table: their checksums.
        read_log: see ReadLog.
        progress: of the builder.
        rebuild_live: has the builder remove the newest file and follow the log from the file before it.
        rebuild_all: has the builder remove all files and follow the log from its first record.
    """

    def __init__(
        self,
        files: IndexFileSet,
        table: ChecksumTable,
        read_log: ReadLog,
        progress: FollowerProgress,
        rebuild_live: Repair,
        rebuild_all: Repair,
    ) -> None:
        self.set = files
        self.table = table
        self.read_log = read_log
        self.progress = progress
        self.rebuild_live = rebuild_live
        self.rebuild_all = rebuild_all
        self._sealed: dict[IndexFileView, SealedIndexFile] = {}
        self._live: LiveIndexFile | None = None

    def files(self) -> list[CheckedFile]:
        """All files, the newest first."""
        views = self.set.sealed_views()
        if self._sealed.keys() != set(views):
            self._sealed = {view: self._sealed.get(view) or SealedIndexFile(self, view) for view in views}
            self.table.keep_only({view.path.name for view in views})
        live = self.set.live
        if live is not None and (self._live is None or self._live.file is not live):
            self._live = LiveIndexFile(self, live)
        newest: list[CheckedFile] = [self._live] if live is not None and self._live is not None else []
        return [*newest, *reversed(self._sealed.values())]


class SealedIndexFile(CheckedFile):
    """A file that is not written any more."""

    def __init__(self, checks: IndexChecks, view: IndexFileView) -> None:
        super().__init__(view.path.name, view.path)
        self._checks = checks
        self._view = view
        self._extents: tuple[Extent, ...] = ()
        self._header: IndexHeader | None = None
        self._skipped_count = 0
        seal = checks.set.seals.pop(view.path, None)
        row = checks.table.get(self.name)
        if seal is not None:
            self._take(seal)
        elif row is not None and len(row.note) == len(IndexHeader._fields) + 1:
            self._take(Seal(row.extents, IndexHeader._make(row.note[:-1]), row.note[-1]))
        if view.is_doubtful:
            self.is_doubtful = True

    def _take(self, seal: Seal) -> None:
        self._extents, self._header, self._skipped_count = seal
        self._view.known_header = seal.header

    @property
    def is_wanted(self) -> bool:
        """See CheckedFile."""
        return self._checks.set.is_sealed(self._view)

    def extents(self) -> Sequence[Extent]:
        """See CheckedFile."""
        if self._header is None:
            header, layout = self._view.header(), self._view.layout
            key_count = min(max(header.entry_count - 1, 0), layout.entry_count_max)
            skipped_count = self._checks.set.keys_before(self.path, header.begin_commit_log_offset)
            head = Extent(0, HEADER_SIZE + layout.slot_count * SLOT_SIZE, None)
            entries = Extent(entry_position(1, layout.slot_count), key_count * ENTRY_SIZE, None)
            self._take(Seal((head, entries), header, skipped_count))
        return self._extents

    def learn(self, extents: Sequence[Extent]) -> Repair | None:
        """See CheckedFile."""
        self._extents = tuple(extents)
        return None

    @property
    def note(self) -> tuple[int, ...]:
        """The header, and how many keys of its first record lie in the file before."""
        return (*self._header, self._skipped_count) if self._header is not None else ()

    def doubt(self, is_doubtful: bool) -> None:
        """See CheckedFile."""
        self._view.is_doubtful = is_doubtful

    def make_again(self, goes_on: GoesOn) -> Repair | None:
        """See CheckedFile."""
        header, files = self._header, self._checks.set
        if header is None:
            raise StoreCorruptedError(
                f"{self.path} is damaged and was never read: run `reput fsck --repair` to build the index again",
                file=self.path,
                offset=0,
            )
        log_first_offset = self._checks.progress.log_first_offset
        is_equal = header.begin_commit_log_offset >= log_first_offset
        # A broker of another version may have filled it: then with entries of tags, or without, from its begin to its end.
        for tags_from in dict.fromkeys((_border_in(header, files.tags_from), 0, None)):
            made = self._made(header, goes_on, log_first_offset, tags_from)
            if made is None:
                return None
            if self._is_same(made, header, log_first_offset):
                break
        else:
            raise StoreCorruptedError(
                f"{self.path} cannot be built again: the log gives other keys than it had; run `reput fsck`",
                file=self.path,
                offset=0,
            )
        made.flush()

        def put_in_place() -> bool:
            if not self.is_wanted:
                with suppress(FileNotFoundError):
                    files.fs.unlink(made.path)
                return True
            try:
                files.replace_sealed(self._view, made, is_equal=is_equal)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                # index/ lies on another disk than our folder.
                files.fs.unlink(made.path)
                return self._checks.rebuild_all()
            self._take(Seal(made.extents(sealed=True), made.state.header, self._skipped_count))
            return True

        return put_in_place

    def _made(
        self, header: IndexHeader, goes_on: GoesOn, log_first_offset: int, tags_from: int | None
    ) -> IndexFile | None:
        """The file in our own folder, not flushed; with entries of tags from an offset on (bytes). None when stopped."""
        files, view = self._checks.set, self._view
        path = files.rebuild_path(self.name)
        with suppress(FileNotFoundError):
            files.fs.unlink(path)
        files.files.forget(path)
        made = IndexFile.create(files.files, path, view.layout, files.header_before(view))
        begin, end = header.begin_commit_log_offset, header.end_commit_log_offset
        is_whole = begin >= log_first_offset
        with self._checks.read_log(begin if is_whole else -1) as batches:
            for batch in batches:
                if not goes_on():
                    return None
                if batch.columns is not None:
                    columns = batch.columns if tags_from is None else batch.columns.with_tags(tags_from)
                    _put(made, columns, header, self._skipped_count)
                if batch.next_offset > end or made.state.header.entry_count >= header.entry_count:
                    break
        return made

    def _is_same(self, made: IndexFile, header: IndexHeader, log_first_offset: int) -> bool:
        """Whether a file that was made is what this one was, as far as the log still has its records."""
        found = made.state.header
        if header.begin_commit_log_offset < log_first_offset:
            return header.entry_count <= 1 or found.end_commit_log_offset == header.end_commit_log_offset
        if self._checks.set.header_before(self._view) is None and log_first_offset:
            # Its first entry depends on the file before, which may have expired.
            return found[2:] == header[2:]
        return all(
            known.crc in (None, crc)
            for known, (_, _, crc) in zip(self._extents, made.extents(sealed=True), strict=True)
        )


class LiveIndexFile(CheckedFile):
    """The file that is being filled."""

    def __init__(self, checks: IndexChecks, file: IndexFile) -> None:
        super().__init__(file.path.name, file.path)
        self.file = file
        self._checks = checks

    @property
    def is_wanted(self) -> bool:
        """See CheckedFile."""
        return self._checks.set.live is self.file

    @property
    def write_count(self) -> int:
        """See CheckedFile."""
        return self.file.write_count

    @property
    def is_being_written(self) -> bool:
        """See CheckedFile."""
        return self.file.is_being_written

    def extents(self) -> Sequence[Extent]:
        """The entries: slots and header of the file on the disk are not used while it is filled."""
        return self.file.extents()

    def learn(self, extents: Sequence[Extent]) -> Repair | None:
        """See CheckedFile."""
        ((_, size_bytes, crc),) = extents

        def learn() -> bool:
            assert crc is not None
            self.file.learn(size_bytes // ENTRY_SIZE, crc)
            return True

        return learn

    def doubt(self, is_doubtful: bool) -> None:
        """See CheckedFile."""
        self.file.is_doubtful = is_doubtful

    def make_again(self, goes_on: GoesOn) -> Repair | None:
        """See CheckedFile."""
        return lambda: self._checks.rebuild_live() if self.is_wanted else True


def _border_in(header: IndexHeader, tags_from: int | None) -> int | None:
    """From which offset on (bytes) records of a file have entries of tags; 0: all, None: none."""
    if tags_from is None or tags_from > header.end_commit_log_offset:
        return None
    return tags_from if tags_from > header.begin_commit_log_offset else 0


def _put(made: IndexFile, columns: DispatchColumns, header: IndexHeader, skipped_count: int) -> None:
    """Adds the keys of these records that belong to the file."""
    begin_offset, end_offset = header.begin_commit_log_offset, header.end_commit_log_offset
    columns = columns.behind(begin_offset)
    hashes = columns.key_hashes.astype(np.int64)
    offsets = columns.commit_log_offsets[columns.key_records]
    times_millis = columns.store_times_millis[columns.key_records]
    begin = int(np.searchsorted(offsets, begin_offset))
    if len(offsets) > begin and int(offsets[begin]) == begin_offset:
        begin += skipped_count
    end = int(np.searchsorted(offsets, end_offset, side="right"))
    end = min(end, begin + header.entry_count - made.state.header.entry_count)
    for at in range(begin, end, WRITE_KEY_COUNT):
        part = slice(at, min(at + WRITE_KEY_COUNT, end))
        made.put(hashes[part], offsets[part], times_millis[part])
