"""Writes safe points while the log grows: flushes, and after them mark, snapshot and checkpoint.

    records written ──fdatasync──▶ durable (mark) ──once a second──▶ snapshot.json, RocketMQ's checkpoint

None of these files is ever ahead of the disk.

CheckpointFile: RocketMQ's `checkpoint`, as this log and its two builders fill it.

It holds store times: of the last flushed record, of the last one in the queues and of the last one in the indexes. RocketMQ
starts its recovery at the smallest of them, so none may be ahead of the disk. This project recovers from offsets of its own
and writes the file for RocketMQ only.
"""

import dataclasses
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

from commitlog_svc.append.appender import Appender
from commitlog_svc.append.group_commit import GroupCommit
from commitlog_svc.append.topics.light_offsets import LightJournal
from commitlog_svc.confirm_offset import ConfirmOffset
from commitlog_svc.lookup import TailStarts
from commitlog_svc.recovery.recovery import RecoveredLog
from commitlog_svc.recovery.safe_point import DurableMark, Snapshot, write_snapshot
from commitlog_svc.reput.followers import SWITCHED_OFF, Follower, FollowerRegistry
from store.errors import LogFileLostError, StoreCorruptedError
from store.files.file_system import FileSystem
from store.files.json_state import pause_seconds, read_derived, write_bytes_atomic
from store.files.mapped_files import MappedFile, MappedFileQueue
from store.format import paths
from store.format.checkpoint import StoreCheckpoint, decode_checkpoint, encode_checkpoint

QUEUE_BUILDER = "consumequeue"
INDEX_BUILDER = "index"


class CheckpointFile:
    """The file of one store root; thread-safe.

    Args:
        fs: the disk port.
        root: the store root.
        followers: has the progress of the builders.
    """

    def __init__(self, fs: FileSystem, root: Path, followers: FollowerRegistry) -> None:
        self._fs = fs
        self._path = Path(paths.checkpoint_file(str(root)))
        self._followers = followers
        self._lock = threading.Lock()
        self._written = StoreCheckpoint()

    def load(self) -> None:
        """Reads the file; a damaged one is ignored."""
        data = read_derived(self._fs, self._path)
        if data is not None:
            try:
                self._written = decode_checkpoint(data)
            except StoreCorruptedError:
                self._written = StoreCheckpoint()

    @property
    def confirm_offset(self) -> int:
        """The confirmed offset in the file (bytes); 0 when it has none."""
        return self._written.confirm_phy_offset

    def write(self, confirm_offset: int, flushed_store_time_millis: int, *, is_replicated: bool = False) -> None:
        """Replaces the file if anything has changed.

        Args:
            confirm_offset: up to where the log may be shown (bytes).
            flushed_store_time_millis: of the newest flushed record.
            is_replicated: whether the log has replicas.

        Raises:
            DiskFullError, FlushFailedError: the old file stays.
        """
        with self._lock:
            queues, indexes = (self._followers.find(name) for name in (QUEUE_BUILDER, INDEX_BUILDER))
            checkpoint = dataclasses.replace(
                self._written,
                physic_msg_timestamp=flushed_store_time_millis,
                logics_msg_timestamp=_store_time_millis(queues, self._written.logics_msg_timestamp),
                index_msg_timestamp=_store_time_millis(indexes, self._written.index_msg_timestamp),
                # Without replicas written only where a broker wrote one; a value ahead of the log would mislead that broker.
                confirm_phy_offset=confirm_offset if self._written.confirm_phy_offset or is_replicated else 0,
            )
            checkpoint = checkpoint.limited_to(confirm_offset)  # the log may have been cut since a broker wrote it
            if checkpoint == self._written:
                return
            write_bytes_atomic(self._fs, self._path, encode_checkpoint(checkpoint))
            self._written = checkpoint


def _store_time_millis(builder: Follower | None, written_millis: int) -> int:
    """The store time that a builder has reported; before its first report the time in the file."""
    if builder is None or builder.next_offset in (None, SWITCHED_OFF):
        return written_millis
    return builder.store_time_millis


# A snapshot is written early once so many bytes are not in the last one; see SNAPSHOT_SECONDS for what a restart walks.
SNAPSHOT_BYTES = 32 << 20


