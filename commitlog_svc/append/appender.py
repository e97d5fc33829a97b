"""The one writer of the log: gives each record its queue offset, its place and its store time, and writes it.

- Records come encoded. Under the lock only three numbers and the record's CRC are filled in, and one `pwritev` for each
  log file writes the whole batch.
- A record needs room for itself and for the 8 bytes of a blank behind it. When the file has no such room, a blank closes
  the file and the record goes to the next one. An atomic batch goes to the next file as a whole: it never spans files.
- When a batch goes on in the next file, the next file is written first. Until its blank closes the current file, no walk
  reaches the next one, so a kill never leaves half of a batch.
- Files are made before the first byte of a batch is written: a full disk refuses the whole batch and leaves nothing.
- Queue offsets and the end of the log change after the write succeeded. A write that failed half-way may have left whole
  records behind the end, which a recovery would take for records of the log: they are zeroed. When a full disk refuses
  even that, appends are refused until the zeroing worked. Any other failure to zero fences the log.
- Store times never decrease within one log, so that queues can be searched by time.
- In a batch with `deduplicate`, messages whose unique key is among the newest (`recent_keys.py`) are left out. The search
  and the write hold the same lock, so of two equal messages at the same time one is written. A message that waits is known
  under its own topic, so it is also found when the second try comes after its time.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from commitlog_svc.append.internal_check import mark_request
from commitlog_svc.append.records import AppendReceipt, PreparedRecord
from commitlog_svc.append.topics.light_offsets import TABLE_COUNT, Changes, LightOffsets
from commitlog_svc.append.topics.queue_offsets import QueueKey, QueueOffsets
from commitlog_svc.append.waiting import waiting_of
from store.errors import DiskFullError, FlushFailedError, InvalidArgumentError, InvalidMessageError, StoreError
from store.files.mapped_files import MappedFile, MappedFileQueue
from store.format.properties import encode_light_positions
from store.format.record import BLANK_SIZE_BYTES, Record, add_property, encode_blank, patch_record
from store.format.request_mark import TAIL_SIZE_BYTES
from store.store_time import next_store_time

if TYPE_CHECKING:
    from pathlib import Path

    from commitlog_svc.append.recent_keys import KeyTable, RecentKeys
    from commitlog_svc.append.scanned_batch import ScannedBatch

Part = bytes | bytearray | memoryview


class Appender:
    """Writes batches to the end of the log, one at a time.

    Args:
        files: the log's files.
        queue_offsets: the next queue offset of each queue; the appender owns it from now on.
        light: likewise of each light queue.
        end_offset: where the log ends.
        last_store_time_millis: store time of the last record.
        clock_millis: milliseconds since 1970.
        refuse: raises when nothing may be written; gets whether the batch is an internal one, which has a disk reserve.
        fence: called with the error when a failed write could not be undone.
        read: the record at an offset, StoreError when there is none.

    Attributes:
        end_offset: where the log ends; it moves at ends of requests only.
        last_store_time_millis: store time of the last record.
        last_record: offset and size of the last record, None when not known.
        batch_topics: topics that have an inner batch in the log, each with the commit-log offset of the last one.
        disk_full: the disk refused the last write or the next file.
    """

    def __init__(
        self,
        files: MappedFileQueue,
        queue_offsets: dict[QueueKey, int],
        light: LightOffsets,
        end_offset: int,
        last_store_time_millis: int,
        clock_millis: Callable[[], int],
        refuse: Callable[[bool], None],
        fence: Callable[[StoreError], None],
        read: Callable[[int], Record],
    ) -> None:
        self._files = files
        self._queue_offsets = QueueOffsets(queue_offsets)
        self._light = light
        self._clock_millis = clock_millis
        self._refuse = refuse
        self._fence = fence
        self._read = read
        self._recent: RecentKeys | None = None
        self._lock = threading.Lock()
        self._files_lock = threading.Lock()
        self.end_offset = end_offset
        self.last_store_time_millis = self.greatest_store_time_millis = last_store_time_millis
        self.disk_full = False
        self.last_record: tuple[int, int] | None = None  # offset, size
        self.batch_topics: dict[str, int] = {}
        self._unfinished: list[tuple[int, int]] = []  # [begin, end) behind the end of the log, to be zeroed

    def append(self, records: Sequence[PreparedRecord], *, deduplicate: bool = False) -> list[AppendReceipt]:
        """Writes records behind the end, in order; all of them or none.

        Args:
            records: 1 or more.
            deduplicate: leave out records whose unique key is known; call `begin_recent_keys` before.

        Raises:
            InvalidMessageError: a record is larger than a log file can hold.
            DiskFullError: no room for the next file.
            FlushFailedError: the log is fenced.
        """
        self._check_sizes(records)
        with self._lock:
            self._refuse(False)
            self._zero_unfinished()
            return self._append_new(records) if deduplicate else self._append(records)

    def append_internal(self, records: Sequence[PreparedRecord], admit: Callable[[], None]) -> list[AppendReceipt]:
        """Writes the records of an internal request behind the end, with one `pwritev` into one log file.

        Args:
            records: 1 or more.
            admit: raises when this request may not be written; no other request is written between it and the write.

        Raises:
            InvalidArgumentError: see `check_fits`.
            DiskFullError, FlushFailedError: as `append`.
        """
        self.check_fits(records)
        with self._lock:
            self._refuse(True)
            admit()
            self._zero_unfinished()
            return self._append(records, is_whole=True)

    def barrier(self, admit: Callable[[], None]) -> None:
        """Call `admit` when no request is being written."""
        with self._lock:
            admit()

    def _check_sizes(self, records: Sequence[PreparedRecord]) -> None:
        for index, record in enumerate(records):
            if len(record.data) > self._file_room_bytes:
                raise InvalidMessageError(
                    f"the message takes {len(record.data)} bytes in the log, a log file holds {self._file_room_bytes}: "
                    "make it smaller",
                    field="body",
                    index=index,
                )

    def check_fits(self, records: Sequence[PreparedRecord]) -> None:
        """InvalidArgumentError when no log file can hold the records of one request."""
        size_bytes = sum(len(record.data) for record in records)
        if size_bytes > self._file_room_bytes:
            raise InvalidArgumentError(
                f"the request takes {size_bytes} bytes in the log, and it must fit into one log file, which holds "
                f"{self._file_room_bytes}: split the request or make it smaller",
                field="records",
                sizeBytes=size_bytes,
                sizeBytesMax=self._file_room_bytes,
            )

    def append_scanned(self, batch: "ScannedBatch") -> list[AppendReceipt] | None:
        """Writes a batch of the kernels behind the end; None when the kernels placed it: then they make its receipts.

        A batch that goes on in the next file, or that may hold known messages, is written record by record. Errors as
        `append`.
        """
        with self._lock:
            self._refuse(False)
            self._zero_unfinished()
            begin, end = self.end_offset, self.end_offset + batch.size_bytes
            if batch.deduplicate and (self._recent is None or batch.may_be_known(self._recent)):
                return self._append_new(batch.prepared_records())
            store_time_millis = next_store_time(self._clock_millis(), self.last_store_time_millis)
            if end + BLANK_SIZE_BYTES > self._file_end(begin) or not batch.place(
                begin, store_time_millis, self._queue_offsets
            ):
                return self._append(batch.prepared_records())
            try:
                self._write([(begin, [batch.view], batch.size_bytes)])
            except BaseException:
                batch.take_back(self._queue_offsets)
                raise
            self._note_time(store_time_millis)
            self.last_record = (end - batch.last_record_size_bytes, batch.last_record_size_bytes)
            self.end_offset = end
            if self._recent is not None and not batch.note(self._recent):
                offset = begin
                for record in batch.prepared_records():
                    self._recent.note(record.queue_key[0], record.unique_key, offset)
                    offset += len(record.data)
        return None

    def begin_recent_keys(self, recent: "RecentKeys") -> int:
        """Enters every message's unique key in `recent` from now on; returns the end of the log, before the first one."""
        with self._lock:
            self._recent = recent
            return self.end_offset

    def seed_recent_keys(self, table: "KeyTable") -> None:
        """Adds the keys of messages from before `begin_recent_keys`."""
        with self._lock:
            if self._recent is not None:
                self._recent.take_older(table)

    def write_copy(self, offset: int, data: bytes | memoryview) -> None:
        """Writes raw bytes of another writer; they are no part of the log until `take_copied`. For replication/log_copy.py.

        Args:
            offset: of the first byte; the begin of a file when the log is empty.
            data: any number of bytes.

        Raises:
            DiskFullError, FlushFailedError: as `append`.
        """
        with self._lock:
            self._zero_unfinished()
            if not self._files.files:
                self.end_offset = offset
                self._light.begin_at(offset)
            self._make_files(offset + len(data))
            try:
                self._files.write(offset, data)
            except DiskFullError:
                self.disk_full = True
                raise
            except OSError as error:
                raise self._fatal(f"the disk refused to write the log at {offset} ({error})") from error
            self.disk_full = False

    def take_file(self, path: "Path", first_offset: int) -> None:
        """Moves a whole file of another writer behind the last one; no part of the log until `take_copied`.

        Args:
            path: the file, flushed.
            first_offset: its first byte: the end of the log, or any file's begin when the log is empty.
        """
        with self._lock:
            self._zero_unfinished()
            with self._files_lock:
                if not self._files.files:
                    self.end_offset = first_offset
                    self._light.begin_at(first_offset)
                self._files.take(path, first_offset)

    def take_copied(
        self,
        end_offset: int,
        last_record: tuple[int, int] | None,
        last_store_time_millis: int,
        queue_offsets: Mapping[QueueKey, int],
        batch_topics: Mapping[str, int],
        light: Iterable[Mapping[str, tuple[int, int]]],
    ) -> None:
        """Makes bytes of `write_copy` part of the log.

        Args:
            end_offset: the end of the log now (bytes).
            last_record: offset and size of the last record; None when only a blank was added.
            last_store_time_millis: the greatest store time among the new records.
            queue_offsets: the next offset of each queue that has grown.
            batch_topics: topics that have an inner batch among the new records, each with the offset of the last one.
            light: light queues that have grown, each with its next position and the offset of its newest record (bytes);
                in parts, in the order of the log.
        """
        with self._lock:
            self._queue_offsets.update(queue_offsets)
            self.batch_topics.update(batch_topics)
            for part in light:
                self._light.update(part)
            self.last_record = last_record or self.last_record
            self._note_time(max(self.last_store_time_millis, last_store_time_millis))
            self.end_offset = end_offset

    def _note_time(self, store_time_millis: int) -> None:
        self.last_store_time_millis = store_time_millis
        self.greatest_store_time_millis = max(self.greatest_store_time_millis, store_time_millis)

    def zero_copy(self, begin_offset: int, end_offset: int) -> None:
        """Zeroes bytes of `write_copy` behind the end of the log; DiskFullError: that is done before the next write."""
        with self._lock:
            while begin_offset < end_offset:
                end = min(end_offset, self._file(begin_offset).last_offset)
                self._unfinished.append((begin_offset, end))
                begin_offset = end
            self._zero_unfinished()

    def give_queue_slots(self, keys: list[QueueKey]) -> list[int]:
        """Moves queues into the column that a kernel updates; see QueueOffsets.give_slots."""
        with self._lock:
            return self._queue_offsets.give_slots(keys)

    def close(self) -> None:
        """Zeroes what a failed write may have left; errors as `append`."""
        with self._lock:
            self._zero_unfinished()

    def snapshot(self) -> tuple[int, tuple[int, int] | None, dict[QueueKey, int], dict[str, int]]:
        """End of the log, its last record (offset, size), the next offset of each queue and the batch topics, at one moment."""
        with self._lock:
            end_offset, last_record, batch_topics = self.end_offset, self.last_record, dict(self.batch_topics)
            queue_offsets = self._queue_offsets.copy()
        return end_offset, last_record, queue_offsets(), batch_topics

    def safe_point(self) -> tuple[int, tuple[int, int] | None, dict[QueueKey, int], dict[str, int], Changes]:
        """`snapshot`, and what has changed in light queues since the last call; to be given back when it is not written."""
        with self._lock:
            light = self._light.take_changes()
            end_offset, last_record, batch_topics = self.end_offset, self.last_record, dict(self.batch_topics)
            queue_offsets = self._queue_offsets.copy()
        return end_offset, last_record, queue_offsets(), batch_topics, light

    def give_back(self, light: Changes) -> None:
        """The changes of a safe point that was not written."""
        with self._lock:
            self._light.give_back(light)

    def forget_light_queues(self, log_first_offset: int) -> None:
        """Forgets the light queues all of whose records lie before the log's first byte."""
        for number in range(TABLE_COUNT):
            # Of each alone: appends do not wait for all of them, which takes a second for a million queues.
            with self._lock:
                self._light.forget_before(log_first_offset, number)

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

    def _append_new(self, records: Sequence[PreparedRecord]) -> list[AppendReceipt]:
        """Writes the records whose unique key is not known, each key once; receipts for all."""
        fresh: list[PreparedRecord] = []
        fresh_keys: set[tuple[str, str]] = set()
        known: list[AppendReceipt | None] = []
        for record in records:
            key = record.topic, record.unique_key
            receipt = None if key in fresh_keys else self._find_known(*key)
            known.append(receipt)
            if receipt is None and key not in fresh_keys:
                fresh_keys.add(key)
                fresh.append(record)
        written = iter(self._append(fresh) if fresh else [])
        seen: dict[tuple[str, str], AppendReceipt] = {}
        receipts: list[AppendReceipt] = []
        for record, found in zip(records, known, strict=True):
            key, receipt = (record.topic, record.unique_key), found
            if receipt is None and key in seen:
                receipt = replace(seen[key], deduplicated=True)
            elif receipt is None:
                receipt = seen[key] = next(written)
            receipts.append(receipt)
        return receipts

    def _find_known(self, topic: str, unique_key: str) -> AppendReceipt | None:
        """The receipt of the oldest known message with this key; records that cannot be read do not count."""
        assert self._recent is not None
        for offset in self._recent.candidates(topic, unique_key):
            try:
                record = self._read(offset)
            except (StoreError, OSError):
                continue
            if record.unique_key != unique_key:
                continue
            waiting = waiting_of(record.topic, record.properties)
            if topic == (record.topic if waiting is None else waiting.topic):
                return AppendReceipt(
                    offset,
                    record.store_size_bytes,
                    record.queue_id if waiting is None else waiting.queue_id,
                    record.queue_offset,
                    record.store_time_millis,
                    unique_key,
                    deduplicated=True,
                    waiting=waiting,
                )
        return None

    def _give_light_positions(self, records: Sequence[PreparedRecord], *, is_marked: bool) -> dict[str, int]:
        """Writes the positions in light queues into the records; the next positions, which count once those are written."""
        light: dict[str, int] = {}
        new_count = 0
        for index, record in enumerate(records):
            if not record.light_queues:
                continue
            positions = []
            for queue in record.light_queues:
                position = light.get(queue)
                if position is None:
                    position = self._light.next_of(queue)
                    if position is None:
                        position = self._light.floor
                        new_count += 1
                light[queue] = position + 1
                positions.append(position)
            try:
                tail_size_bytes = TAIL_SIZE_BYTES if is_marked else None
                add_property(record.data, encode_light_positions(positions), tail_size_bytes)
            except InvalidMessageError as error:
                error.metadata["index"] = str(index)
                raise
        self._light.refuse_beyond(new_count)
        if is_marked:
            mark_request(records)
            self.check_fits(records)
        else:
            self._check_sizes(records)
        return light

    def _append(self, records: Sequence[PreparedRecord], *, is_whole: bool = False) -> list[AppendReceipt]:
        """Places and writes records; with `is_whole` into one file. Nothing has changed when it raises."""
        light: dict[str, int] = {}
        if any(record.light_queues for record in records):
            light = self._give_light_positions(records, is_marked=is_whole and len(records) > 1)
        whole_bytes = sum(len(record.data) for record in records) if is_whole else 0
        store_time_millis = next_store_time(self._clock_millis(), self.last_store_time_millis)
        receipts: list[AppendReceipt] = []
        runs: list[tuple[int, list[Part], int]] = []
        assigned: dict[QueueKey, int] = {}
        next_offset = self._queue_offsets.get
        position = run_begin = self.end_offset
        file_end = self._file_end(position)
        parts: list[Part] = []
        for key, unique_key, data, takes_queue_offset, waiting, _ in records:
            size = len(data)
            if position + max(size, whole_bytes) + BLANK_SIZE_BYTES > file_end:
                if position < file_end:
                    parts.append(encode_blank(file_end - position))
                    runs.append((run_begin, parts, position + BLANK_SIZE_BYTES - run_begin))
                position = run_begin = file_end
                file_end += self._files.file_size_bytes
                parts = []
            whole_bytes = 0  # the file has room for the rest
            queue_offset = 0
            if takes_queue_offset:
                found = assigned.get(key)
                queue_offset = found if found is not None else next_offset(key)
                assigned[key] = queue_offset + 1
            patch_record(data, queue_offset, position, store_time_millis)
            parts.append(data)
            queue_id = key[1] if waiting is None else waiting.queue_id
            receipts.append(
                AppendReceipt(position, size, queue_id, queue_offset, store_time_millis, unique_key, waiting=waiting)
            )
            position += size
        runs.append((run_begin, parts, position - run_begin))
        self._make_files(position)
        self._write(runs)
        self._queue_offsets.update(assigned)
        for queue, next_position in light.items():
            self._light.note(queue, next_position, receipts[0].commit_log_offset)
        self._note_time(store_time_millis)
        self.last_record = (receipts[-1].commit_log_offset, receipts[-1].store_size_bytes)
        self.end_offset = position
        if self._recent is not None:
            for record, receipt in zip(records, receipts, strict=True):
                if record.unique_key:
                    self._recent.note(record.topic, record.unique_key, receipt.commit_log_offset)
        return receipts

    @property
    def _file_room_bytes(self) -> int:
        """Bytes of records that a log file holds besides its closing blank."""
        return self._files.file_size_bytes - BLANK_SIZE_BYTES

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
        """Zeroes what a failed write may have left; DiskFullError or FlushFailedError when that fails."""
        if not self._unfinished:
            return
        try:
            for begin, end in self._unfinished:
                self._file(begin).zero(begin, end)
        except DiskFullError:
            self.disk_full = True
            raise
        except (OSError, StoreError) as error:
            what = f"a write of the log at {self.end_offset} failed and could not be undone ({error})"
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
