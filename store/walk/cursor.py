"""RecordCursor: the one way over the records of a log.

    file  |record|record|record| ... |record|blank|   the next file ...
                  ^ offset                  closes its file: the walk goes on in the next one

The cursor reads the log in pieces, goes from record to record and from file to file, and stops at a declared end. A *check*
says what stands at a place, and how much of it must be right (`checks.py`; for many records at a time `record_runs.py`).

A walk ends at the first place where no record and no closing blank stands. What that means depends on the caller:

- STOP is for a log in use: nothing behind the place is read. `why` says what is wrong; it is None for zeros, which are the
  end of a log that was not torn. A caller that must tell a torn tail from damage asks `record_behind()`: a tail is what a
  crash leaves, and no record follows it. Recovery and export do that.
- With `skip` the walk goes on at the next record that is whole and knows its place, and `skip` is told what lies between.
  fsck and the audit do that. Without a record behind it the place ends the walk as above.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from store.errors import RecordCorruptedError
from store.files.mapped_files import MappedFile
from store.format.record import Buffer, IncompleteRecordError, corrupted, decode_header
from store.format.record_layout import BLANK_SIZE_BYTES, HEADER_BYTES_MAX
from store.walk.record_search import OFFSET_MAX, LogBytes, find_record_behind

PIECE_BYTES = 1 << 20  # a piece that is still in the CPU's cache when it is checked
# Behind damage less is read, and twice as much each time that goes well: damage seldom comes alone.
PIECE_BYTES_MIN = 64 << 10

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Check(Protocol[T_co]):
    """What a walk asks of the records that it comes by."""

    def begin(self, offset: int) -> None:
        """The walk begins at this commit-log offset, or goes on there behind damage."""

    def take(self, piece: Buffer, at: int, offset: int) -> tuple[T_co, int]:
        """What stands at piece[at], which is commit-log offset `offset`: one record or more; and where the next one begins.

        The next one may begin behind the piece, if the check needs no more than a record's head.

        Raises:
            IncompleteRecordError: the piece ends inside the record.
            RecordCorruptedError: no record stands here.
        """


class OneFile:
    """A log file by itself."""

    def __init__(self, file: MappedFile) -> None:
        self._file = file

    def find(self, offset: int) -> MappedFile | None:
        """The file, if it covers this commit-log offset."""
        return self._file if self._file.first_offset <= offset < self._file.last_offset else None


class PieceBuffer:
    """Reads each piece into the same bytes: for checks that keep nothing of a piece.

    A fresh piece for each read costs as much as looking through it with a kernel.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()

    def read(self, file: MappedFile, offset: int, size_bytes: int) -> memoryview:
        """Up to so many bytes of a file from a commit-log offset on; valid until the next call."""
        if len(self._bytes) < size_bytes:
            self._bytes = bytearray(size_bytes)
        view = memoryview(self._bytes)[:size_bytes]
        return view[: file.read_into(offset, view)]


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes `[begin, end)` of the log that are no record, with a record behind them.

    Attributes:
        begin: commit-log offset of the first byte.
        end: of the record behind them.
        why: what is wrong with the first bytes; None for zeros.
    """

    begin: int
    end: int
    why: RecordCorruptedError | None


class RecordCursor(Generic[T]):
    """Walks the records of a log once, in log order; never raises for bad bytes.

    Args:
        files: the log.
        begin_offset: a record's start, or a file's (commit-log offset).
        check: what is asked of a record.
        end_offset: no record begins here or behind, and none reaches beyond (a blank may). None: as far as there are files.
        skip: told each stretch of damage before the walk goes on behind it; None: damage ends the walk.
        on_piece: told how far the walk is (commit-log offset), before each piece is read.
        piece_bytes: read at a time; a larger record is read whole.
        read: reads up to so many bytes of a file from an offset on; None: `MappedFile.read`.

    Attributes:
        offset: the first byte behind the last record or blank (commit-log offset).
        why: what is wrong with the bytes there; None while the walk goes on, for zeros, and at the end.
    """

    def __init__(
        self,
        files: LogBytes,
        begin_offset: int,
        check: Check[T],
        *,
        end_offset: int | None = None,
        skip: Callable[[Gap], None] | None = None,
        on_piece: Callable[[int], None] | None = None,
        piece_bytes: int = PIECE_BYTES,
        read: Callable[[MappedFile, int, int], Buffer] | None = None,
    ) -> None:
        self.offset = begin_offset
        self.why: RecordCorruptedError | None = None
        self._files = files
        self._check = check
        self._end_offset = OFFSET_MAX if end_offset is None else end_offset
        self._skip = skip
        self._on_piece = on_piece
        self._piece_bytes_max = self._piece_bytes = max(piece_bytes, HEADER_BYTES_MAX)
        self._read_file = read or MappedFile.read

    def __iter__(self) -> Iterator[T]:
        self._check.begin(self.offset)
        while True:
            while self.offset < self._end_offset and (file := self._files.find(self.offset)) is not None:
                if not (yield from self._walk_file(file)):
                    break
            if self._skip is None or (behind := self.record_behind()) is None:
                return
            self._skip(Gap(self.offset, behind, self.why))
            self.offset, self.why = behind, None
            self._piece_bytes = min(PIECE_BYTES_MIN, self._piece_bytes_max)
            self._check.begin(behind)

    @property
    def damage(self) -> RecordCorruptedError:
        """What is wrong where the walk has ended, zeros too: for a walk that should have come further."""
        return self.why or corrupted(self.offset, "there are zeros where a record should be")

    def record_behind(self) -> int | None:
        """The next whole, good record behind the place where the walk has ended; None without one before the end."""
        return find_record_behind(self._files, self.offset, self._end_offset)

    def _walk_file(self, file: MappedFile) -> Generator[T, None, bool]:
        """Yields the records of one file; returns whether the walk goes on in the next one."""
        limit = min(file.last_offset, self._end_offset)
        take = self._check.take
        piece, at = self._read(file, limit, 0), 0
        while self.offset < limit:
            try:
                item, next_at = take(piece, at, self.offset)
            except RecordCorruptedError as error:
                outcome = self._look_closer(file, limit, piece, at, error)
                if isinstance(outcome, bool):
                    return outcome
                piece, at = outcome, 0
                continue
            if self.offset + next_at - at > limit:
                self.why = corrupted(self.offset, f"its {next_at - at} bytes reach beyond {limit}, where the log ends")
                return False
            self.offset += next_at - at
            at = next_at
            yield item
        return True

    def _look_closer(
        self, file: MappedFile, limit: int, piece: Buffer, at: int, error: RecordCorruptedError
    ) -> Buffer | bool:
        """Decides what stands where the check took nothing.

        Returns:
            Bytes from this offset on, to be checked instead of the piece; or whether the walk goes on in the next file.
        """
        offset, left = self.offset, max(len(piece) - at, 0)
        if left < HEADER_BYTES_MAX and at > 0 and offset + left < limit:
            return self._read(file, limit, 0)
        head = bytes(piece[at : at + HEADER_BYTES_MAX])
        if not any(head[:BLANK_SIZE_BYTES]):
            return False
        self.why = error
        try:
            header = decode_header(head)
        except RecordCorruptedError:
            return False
        end = offset + header.size_bytes
        if header.is_blank and end == file.last_offset:
            self.offset, self.why = end, None
            return True
        if header.is_blank:
            self.why = corrupted(offset, f"a blank of {header.size_bytes} bytes does not end where its file ends")
        elif end > file.last_offset:
            self.why = corrupted(offset, f"a record of {header.size_bytes} bytes does not fit its file")
        elif isinstance(error, IncompleteRecordError) and left < header.size_bytes <= limit - offset:
            fresh = self._read(file, limit, header.size_bytes)
            if at > 0 or len(fresh) > left:
                self.why = None
                return fresh
        return False

    def _read(self, file: MappedFile, limit: int, size_bytes_min: int) -> Buffer:
        if self._on_piece is not None:
            self._on_piece(self.offset)
        size_bytes = max(self._piece_bytes, size_bytes_min)
        self._piece_bytes = min(2 * self._piece_bytes, self._piece_bytes_max)
        return self._read_file(file, self.offset, min(size_bytes, limit - self.offset))
