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
- Of a batch that is to be deduplicated, messages whose unique key is among the newest (`recent_keys.py`) are left out; that
  is found out and written under one lock, so of two at the same time one is written.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from commitlog_svc.queue_offsets import QueueKey, QueueOffsets
from store.errors import DiskFullError, FlushFailedError, InvalidMessageError, StoreError
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.format.record import BLANK_SIZE_BYTES, Record, encode_blank, patch_record

if TYPE_CHECKING:
    from commitlog_svc.recent_keys import KeyTable, RecentKeys
    from commitlog_svc.scanned_batch import ScannedBatch

Part = bytes | bytearray | memoryview


@dataclass(slots=True)
class AppendReceipt:
    """Where one message went: bytes of the log, messages of the queue, milliseconds since 1970."""

    commit_log_offset: int
    store_size_bytes: int
    queue_id: int
    queue_offset: int
    store_time_millis: int
    unique_key: str
    deduplicated: bool = False  # an older message's, nothing was written for this one

    @property
    def end_offset(self) -> int:
        """The byte behind the record."""
        return self.commit_log_offset + self.store_size_bytes


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
        read: the record at an offset, StoreError when there is none.
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
        read: Callable[[int], Record],
    ) -> None:
        self._files = files
        self._queue_offsets = QueueOffsets(queue_offsets)
        self._clock_millis = clock_millis
        self._refuse = refuse
        self._fence = fence
        self._read = read
        self._recent: RecentKeys | None = None
        self._lock = threading.Lock()
        self._files_lock = threading.Lock()
        self.end_offset = end_offset
        self.last_store_time_millis = last_store_time_millis
        self.disk_full = False
        self.last_record: tuple[int, int] | None = None  # offset, size
        self._unfinished: list[tuple[int, int]] = []  # [begin, end) behind the end of the log, to be zeroed

    def append(self, frames: Sequence[PreparedFrame], *, deduplicate: bool = False) -> list[AppendReceipt]:
        """Writes the frames behind the end, in order; all of them or none.

        Args:
            frames: 1 or more.
            deduplicate: leave those out whose unique key is known; `begin_recent_keys` came before.

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
            return self._append_new(frames) if deduplicate else self._append(frames)

    def append_scanned(self, batch: "ScannedBatch") -> list[AppendReceipt] | None:
        """Writes a batch behind the end; None when it was placed and has its own receipts. Errors as `append`.

        A batch that goes on in another file, or may hold known messages, is written frame by frame.
        """
        with self._lock:
            self._refuse()
            self._zero_unfinished()
            begin, end = self.end_offset, self.end_offset + batch.size_bytes
            if batch.deduplicate and (self._recent is None or batch.may_be_known(self._recent)):
                return self._append_new(batch.prepared_frames())
            store_time_millis = max(self._clock_millis(), self.last_store_time_millis)
            if end + BLANK_SIZE_BYTES > self._file_end(begin) or not batch.place(
                begin, store_time_millis, self._queue_offsets
            ):
                return self._append(batch.prepared_frames())
            try:
                self._write([(begin, [batch.view], batch.size_bytes)])
            except BaseException:
                batch.take_back(self._queue_offsets)
                raise
            self.last_store_time_millis = store_time_millis
            self.last_record = (end - batch.last_record_size_bytes, batch.last_record_size_bytes)
            self.end_offset = end
            if self._recent is not None and not batch.note(self._recent):
                offset = begin
                for (topic, _), unique_key, frame in batch.prepared_frames():
                    self._recent.note(topic, unique_key, offset)
                    offset += len(frame)
        return None

    def begin_recent_keys(self, recent: "RecentKeys") -> int:
        """From now on every message's unique key is entered there; the end of the log, before the first of them."""
        with self._lock:
            self._recent = recent
            return self.end_offset

    def seed_recent_keys(self, table: "KeyTable") -> None:
        """Adds the keys of messages from before `begin_recent_keys`."""
        with self._lock:
            if self._recent is not None:
                self._recent.take_older(table)

    def give_queue_slots(self, keys: list[QueueKey]) -> list[int]:
        """Moves queues where a kernel can count their offsets on; see QueueOffsets."""
        with self._lock:
            return self._queue_offsets.give_slots(keys)

    def close(self) -> None:
        """Takes back what a failed write may have left; errors as `append`."""
        with self._lock:
            self._zero_unfinished()

    def snapshot(self) -> tuple[int, tuple[int, int] | None, dict[QueueKey, int]]:
        """End of the log, its last record (offset, size) and the next offset of each queue, at one moment."""
        with self._lock:
            return self.end_offset, self.last_record, self._queue_offsets.as_dict()

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

    def _append_new(self, frames: Sequence[PreparedFrame]) -> list[AppendReceipt]:
        """Writes those whose unique key is not known, each key once; receipts for all."""
        fresh: list[PreparedFrame] = []
        fresh_keys: set[tuple[str, str]] = set()
        known: list[AppendReceipt | None] = []
        for prepared in frames:
            key = prepared.queue_key[0], prepared.unique_key
            receipt = None if key in fresh_keys else self._find_known(*key)
            known.append(receipt)
            if receipt is None and key not in fresh_keys:
                fresh_keys.add(key)
                fresh.append(prepared)
        written = iter(self._append(fresh) if fresh else [])
        seen: dict[tuple[str, str], AppendReceipt] = {}
        receipts: list[AppendReceipt] = []
        for prepared, found in zip(frames, known, strict=True):
            key, receipt = (prepared.queue_key[0], prepared.unique_key), found
            if receipt is None and key in seen:
                receipt = replace(seen[key], deduplicated=True)
            elif receipt is None:
                receipt = seen[key] = next(written)
            receipts.append(receipt)
        return receipts

    def _find_known(self, topic: str, unique_key: str) -> AppendReceipt | None:
        """The receipt of the oldest known message with this key; one that cannot be read is as good as none."""
        assert self._recent is not None
        for offset in self._recent.candidates(topic, unique_key):
            try:
                record = self._read(offset)
            except (StoreError, OSError):
                continue
            if record.topic == topic and record.unique_key == unique_key:
                return AppendReceipt(
                    offset,
                    record.store_size_bytes,
                    record.queue_id,
                    record.queue_offset,
                    record.store_time_millis,
                    unique_key,
                    deduplicated=True,
                )
        return None

    def _append(self, frames: Sequence[PreparedFrame]) -> list[AppendReceipt]:
        store_time_millis = max(self._clock_millis(), self.last_store_time_millis)
        receipts: list[AppendReceipt] = []
        runs: list[tuple[int, list[Part], int]] = []
        assigned: dict[QueueKey, int] = {}
        next_offset = self._queue_offsets.get
        position = run_begin = self.end_offset
        file_end = self._file_end(position)
        parts: list[Part] = []
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
                queue_offset = next_offset(key)
            assigned[key] = queue_offset + 1
            patch_record(frame, queue_offset, position, store_time_millis)
            parts.append(frame)
            receipts.append(AppendReceipt(position, size, key[1], queue_offset, store_time_millis, unique_key))
            position += size
        runs.append((run_begin, parts, position - run_begin))
        self._make_files(position)
        self._write(runs)
        self._queue_offsets.update(assigned)
        self.last_store_time_millis = store_time_millis
        self.last_record = (receipts[-1].commit_log_offset, receipts[-1].store_size_bytes)
        self.end_offset = position
        if self._recent is not None:
            for (key, unique_key, _), receipt in zip(frames, receipts, strict=True):
                self._recent.note(key[0], unique_key, receipt.commit_log_offset)
        return receipts

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

    def _write(self, runs: Sequence[tuple[int, list[Part], int]]) -> None:
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
