"""What a walk asks of each record: its size only, that it is in order, or that all of it is right.

| check | a record counts if | for |
| --- | --- | --- |
| SizeCheck | it has a magic number and a possible size | places of records in a log that was checked before |
| DispatchCheck | all lengths add up, and it states the offset at which it stands | what builders need of it |
| FullCheck | that, its body has its CRC, the record its `__CRC32#` if it has one, and it is not torn | recovery, fsck |
"""

from store.derive.dispatch import DispatchRequest
from store.derive.record_dispatch import decode_dispatch
from store.format.record import Buffer, IncompleteRecordError, Record, corrupted, decode_record, incomplete
from store.format.record_layout import (
    CRC_MARKER,
    CRC_PROPERTY_SIZE_BYTES,
    FRAME_SIZE_BYTES_MIN,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_AND_MAGIC,
)
from store.walk.record_search import LogBytes
from store.walk.torn_record import is_torn


class SizeCheck:
    """Takes a record's place and size, by its first 8 bytes alone."""

    def begin(self, offset: int) -> None:
        """See `cursor.Check`."""

    def take(self, piece: Buffer, at: int, offset: int) -> tuple[tuple[int, int], int]:
        """The record's commit-log offset and size in bytes; see `cursor.Check`."""
        if len(piece) - at < SIZE_AND_MAGIC.size:
            raise incomplete(offset, max(len(piece) - at, 0), SIZE_AND_MAGIC.size)
        size_bytes, magic = SIZE_AND_MAGIC.unpack_from(piece, at)
        if magic not in (MAGIC_V1, MAGIC_V2) or size_bytes < FRAME_SIZE_BYTES_MIN:
            raise corrupted(offset, f"size {size_bytes} and magic {magic} are none of a record")
        return (offset, size_bytes), at + size_bytes


class DispatchCheck:
    """Takes what builders need of a record."""

    def begin(self, offset: int) -> None:
        """See `cursor.Check`."""

    def take(self, piece: Buffer, at: int, offset: int) -> tuple[DispatchRequest, int]:
        """See `cursor.Check`."""
        request = decode_dispatch(piece, at, offset)
        return request, at + request.record_size_bytes


class FullCheck:
    """Takes records that are right in all that can be proven, and counts them.

    Args:
        files: the log; None: nothing but the record's own bytes is judged, and it is never torn.

    Attributes:
        record_count: records taken.
        last_record: commit-log offset and size in bytes of the last one; None without one.
        last_store_time_millis: the greatest store time; 0 without a record.
        is_guarded: whether the record before the next one carries a `__CRC32#`.
    """

    def __init__(self, files: LogBytes | None) -> None:
        self._files = files
        self.record_count = 0
        self.last_record: tuple[int, int] | None = None
        self.last_store_time_millis = 0
        self.is_guarded = False

    def begin(self, offset: int) -> None:
        """See `cursor.Check`; looks whether a `__CRC32#` closes the record before."""
        guard_offset = offset - CRC_PROPERTY_SIZE_BYTES
        file = self._files.find(guard_offset) if self._files is not None else None
        self.is_guarded = (
            file is not None and offset <= file.last_offset and file.read(guard_offset, len(CRC_MARKER)) == CRC_MARKER
        )

    def take(self, piece: Buffer, at: int, offset: int) -> tuple[Record, int]:
        """See `cursor.Check`."""
        record = decode_record(piece, at=at, commit_log_offset=offset)
        if (
            self._files is not None
            and not record.is_guarded
            and is_torn(self._files, record, follows_guarded=self.is_guarded)
        ):
            raise IncompleteRecordError(
                f"The record at commit-log offset {offset}, the last one, is torn: its properties are not whole.",
                commitLogOffset=offset,
            )
        size_bytes = record.store_size_bytes
        self.count(1, (offset, size_bytes), record.store_time_millis, is_guarded=record.is_guarded)
        return record, at + size_bytes

    def count(
        self, record_count: int, last_record: tuple[int, int], store_time_millis: int, *, is_guarded: bool
    ) -> None:
        """Counts records that were taken, as the attributes say."""
        self.record_count += record_count
        self.last_record = last_record
        self.last_store_time_millis = max(self.last_store_time_millis, store_time_millis)
        self.is_guarded = is_guarded
