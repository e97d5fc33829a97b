"""The stored bytes of the messages that a caller wants, in log order, each record checked as recovery checks it.

Only the log is read: damaged or missing queues and indexes lose no message. Runs of records that the kernel found good are
looked through field by field; a `Record` is made only where the plain check had to judge.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from store.derive.dispatch import DispatchRequest
from store.derive.record_dispatch import decode_dispatch
from store.errors import RecordCorruptedError
from store.files.file_system import FileSystem
from store.files.mapped_files import MappedFileQueue
from store.format.paths import commit_log_dir
from store.format.record import Buffer
from store.walk.checks import FullCheck
from store.walk.cursor import RecordCursor
from store.walk.record_runs import RecordRun, RunCheck

OFFSET_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class FrameFilter:
    """Which messages are wanted; a field that is not given does not restrict.

    Attributes:
        topic: of this topic; None: of any.
        queue_id: of this queue.
        begin_queue_offset: at this position of its queue or behind it.
        end_queue_offset: before this one.
        key: one of its business keys is this, whole.
        begin_millis: stored at or after this (ms since 1970 UTC).
        end_millis: stored at or before this.
    """

    topic: str | None = None
    queue_id: int | None = None
    begin_queue_offset: int = 0
    end_queue_offset: int = OFFSET_MAX
    key: str | None = None
    begin_millis: int = -OFFSET_MAX
    end_millis: int = OFFSET_MAX

    def takes(self, request: DispatchRequest) -> bool:
        """Whether a message is wanted."""
        return (
            (self.topic is None or request.topic == self.topic)
            and (self.queue_id is None or request.queue_id == self.queue_id)
            and self.begin_queue_offset <= request.queue_offset < self.end_queue_offset
            and self.begin_millis <= request.store_time_millis <= self.end_millis
            and (self.key is None or self.key in request.keys)
        )


@dataclass(frozen=True, slots=True)
class WalkedLog:
    """What a walk saw.

    Attributes:
        first_offset: the log's first byte.
        end_offset: the first byte behind the last whole record.
        record_count: whole records, wanted or not.
        torn_tail: why the bytes at the end are no record, as a crash leaves them; None for zeros or the files' end.
    """

    first_offset: int
    end_offset: int
    record_count: int
    torn_tail: str | None


def walk_frames(
    fs: FileSystem,
    root: Path,
    wanted: FrameFilter,
    see: Callable[[str, bytes], None],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> WalkedLog:
    """Shows the topic and the stored bytes of each wanted message to `see`; what `see` raises ends the walk.

    Args:
        fs: the port to the disk.
        root: the store root.
        wanted: which messages.
        see: takes them.
        on_progress: told bytes of log read, and bytes of log there are.

    Raises:
        StoreCorruptedError: a log file is missing or has a wrong size.
        RecordCorruptedError: damage, with whole records behind it.
    """
    files = MappedFileQueue(fs, Path(commit_log_dir(str(root))), 0, writable=False)
    files.load()
    first = files.first_offset
    total_bytes = files.last_offset - first

    def see_all(piece: Buffer, at: int, end: int, offset: int) -> None:
        while at < end:
            request = decode_dispatch(piece, at, offset)
            size_bytes = request.record_size_bytes
            if wanted.takes(request):
                see(request.topic, bytes(piece[at : at + size_bytes]))
            at, offset = at + size_bytes, offset + size_bytes

    def pulse(offset: int) -> None:
        on_progress(offset - first, total_bytes)

    full = FullCheck(files)
    cursor = RecordCursor(files, first, RunCheck(full), on_piece=pulse)
    try:
        for found in cursor:
            if isinstance(found, RecordRun):
                see_all(found.piece, found.at, found.next_at, found.commit_log_offset)
            else:
                offset, size_bytes = found.commit_log_offset, found.store_size_bytes
                see_all(files.read(offset, size_bytes), 0, size_bytes, offset)
        behind = cursor.record_behind()
    finally:
        files.close()
    if behind is not None:
        raise RecordCorruptedError(
            f"The log is damaged at commit-log offset {cursor.offset} ({cursor.damage.message}) and goes on at {behind}: "
            "`reput fsck` shows what can be done.",
            commitLogOffset=cursor.offset,
        )
    on_progress(total_bytes, total_bytes)
    return WalkedLog(first, cursor.offset, full.record_count, cursor.why.message if cursor.why is not None else None)
