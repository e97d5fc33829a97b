"""The one writer of the log: gives each frame its queue offset, its place and its store time, and writes it.

- Frames come prepared; under the lock only three numbers (and the frame's CRC) are filled in, and one `pwritev` for each
  file concerned writes the whole batch.
- A frame that does not fit, with 8 bytes for a blank behind it, closes the file with a blank and opens the next file.
- Of a batch that goes on in another file the later file is written first: until the current one is closed by its blank,
  nothing leads there, so a batch is never found half.
- New files are made before the first byte of a batch is written, so a full disk refuses the whole batch and leaves nothing.
- Queue offsets and the end of the log change only after the write succeeded. A write that failed half-way could leave whole
  frames behind the end, which a recovery would take for records: they are zeroed. Where a full disk refuses even that (one
  that never overwrites in place), appends are refused until it has worked; any other failure to do so fences the log.
- Store times never run backwards within one log, so that queues can be searched by time.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from store.errors import DiskFullError, FlushFailedError, InvalidMessageError, StoreError
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.format.record import BLANK_SIZE_BYTES, encode_blank, patch_record

QueueKey = tuple[str, int]


@dataclass(slots=True)
class AppendReceipt:
    """Where one message went: bytes of the log, messages of the queue, milliseconds since 1970."""

    commit_log_offset: int
    store_size_bytes: int
    queue_id: int
    queue_offset: int
    store_time_millis: int
    unique_key: str


class PreparedFrame(NamedTuple):
    """A frame that waits for its place, and the queue it goes to."""

    queue_key: QueueKey
    unique_key: str
    frame: bytearray


class Appender:
    """Writes frames to the end of the log, one batch at a time.

    Args:
        files: the log's files.
        queue_offsets: the next queue offset of each queue; taken over.
        end_offset: where the log ends.
        last_store_time_millis: of the last record.
        clock_millis: the time.
        refuse: raises when nothing may be written any more.
        fence: called with the error when a failed write could not be undone.
    """

    def __init__(
        self,
        files: MappedFileQueue,
        queue_offsets: dict[QueueKey, int],
        end_offset: int,
        last_store_time_millis: int,
        clock_millis: Callable[[], int],
        refuse: Callable[[], None],
        fence: Callable[[StoreError], None],
    ) -> None:
        self._files = files
        self._queue_offsets = queue_offsets
        self._clock_millis = clock_millis
        self._refuse = refuse
        self._fence = fence
        self._lock = threading.Lock()
        self._files_lock = threading.Lock()
        self.end_offset = end_offset
        self.last_store_time_millis = last_store_time_millis
        self.disk_full = False
        self.last_record: tuple[int, int] | None = None  # offset, size
        self._unfinished: list[tuple[int, int]] = []  # [begin, end) behind the end of the log, to be zeroed

    def append(self, frames: Sequence[PreparedFrame]) -> list[AppendReceipt]:
        """Writes the frames behind the end, in order; all of them or none.

        Raises:
            InvalidMessageError: a frame is larger than a log file can hold.
            DiskFullError: no room for the next file.
            FlushFailedError: the log is fenced.
        """
        capacity_bytes = self._files.file_size_bytes - BLANK_SIZE_BYTES
        for index, prepared in enumerate(frames):
            if len(prepared.frame) > capacity_bytes:
                raise InvalidMessageError(
                    f"the message takes {len(prepared.frame)} bytes in the log, a log file holds {capacity_bytes}",
                    field="body",
                    index=index,
                )
        with self._lock:
            self._refuse()
            self._zero_unfinished()
            store_time_millis = max(self._clock_millis(), self.last_store_time_millis)
            receipts: list[AppendReceipt] = []
            runs: list[tuple[int, list[bytearray | bytes], int]] = []
            assigned: dict[QueueKey, int] = {}
            next_offsets = self._queue_offsets
            position = run_begin = self.end_offset
            file_end = self._file_end(position)
            parts: list[bytearray | bytes] = []
            for prepared in frames:
                key, unique_key, frame = prepared
                size = len(frame)
                if position + size + BLANK_SIZE_BYTES > file_end:
                    if position < file_end:
                        parts.append(encode_blank(file_end - position))
                        runs.append((run_begin, parts, position + BLANK_SIZE_BYTES - run_begin))
                    position = run_begin = file_end
                    file_end += self._files.file_size_bytes
                    parts = []
                queue_offset = assigned.get(key)
                if queue_offset is None:
                    queue_offset = next_offsets.get(key, 0)
                assigned[key] = queue_offset + 1
                patch_record(frame, queue_offset, position, store_time_millis)
                parts.append(frame)
                receipts.append(AppendReceipt(position, size, key[1], queue_offset, store_time_millis, unique_key))
                position += size
            runs.append((run_begin, parts, position - run_begin))
            self._make_files(position)
            self._write(runs, position)
            next_offsets.update(assigned)
            self.last_store_time_millis = store_time_millis
            self.last_record = (receipts[-1].commit_log_offset, receipts[-1].store_size_bytes)
            self.end_offset = position
        return receipts

    def close(self) -> None:
        """Takes back what a failed write may have left; errors as `append`."""
        with self._lock:
            self._zero_unfinished()

    def snapshot(self) -> tuple[int, tuple[int, int] | None, dict[QueueKey, int]]:
        """End of the log, its last record (offset, size) and the next offset of each queue, at one moment."""
        with self._lock:
            return self.end_offset, self.last_record, dict(self._queue_offsets)

    def make_next_file_ahead(self) -> None:
        """Makes the file behind the current one when that is half full; DiskFullError when there is no room yet."""
        with self._files_lock:
            current = self._files.find(self.end_offset)
            if current is None or current is not self._files.files[-1]:
                return
            if self.end_offset - current.first_offset >= current.size_bytes // 2:
                self._files.add_next()
                self.disk_full = False

    def wants_next_file(self) -> bool:
        """Whether `make_next_file_ahead` would do something."""
        files = self._files.files
        return bool(files) and self.end_offset - files[-1].first_offset >= self._files.file_size_bytes // 2

    def _file_end(self, position: int) -> int:
        file = self._files.find(position)
        return file.last_offset if file is not None else position

    def _make_files(self, end_offset: int) -> None:
        if end_offset <= self._files.last_offset and self._files.files:
            return
        with self._files_lock:
            while end_offset > self._files.last_offset or not self._files.files:
                try:
                    self._files.add_next(self.end_offset)
                except DiskFullError:
                    self.disk_full = True
                    raise
            self.disk_full = False

    def _write(self, runs: Sequence[tuple[int, list[bytearray | bytes], int]], end_offset: int) -> None:
        try:
            for begin, parts, size_bytes in reversed(runs):
                if parts:
                    self._file(begin).write_parts(begin, parts, size_bytes)
        except (OSError, DiskFullError) as error:
            self._unfinished = [(begin, begin + size_bytes) for begin, _, size_bytes in runs if size_bytes]
            self._zero_unfinished()
            if isinstance(error, DiskFullError):
                self.disk_full = True
                raise
            raise self._fatal(f"the disk refused to write the log at {self.end_offset} ({error})") from error
        self.disk_full = False

    def _zero_unfinished(self) -> None:
        """Takes back what a failed write may have left; DiskFullError or FlushFailedError when that fails."""
        if not self._unfinished:
            return
        try:
            for begin, end in self._unfinished:
                self._file(begin).zero(begin, end)
        except DiskFullError:
            self.disk_full = True
            raise
        except (OSError, StoreError) as error:
            what = f"writing the log at {self.end_offset} failed and could not be undone ({error})"
            raise self._fatal(what) from error
        self._unfinished = []

    def _fatal(self, what: str) -> FlushFailedError:
        error = FlushFailedError(f"{what}: check the disk, then restart", commitLogOffset=self.end_offset)
        self._fence(error)
        return error

    def _file(self, offset: int) -> MappedFile:
        file = self._files.find(offset)
        assert file is not None, offset
        return file
