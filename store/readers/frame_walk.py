"""The whole frames of a log that a question is about, in log order, each checked as recovery checks it.

Needs the log alone: a store whose queues and indexes are damaged, behind or gone is read too, and no message is missed for
their sake. Stretches that the kernel found good are looked through field by field; no `Record` is made of what nobody asked
for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from store.dispatch import DispatchRequest
from store.errors import RecordCorruptedError
from store.files.file_system import FileSystem
from store.files.mapped_file_queue import MappedFileQueue
from store.format.paths import commit_log_dir
from store.format.record import Record, decode_dispatch
from store.kernels import loading
from store.readers.log_walk import WalkEnd, find_record_behind, walk_log
from store.readers.record_runs import KERNEL

OFFSET_MAX = (1 << 63) - 1
KERNEL_BYTES = 32 << 20  # from a log so long on the second that loading the kernel takes is won back


@dataclass(frozen=True, slots=True)
class FrameFilter:
    """Which messages are wanted; what is not given does not matter.

    Attributes:
        topic: of this topic; None: of any.
        queue_id: of this queue.
        begin_queue_offset: at this position of its queue or behind it.
        end_queue_offset: before this one.
        key: one of its business keys is this, whole.
        begin_millis: stored at or after this.
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
    """Shows the topic and the whole frame of each wanted message to `see`; what that raises ends the walk.

    Args:
        fs: the door to the disk.
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

    def see_record(record: Record) -> None:
        offset, size_bytes = record.commit_log_offset, record.store_size_bytes
        frame = files.read(offset, size_bytes)
        _see_frame(frame, 0, offset)

    def _see_frame(chunk: bytes, at: int, offset: int) -> int:
        request = decode_dispatch(chunk, at, offset)
        size_bytes = request.record_size_bytes
        if wanted.takes(request):
            see(request.topic, chunk[at : at + size_bytes])
        return size_bytes

    def see_stretch(chunk: bytes, begin: int, end: int, offset: int) -> None:
        at = begin
        while at < end:
            at += _see_frame(chunk, at, offset + at - begin)

    def pulse(reached: WalkEnd) -> None:
        if reached.end_offset - first >= KERNEL_BYTES:
            loading.load_in_background(KERNEL)
        on_progress(reached.end_offset - first, total_bytes)

    try:
        end = walk_log(files, first, see_record, pulse, lambda queue_offsets: None, see_stretch)
        behind = find_record_behind(files, end.end_offset) if end.end_offset < files.last_offset else None
    finally:
        files.close()
    if behind is not None:
        why = end.why.message if end.why is not None else "there are zeros"
        raise RecordCorruptedError(
            f"The log is damaged at commit-log offset {end.end_offset} ({why}) and goes on at {behind}: "
            "`reput fsck` shows what can be done.",
            commitLogOffset=end.end_offset,
        )
    on_progress(total_bytes, total_bytes)
    return WalkedLog(first, end.end_offset, end.record_count, end.why.message if end.why is not None else None)
