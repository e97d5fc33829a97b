"""A replica that is far behind its leader catches up: it fetches whole files beside the stream, and says how far it is.

CatchUp: how far a replica is that lacked much of its leader's log when its stream began.

FetchLogResponse is encoded by hand: to parse and serialize a message of 1 MiB would copy it twice more on each side.

FileStaging: files of the leader's log while they are fetched, in `reput/commitlog/fetched/`.

    fetched.json                 {"epoch": N}: whose log these files are of
    00000000001073741824         a file by its first offset, as long as what has come of it

They are no part of the log: a start does not look at them. What is there when a fetch begins again is kept, if the same leader
still leads; only bytes that were confirmed are fetched, so they are the same then. A crash may have lost some of them:
the whole file is checked once it is complete.

FileFetch: whole files of the leader's log, several at the same time.

    thread 1   |file 0 ....|check|flush|take|file 3 ...
    thread 2   |file 1 ......|check|flush|  take|file 4 ...        taken in order
    thread 3   |file 2 ....|check|flush|      take|...

- Each thread fetches a file into the staging directory, checks every record of it in full, flushes it, and waits for its turn:
  then the file is moved into the log, whole. So there are never more files in staging than threads.
- A kill leaves a log that ends with the last file taken, and in staging what had come of the next ones: they go on from there.
- The first failure ends all of it; the stream is opened again then.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from commitlog_svc.replication.log_copy import CopiedFile, LogCopy
from commitlog_svc.replication.replicated_log import ReplicatedLog
from reput.commitlog.v1 import replication_pb2 as pb
from store.errors import ServiceUnavailableError
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state
from store.format.paths import log_file_name, parse_log_file_name

RATE_SECONDS = 5.0  # the rate is that of the last ones
SAMPLE_SECONDS = 0.5
FAR_BYTES_MIN = 32 << 20  # what a replica lacks that is far behind: its progress is shown


class CatchUp:
    """Thread-safe.

    Args:
        begin_offset: where the stream began (bytes).
        end_offset: where the leader's log ended then (bytes).
        clock: seconds, rising.
    """

    def __init__(self, begin_offset: int, end_offset: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._begin_offset = begin_offset
        self.end_offset = end_offset
        self._clock = clock
        self._lock = threading.Lock()
        self._fetched_bytes = 0
        self._kept_bytes = 0
        self._samples: deque[tuple[float, int]] = deque([(clock(), 0)])

    def note(self, size_bytes: int) -> None:
        """So many bytes have come, or, negative, were thrown away."""
        with self._lock:
            self._fetched_bytes += size_bytes
            now = self._clock()
            if now - self._samples[-1][0] >= SAMPLE_SECONDS:
                self._samples.append((now, self._fetched_bytes))
                while now - self._samples[1][0] > RATE_SECONDS:
                    self._samples.popleft()

    def note_kept(self, size_bytes: int) -> None:
        """So many bytes are still there from before this process or this stream; they count as fetched, not as speed."""
        with self._lock:
            self._kept_bytes += size_bytes

    def progress(self, durable_offset: int = 0) -> pb.CatchUp:
        """How far it is now; what lies before `durable_offset` has surely come."""
        with self._lock:
            since, before = self._samples[0]
            seconds = self._clock() - since
            return pb.CatchUp(
                begin_offset=self._begin_offset,
                end_offset=self.end_offset,
                fetched_bytes=max(self._kept_bytes + self._fetched_bytes, durable_offset - self._begin_offset),
                total_bytes=self.end_offset - self._begin_offset,
                bytes_per_second=max(0, round((self._fetched_bytes - before) / seconds)) if seconds > 0 else 0,
            )


_TAG = 0x0A  # field 1, length-delimited
_SEVEN_BITS, _MORE = 0x7F, 0x80
_SIZE_BYTES_MAX = 5


def encode_fetched(data: bytes) -> bytes:
    """The message with these bytes of the log."""
    head, left = bytearray([_TAG]), len(data)
    while left > _SEVEN_BITS:
        head.append(left & _SEVEN_BITS | _MORE)
        left >>= 7
    head.append(left)
    return bytes(head) + data


def decode_fetched(message: bytes) -> memoryview:
    """The bytes of the log in a message; google.protobuf's DecodeError when it is none."""
    if message[:1] == bytes([_TAG]):
        size_bytes = shift = 0
        for at in range(1, min(len(message), 1 + _SIZE_BYTES_MAX)):
            size_bytes |= (message[at] & _SEVEN_BITS) << shift
            shift += 7
            if not message[at] & _MORE:
                if at + 1 + size_bytes == len(message):
                    return memoryview(message)[at + 1 :]
                break
    return memoryview(pb.FetchLogResponse.FromString(message).data)  # with fields of a later release


STAGING_NAME = "fetched"
STATE_NAME = "fetched.json"


class FileStaging:
    """See the top of this file.

    Args:
        fs: the disk port.
        directory: `reput/commitlog`.
    """

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._directory = directory / STAGING_NAME

    def keep(self, epoch: int, begin_offset: int) -> None:
        """Removes what is not of the leader of this epoch, or lies before an offset that the log has reached (bytes)."""
        state = read_json_state(self._fs, self._directory / STATE_NAME) or {}
        for name in self._fs.listdir(self._directory):
            offset = parse_log_file_name(name)
            if offset is not None and (state.get("epoch") != epoch or offset < begin_offset):
                self._fs.unlink(self._directory / name)

    def begin(self, epoch: int, begin_offset: int) -> None:
        """Files of the leader of this epoch are fetched from now on."""
        self.keep(epoch, begin_offset)
        self._fs.mkdirs(self._directory)
        write_json_state(self._fs, self._directory / STATE_NAME, {"epoch": epoch})

    def path_of(self, offset: int) -> Path:
        """The path to which the file with this first offset is fetched."""
        return self._directory / log_file_name(offset)

    def open(self, offset: int) -> tuple[int, int]:
        """A descriptor of the file with this first offset, and how many bytes of it are there."""
        path = self.path_of(offset)
        fd = self._fs.open(path, os.O_RDWR | os.O_CREAT)
        return fd, self._fs.stat_size(path)


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
