"""Reads a log's records from its files, whose descriptors the commitlog service of the same machine hands over.

Why: the answer to a query is a few hundred bytes of a file that this machine has in memory. Asking another process for
them costs twice as much as reading them.

A record is read here only where the answer is surely the one that the service would give. In every other case the service
is asked: only it reports what is absent, what is damaged, and how far the log goes. The conditions:
- The descriptor comes from the service itself (services/local/wire.py), read-only; no path has to be known or right.
- The process that handed the files over still runs: the connection by which they came is open.
- The record ends before an end of the log that this process has reported, or that its answers prove. While a process runs,
  its log's end never goes back, so bytes before it are never written again.
- Its file has a name: retention removes the name when it removes the file.
- Its bytes are consistent and hold the offset, by the check that the service makes, too (store/walk/record_reader.py).
"""

import os
import select
import threading
import time
from collections import OrderedDict

from google.protobuf.message import DecodeError

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.local.client import CLOSED_SECONDS, Connection, LocalClient
from services.local.wire import LocalMethod, WireError
from services.status import StatusError
from store.errors import RecordCorruptedError, StoreError
from store.files.open_files import open_file_count_max
from store.format.record import Record
from store.walk.record_reader import FIRST_READ_BYTES, read_record_at

# 64 GiB of log, in files of the default size; a file that was dropped is handed over again when it is needed.
FILE_COUNT_MAX = 64
OPEN_SECONDS_MAX = 1.0
# The size that each record begins with, also the blank one at the end of a file.
RECORD_SIZE_BYTES = 4
NOTHING_WRITTEN = bytes(RECORD_SIZE_BYTES)


class _Descriptor:
    """Closed with its last user: another thread may be reading."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class _Link:
    """One process of the service: the connection to it, the files that it handed over, and the range that it reported."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.end_offset = 0
        self.first_offset = 0
        self.file_size_bytes = 0
        self.files: OrderedDict[int, _Descriptor] = OrderedDict()

    def is_alive(self) -> bool:
        """Whether the connection is open and silent, as between two calls; asked by any thread."""
        incoming = select.poll()
        incoming.register(self.connection.plain, select.POLLIN)
        return not incoming.poll(0)

    def file_offset(self, commit_log_offset: int) -> int:
        """The first offset of the file that holds an offset."""
        return commit_log_offset - (commit_log_offset - self.first_offset) % self.file_size_bytes

    def __del__(self) -> None:
        self.connection.close()


class FilePart:
    """The part of a log file that may be read, from its first byte on.

    Attributes:
        fd: the file, open as long as this object lives.
        file_offset: commit-log offset of its first byte.
        end_offset: commit-log offset of the first byte that may not be read.
    """

    def __init__(self, link: _Link, file: _Descriptor, file_offset: int) -> None:
        self.fd = file.fd
        self.file_offset = file_offset
        self.end_offset = min(link.end_offset, file_offset + link.file_size_bytes)
        self._link = link
        self._file = file

    def is_at_hand(self, commit_log_offset: int) -> bool:
        """Whether the record at an offset needs one read only, and that waits for no disk.

        False too where the file system cannot tell: tmpfs, and some in networks.
        """
        head = bytearray(min(FIRST_READ_BYTES, self.end_offset - commit_log_offset))
        try:
            size_bytes = os.preadv(self.fd, [head], commit_log_offset - self.file_offset, os.RWF_NOWAIT)
        except OSError:
            return False
        return size_bytes == len(head) and int.from_bytes(head[:RECORD_SIZE_BYTES]) <= size_bytes

    def has_name(self) -> bool:
        """Whether retention has not removed the file; asked after a read, because then it was there during the read."""
        if os.fstat(self.fd).st_nlink > 0:
            return True
        self._link.files.pop(self.file_offset, None)
        return False


