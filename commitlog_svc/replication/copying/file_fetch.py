"""FileFetch: whole files of the leader's log, several at the same time.

    thread 1   |file 0 ....|check|flush|take|file 3 ...
    thread 2   |file 1 ......|check|flush|  take|file 4 ...        taken in order
    thread 3   |file 2 ....|check|flush|      take|...

- Each thread fetches a file into the staging directory, checks every record of it in full, flushes it, and waits for its turn:
  then the file is moved into the log, whole. So there are never more files in staging than threads.
- A kill leaves a log that ends with the last file taken, and in staging what had come of the next ones: they go on from there.
- The first failure ends all of it; the stream is opened again then.
"""

import threading
from collections.abc import Callable
from typing import Any

import structlog

from commitlog_svc.replication.copying.catch_up import CatchUp
from commitlog_svc.replication.copying.fetch_frames import decode_fetched
from commitlog_svc.replication.copying.file_staging import FileStaging
from commitlog_svc.replication.copying.log_copy import CopiedFile, LogCopy
from commitlog_svc.replication.replicated_log import ReplicatedLog
from store.compiled import loading
from store.errors import ServiceUnavailableError
from store.walk.record_runs import KERNEL

KERNEL_SECONDS_MAX = 2.0  # longest wait for the kernel that checks; later it is used once it is ready
FLUSH_BYTES = 32 << 20  # a file is flushed so often while it comes: little is left to do at its end

_log = structlog.get_logger("reput.commitlog")


class FileFetch:
    """See the top of this file.

    Args:
        log: the log.
        copy: lets it grow; nobody else uses it until this is closed.
        epoch: of the leader.
        begin_offset: of the first file (commit-log offset); the log ends there.
        end_offset: behind the last one.
        count: files at the same time.
        call: FetchLog from an offset up to another one; its answers are bytes, and it can be cancelled.
        catch_up: told what has come.
        on_taken: told the end of the log after each file (bytes).

    Attributes:
        failure: what has ended it; None while all is well.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        copy: LogCopy,
        epoch: int,
        begin_offset: int,
        end_offset: int,
        count: int,
        call: Callable[[int, int], Any],
        catch_up: CatchUp,
        on_taken: Callable[[int], None],
    ) -> None:
        self.failure: Exception | None = None
        self._fs = log.fs
        self._file_bytes = log.files.file_size_bytes
        self._copy = copy
        self._epoch = epoch
        self._begin_offset = begin_offset
        self._end_offset = end_offset
        self._call = call
        self._catch_up = catch_up
        self._on_taken = on_taken
        self._staging = FileStaging(log.fs, log.directory)
        self._changed = threading.Condition()
        self._next_offset = begin_offset  # the next file that nobody fetches yet
        self._taken_offset = begin_offset
        self._calls: set[Any] = set()
        self._is_closing = False
        self._threads = [
            threading.Thread(target=self._run, name=f"replica-fetch-{number}", daemon=True) for number in range(count)
        ]

    def start(self) -> None:
        """Begins; errors of the disk as an append."""
        self._staging.begin(self._epoch, self._begin_offset)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends all calls and waits until nothing more is written."""
        self._end(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _end(self, failure: Exception | None) -> None:
        with self._changed:
            if not self._is_closing:
                self._is_closing, self.failure = True, failure
            for call in self._calls:
                call.cancel()
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while (offset := self._claim()) is not None:
                self._fetch(offset)
        except Exception as error:
            self._end(error)

    def _claim(self) -> int | None:
        with self._changed:
            offset = self._next_offset
            if self._is_closing or offset >= self._end_offset:
                return None
            self._next_offset += self._file_bytes
            return offset

    def _fetch(self, offset: int) -> None:
        fd, size_bytes = self._staging.open(offset)
        try:
            self._catch_up.note_kept(size_bytes)
            is_kept = size_bytes > 0
            self._receive(fd, offset, size_bytes)
            loading.wait(KERNEL, KERNEL_SECONDS_MAX)
            file = CopiedFile(self._fs, self._staging.path_of(offset), offset, self._file_bytes)
            if not file.is_whole and is_kept:  # a power cut took what had come before, or its disk has damaged it
                _log.warning("replica.file_fetched_anew", offset=offset, error=file.damage.message)
                self._catch_up.note_kept(-size_bytes)
                self._catch_up.note(size_bytes - self._file_bytes)
                self._fs.ftruncate(fd, 0)
                self._receive(fd, offset, 0)
                file = CopiedFile(self._fs, self._staging.path_of(offset), offset, self._file_bytes)
            if not file.is_whole:
                self._fs.ftruncate(fd, 0)
            file.refuse_damage()
            self._fs.fdatasync(fd)
        finally:
            self._fs.close(fd)
        self._take(file)

    def _receive(self, fd: int, offset: int, size_bytes: int) -> None:
        """Writes the bytes of a file behind the first `size_bytes`."""
        if size_bytes >= self._file_bytes:
            return
        call = self._begin_call(offset + size_bytes, offset + self._file_bytes)
        unflushed_bytes = 0
        try:
            for message in call:
                data = decode_fetched(message)
                if size_bytes + len(data) > self._file_bytes:
                    break
                self._fs.pwrite(fd, data, size_bytes)
                size_bytes += len(data)
                unflushed_bytes += len(data)
                self._catch_up.note(len(data))
                if unflushed_bytes >= FLUSH_BYTES:
                    self._fs.fdatasync(fd)
                    unflushed_bytes = 0
        finally:
            call.cancel()
            with self._changed:
                self._calls.discard(call)
        if size_bytes != self._file_bytes:
            raise ServiceUnavailableError(
                f"the leader sent {size_bytes} of the {self._file_bytes} bytes of the file {offset}",
                service="commitlog",
            )

    def _begin_call(self, begin_offset: int, end_offset: int) -> Any:
        with self._changed:
            if self._is_closing:
                raise ServiceUnavailableError("the fetch has ended", service="commitlog")
            call = self._call(begin_offset, end_offset)
            self._calls.add(call)
            return call

    def _take(self, file: CopiedFile) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._taken_offset == file.first_offset or self._is_closing)
            if self._is_closing:
                return
            self._copy.take_file(file)
            self._taken_offset = file.end_offset
            self._changed.notify_all()
        progress = self._catch_up.progress()
        _log.info(
            "replica.file_fetched",
            offset=file.first_offset,
            fetched_bytes=progress.fetched_bytes,
            total_bytes=progress.total_bytes,
            mb_per_second=round(progress.bytes_per_second / 1e6, 1),
        )
        self._on_taken(file.end_offset)