class SafePointWriter:
    """Flushes the log's files and writes how far they are safe; one thread flushes, another writes safe points.

    Args:
        fs: the disk port.
        directory: `reput/commitlog`.
        files: the log's files.
        checkpoint: RocketMQ's checkpoint.
        closing: set once no more flush will come that a caller could wait for.
        clock: seconds, rising.

    Attributes:
        written_times: ends of appends that are not flushed, each with its store time in milliseconds; AppendPath adds them.
        flushed_store_time_millis: of the newest flushed record.
        snapshot_offset: offset of the last snapshot (bytes); -1 when this process has not written one.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        files: MappedFileQueue,
        checkpoint: CheckpointFile,
        closing: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._next_at = clock()
        self._fs = fs
        self._directory = directory
        self._files = files
        self._checkpoint = checkpoint
        self._closing = closing
        self._appender: Appender | None = None
        self._commits: GroupCommit | None = None
        self._confirm: ConfirmOffset | None = None
        self._mark: DurableMark | None = None
        self._light_journal = LightJournal(fs, directory)
        self._tail_starts = TailStarts()
        self.written_times: deque[tuple[int, int]] = deque()
        self.flushed_store_time_millis = 0
        self.snapshot_offset = -1

    def begin(self, found: RecoveredLog, appender: Appender, commits: GroupCommit, confirm: ConfirmOffset) -> None:
        """Begins after a recovery.

        Args:
            found: the recovered log.
            appender: has the ends of the log and the queues.
            commits: has the flushed offset, and calls `flush`.
            confirm: has the confirm offset.
        """
        self._appender, self._commits, self._confirm = appender, commits, confirm
        self._light_journal = found.light_journal or self._light_journal
        self._tail_starts = found.tail_starts
        self.snapshot_offset = found.end_offset if found.record_count == 0 else -1
        self.flushed_store_time_millis = found.last_store_time_millis

    def open_mark(self, end_offset: int) -> None:
        """Begins the durable mark at the end of the recovered log, unless that was done before; DiskFullError without room."""
        if self._mark is None:
            self._mark = DurableMark(self._fs, self._directory)
            self._mark.begin(end_offset)

    def close(self) -> None:
        """Closes the mark."""
        if self._mark is not None:
            self._mark.close()

    def flush(self, begin_offset: int, end_offset: int) -> None:
        """Flushes the files that hold these bytes; called by the group commit alone.

        Raises:
            FlushFailedError: the disk refused.
            LogFileLostError: the bytes are on the disk, in a file that no start will find.
        """
        for file in self._files.files:
            if file.first_offset < end_offset and file.last_offset > begin_offset:
                file.flush()
                _refuse_lost(file)
        if self._mark is not None:
            self._mark.write(end_offset)
        self._tail_starts.note(end_offset)  # where a request ends, the next record starts
        while self.written_times and self.written_times[0][0] <= end_offset:
            store_time_millis = self.written_times.popleft()[1]
            self.flushed_store_time_millis = max(self.flushed_store_time_millis, store_time_millis)

    def check_files(self) -> None:
        """LogFileLostError when a file of the log has lost its name or its directory; on the thread that removes old ones."""
        for file in self._files.files:
            _refuse_lost(file)

    def write_checkpoint(self) -> None:
        """Writes RocketMQ's checkpoint."""
        assert self._confirm is not None
        self._checkpoint.write(
            self._confirm.confirm_offset, self.flushed_store_time_millis, is_replicated=self._confirm.is_limited
        )

    def write_early(self) -> None:
        """Writes a safe point when much was appended since the last one."""
        assert self._appender is not None
        if self._appender.end_offset - max(self.snapshot_offset, self._files.first_offset) >= SNAPSHOT_BYTES:
            self.write_in_turn()

    def write_in_turn(self) -> None:
        """Writes a safe point, unless the last one had so many queues that the next is not due yet."""
        if self._clock() >= self._next_at:
            self.write()

    def write(self) -> None:
        """Writes a snapshot of the log as it is now, once that is flushed, and the checkpoint."""
        assert self._appender is not None
        assert self._commits is not None
        if self._appender.end_offset != self.snapshot_offset and self._appender.last_record is not None:
            begin = self._clock()
            end_offset, last_record, queue_offsets, batch_topics, light = self._appender.safe_point()
            seconds = self._clock() - begin
            assert last_record is not None
            last_store_time_millis = self._appender.greatest_store_time_millis
            last_frame = self._files.read(*last_record)
            try:
                if self._closing.is_set():
                    assert self._commits.flushed_offset >= end_offset
                else:
                    self._commits.wait_flushed(end_offset)
                self._light_journal.write(light, end_offset)
            except BaseException:
                self._appender.give_back(light)
                raise
            snapshot = Snapshot(
                end_offset,
                self._files.first_offset,
                last_record,
                zlib.crc32(last_frame),
                last_store_time_millis,
                queue_offsets,
                batch_topics,
                light=self._light_journal.place,
                tail_starts=self._tail_starts.offsets,
            )
            begin = self._clock()
            write_snapshot(self._fs, self._directory, snapshot)
            self._light_journal.remove_old()
            self.snapshot_offset = end_offset
            now = self._clock()
            self._next_at = now + pause_seconds(len(queue_offsets), seconds + now - begin)
        self.write_checkpoint()


def _refuse_lost(file: MappedFile) -> None:
    if not file.is_in_place():
        raise LogFileLostError(
            f"{file.path} was removed or moved while the log was open, so nothing more is acknowledged: put the file or its "
            "directory back, or bring it back from a copy, then restart",
            file=file.path,
            offset=file.first_offset,
        )