class LogFiles:
    """The files of one log, as far as they were handed over; thread-safe.

    Args:
        local: to the commitlog service.
        file_count_max: files kept open, if the limit of the process allows as many.

    Attributes:
        broker_name: the name of the service's shard; empty before a record was read.
    """

    def __init__(self, local: LocalClient, file_count_max: int = FILE_COUNT_MAX) -> None:
        self.broker_name = ""
        self._local = local
        self._file_count_max = min(file_count_max, open_file_count_max())
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._closed_until = 0.0

    def read(self, commit_log_offset: int, timeout_seconds: float) -> Record | None:
        """The record that starts at an offset; None when the service has to be asked.

        Args:
            commit_log_offset: in bytes.
            timeout_seconds: for a file that has to be handed over first, which takes at most OPEN_SECONDS_MAX.
        """
        part = self.part(commit_log_offset, timeout_seconds)
        if part is None:
            return None
        try:
            record = read_record_at(
                lambda offset, size_bytes: os.pread(part.fd, size_bytes, offset - part.file_offset),
                commit_log_offset,
                part.end_offset - commit_log_offset,
            )
            return record if part.has_name() else None
        except (OSError, RecordCorruptedError):
            return None

    def part(self, commit_log_offset: int, timeout_seconds: float, *, end_offset: int = 0) -> FilePart | None:
        """What may be read of the file that holds an offset; None when the service has to be asked.

        Args:
            commit_log_offset: in bytes.
            timeout_seconds: as for `read`; without time only a record is given that no disk has to be waited for.
            end_offset: the log is known to reach so far (bytes): the service is asked for its end when it was less.
        """
        link = self._link
        if link is None or not link.is_alive():
            link = self._connected(link, commit_log_offset, timeout_seconds)
            if link is None:
                return None
        file: _Descriptor | None = None
        if link.end_offset < end_offset:
            file = self._opened(link, commit_log_offset, timeout_seconds)
        if not link.first_offset <= commit_log_offset < link.end_offset:
            return None
        first_offset = link.file_offset(commit_log_offset)
        file = file or link.files.get(first_offset) or self._opened(link, commit_log_offset, timeout_seconds)
        part = None if file is None else FilePart(link, file, first_offset)
        if part is not None and timeout_seconds <= 0 and not part.is_at_hand(commit_log_offset):
            return None
        return part

    def is_written_at(self, commit_log_offset: int) -> bool | None:
        """Whether anything was written from an offset on; None when the service has to be asked. Makes no call.

        Behind the end of a log its files hold zeros, and a record begins with its size. So zeros at a place where a record
        ends or the log does prove that the log ends there, whoever appends to it.

        Args:
            commit_log_offset: in bytes; the end of a record.
        """
        link = self._link
        if link is None or not link.is_alive():
            return None
        first_offset = link.file_offset(commit_log_offset)
        file = link.files.get(first_offset)
        if file is None:
            return None
        try:
            head = os.pread(file.fd, RECORD_SIZE_BYTES, commit_log_offset - first_offset)
        except OSError:
            return None
        return head != NOTHING_WRITTEN if len(head) == RECORD_SIZE_BYTES else None

    def open_end(self, end_offset: int, timeout_seconds: float) -> None:
        """Have the file that holds the end of the log (bytes) handed over, for `is_written_at`; at most OPEN_SECONDS_MAX."""
        before = end_offset - 1  # no file is handed over for the end itself
        link = self._link
        if before < 0:
            return
        if link is None or not link.is_alive():
            self._connected(link, before, timeout_seconds)
        elif link.first_offset <= before and link.file_offset(before) not in link.files:
            self._opened(link, before, timeout_seconds)

    def mark(self) -> object:
        """The process of the service at this moment, for `learn`."""
        return self._link

    def learn(self, mark: object, next_offset: int) -> None:
        """The service has answered that the log may be read up to there (bytes), asked after `mark` was taken."""
        link = self._link
        if link is not None and link is mark and next_offset > link.end_offset:
            link.end_offset = next_offset

    def close(self) -> None:
        """Drop everything; reads that are under way finish."""
        self._link = None

    def _connected(self, before: _Link | None, commit_log_offset: int, timeout_seconds: float) -> _Link | None:
        """A link to a new process, with the file of an offset; None when there is none or a thread is making it."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._link is not before:
                return self._link
            self._link = None
            if time.monotonic() < self._closed_until or timeout_seconds <= 0:
                return None
            connection = self._local.connect(min(OPEN_SECONDS_MAX, timeout_seconds))
            if connection is None:
                return None
            link = _Link(connection)
            if not self._open(link, commit_log_offset, timeout_seconds):
                self._give_up()
                return None
            self._link = link
            return link
        finally:
            self._lock.release()

    def _opened(self, link: _Link, commit_log_offset: int, timeout_seconds: float) -> _Descriptor | None:
        """The file of an offset, handed over; None when it was not, or a thread is being given another one."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            is_open = (
                link is self._link and timeout_seconds > 0 and self._open(link, commit_log_offset, timeout_seconds)
            )
            if not is_open:
                return None
            while len(link.files) > self._file_count_max:
                link.files.popitem(last=False)
            return link.files.get(link.file_offset(commit_log_offset))
        finally:
            self._lock.release()

    def _open(self, link: _Link, commit_log_offset: int, timeout_seconds: float) -> bool:
        """Ask for the file of an offset; whether it came. After a failure inside a call the link is dropped."""
        request = pb.GetMessageRequest(commit_log_offset=commit_log_offset).SerializeToString()
        deadline = time.monotonic() + min(OPEN_SECONDS_MAX, timeout_seconds)
        fds: list[int] = []
        try:
            answer = link.connection.call(LocalMethod.OPEN_LOG_FILE, request, deadline, fds)
            status = pb.GetStatusResponse.FromString(answer)
            file = _Descriptor(fds.pop())
        except StatusError:
            return False
        except (StoreError, OSError, WireError, DecodeError, IndexError):
            return self._give_up()
        finally:
            for fd in fds:
                os.close(fd)
        if status.file_size_bytes <= 0 or (link.file_size_bytes and status.file_size_bytes != link.file_size_bytes):
            return self._give_up()
        self.broker_name = status.broker_name
        link.file_size_bytes = status.file_size_bytes
        link.first_offset = status.log_first_offset
        for removed in [offset for offset in link.files if offset + link.file_size_bytes <= link.first_offset]:
            link.files.pop(removed, None)  # an open file keeps its room on the disk
        link.files[link.file_offset(commit_log_offset)] = file
        link.end_offset = max(link.end_offset, status.log_end_offset)
        return True

    def _give_up(self) -> bool:
        self._link = None
        self._closed_until = time.monotonic() + CLOSED_SECONDS
        return False
