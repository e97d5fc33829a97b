"""Reading a log's records from its files, which the commitlog service of the same machine hands over.

Why: the answer to a query is a few hundred bytes of a file that this machine has in memory. Asking another process for
them costs twice as much as reading them.

A record is read here only where the answer is surely the one that the service would give, and it is asked in every other
case: it alone says what is not there, what is damaged, and how far the log goes. What makes it sure:
- The descriptor comes from the service itself (services/lookup_calls.py), read-only; no path has to be known or right.
- The service lives, and is the process that handed the files over: the connection they came by is still open.
- The record ends before an end of the log that this process has told, or that its answers prove. A log's end never goes
  back while its process lives, so what lies before it is never written again.
- Its file has a name: retention takes that away when it removes one.
- Its bytes agree with one another and name the offset, as the service checks it too (store/readers/record_reader.py).
"""

import os
import select
import socket
import threading
import time
from collections import OrderedDict

from google.protobuf.message import DecodeError

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services import lookup_calls as wire
from services.clients.lookups import CLOSED_SECONDS, LookupClient
from services.lookup_calls import Lookup
from store.errors import RecordCorruptedError
from store.format.record import Record
from store.readers.record_reader import read_record_at

# 64 GiB of log, in files of the default size; a file that falls out is handed over again at need.
FILE_COUNT_MAX = 64
OPEN_SECONDS_MAX = 1.0


class _Descriptor:
    """Closed with its last user: another thread may be reading."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class _Link:
    """One life of the service: the connection to it, and what it has handed over and told."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.end_offset = 0
        self.first_offset = 0
        self.file_size_bytes = 0
        self.files: OrderedDict[int, _Descriptor] = OrderedDict()

    def is_alive(self) -> bool:
        """Whether the connection is open and silent, as it is between two requests."""
        waiting = select.poll()
        waiting.register(self.connection.fileno(), select.POLLIN)
        return not waiting.poll(0)

    def file_offset(self, commit_log_offset: int) -> int:
        """The first offset of the file that holds an offset."""
        return commit_log_offset - (commit_log_offset - self.first_offset) % self.file_size_bytes

    def __del__(self) -> None:
        self.connection.close()


class LogFiles:
    """The files of one log, as far as they were handed over; thread-safe.

    Args:
        lookups: to the commitlog service.
        file_count_max: files kept open.

    Attributes:
        broker_name: what the service calls its shard; empty before a record was read.
    """

    def __init__(self, lookups: LookupClient, file_count_max: int = FILE_COUNT_MAX) -> None:
        self.broker_name = ""
        self._lookups = lookups
        self._file_count_max = file_count_max
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._closed_until = 0.0

    def read(self, commit_log_offset: int, timeout_seconds: float) -> Record | None:
        """The record that starts at an offset; None when the service has to be asked.

        Args:
            commit_log_offset: in bytes.
            timeout_seconds: for a file that has to be handed over first; at most OPEN_SECONDS_MAX are waited.
        """
        link = self._link
        if link is None or not link.is_alive():
            link = self._connected(link, commit_log_offset, timeout_seconds)
            if link is None:
                return None
        if not link.first_offset <= commit_log_offset < link.end_offset:
            return None
        first_offset = link.file_offset(commit_log_offset)
        file = link.files.get(first_offset) or self._opened(link, commit_log_offset, timeout_seconds)
        if file is None:
            return None
        size_bytes_max = min(link.end_offset, first_offset + link.file_size_bytes) - commit_log_offset
        fd = file.fd
        try:
            record = read_record_at(
                lambda offset, size_bytes: os.pread(fd, size_bytes, offset - first_offset),
                commit_log_offset,
                size_bytes_max,
            )
            # Behind the reading: a file that has its name still had it before.
            has_name = os.fstat(fd).st_nlink > 0
        except (OSError, RecordCorruptedError):
            return None
        if not has_name:
            link.files.pop(first_offset, None)
            return None
        return record

    def mark(self) -> object:
        """The life of the service at this moment, for `learn`."""
        return self._link

    def learn(self, mark: object, next_offset: int) -> None:
        """The service has answered with a record that ends there (bytes), asked after `mark` was taken."""
        link = self._link
        if link is not None and link is mark and next_offset > link.end_offset:
            link.end_offset = next_offset

    def close(self) -> None:
        """Drop everything; what is being read is read to its end."""
        self._link = None

    def _connected(self, before: _Link | None, commit_log_offset: int, timeout_seconds: float) -> _Link | None:
        """A new life's link, with the file of an offset; None when there is none or a thread is about to make it."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._link is not before:
                return self._link
            self._link = None
            if time.monotonic() < self._closed_until or timeout_seconds <= 0:
                return None
            connection = self._lookups.connect(min(OPEN_SECONDS_MAX, timeout_seconds))
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
            if (
                link is not self._link
                or timeout_seconds <= 0
                or not self._open(link, commit_log_offset, timeout_seconds)
            ):
                return None
            while len(link.files) > self._file_count_max:
                link.files.popitem(last=False)
            return link.files.get(link.file_offset(commit_log_offset))
        finally:
            self._lock.release()

    def _open(self, link: _Link, commit_log_offset: int, timeout_seconds: float) -> bool:
        """Ask for the file of an offset; whether it came. After a failure in the middle the link is of no use."""
        request = pb.GetMessageRequest(commit_log_offset=commit_log_offset)
        fds: list[int] = []
        try:
            link.connection.settimeout(min(OPEN_SECONDS_MAX, timeout_seconds))
            wire.send_frame(link.connection, Lookup.OPEN_LOG_FILE, request.SerializeToString())
            kind, payload, fds = wire.receive_file_frame(link.connection)
            if kind != wire.ANSWER or len(fds) != 1:
                return False
            status = pb.GetStatusResponse.FromString(payload)
            file = _Descriptor(fds.pop())
        except (OSError, wire.LookupWireError, DecodeError):
            return self._give_up()
        finally:
            for fd in fds:
                os.close(fd)
        if status.file_size_bytes <= 0 or (link.file_size_bytes and status.file_size_bytes != link.file_size_bytes):
            return self._give_up()
        self.broker_name = status.broker_name
        link.file_size_bytes = status.file_size_bytes
        link.first_offset = status.log_first_offset
        link.files[link.file_offset(commit_log_offset)] = file
        link.end_offset = max(link.end_offset, status.log_end_offset)
        return True

    def _give_up(self) -> bool:
        self._link = None
        self._closed_until = time.monotonic() + CLOSED_SECONDS
        return False
