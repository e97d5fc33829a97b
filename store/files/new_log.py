"""NewLog: a new log, filled with records that already have their store times.

An append sets the store time of a record. Here the record keeps its store time, hosts, flags and body, and gets only a new
place: the next queue offset of its queue and the next position of the log. So the copy has the same bytes, except for

    20  i64  queue offset
    28  i64  commit-log offset
        the ten digits of `__CRC32#`, where the record has one: it covers the two above

Files are filled and closed as the commit log's owner does it: a record that does not fit with 8 bytes for a blank behind it
closes the file with a blank. They are sparse, and durable only after `finish`.
"""

import os
from pathlib import Path

from store.errors import InvalidMessageError
from store.files.file_system import FileSystem
from store.format.paths import log_file_name
from store.format.record import BLANK_SIZE_BYTES, decode_header, encode_blank, patch_record
from store.format.request_mark import TAIL_SIZE_BYTES, RequestMark, decode_request_mark, encode_request_mark
from store.format.sys_flag import TransactionType, transaction_type

WRITE_BYTES = 4 << 20  # records are collected up to this size for one write


class NewLog:
    """Writes the log files of a directory that has none.

    Args:
        fs: the disk port.
        directory: `commitlog/` of the new store.
        file_size_bytes: size of each file.

    Attributes:
        end_offset: the first byte behind the last record.
        record_count: how many records there are.
        queue_offsets: the next offset of each queue, by topic and queue id.
    """

    def __init__(self, fs: FileSystem, directory: Path, file_size_bytes: int) -> None:
        self.end_offset = 0
        self.record_count = 0
        self.queue_offsets: dict[tuple[str, int], int] = {}
        self._fs = fs
        self._directory = directory
        self._file_size_bytes = file_size_bytes
        self._fd = -1
        self._file_end = 0
        self._parts = bytearray()  # the bytes right before end_offset, not written yet
        fs.mkdirs(directory)

    def add(self, topic: str, frame: bytearray) -> int:
        """Adds a whole record at the end of the log; returns its commit-log offset there.

        Args:
            topic: the record's topic.
            frame: the record's bytes; changed in place.

        Raises:
            InvalidMessageError: it is larger than a log file.
            DiskFullError: no room is left.
        """
        if len(frame) > self._file_size_bytes - BLANK_SIZE_BYTES:
            raise InvalidMessageError(
                f"The message takes {len(frame)} bytes in the log, a log file holds "
                f"{self._file_size_bytes - BLANK_SIZE_BYTES}: make log files larger.",
                field="body",
            )
        if self.end_offset + len(frame) + BLANK_SIZE_BYTES > self._file_end:
            self._next_file()
        header = decode_header(frame)
        queue_offset = header.queue_offset
        if transaction_type(header.sys_flag) in (TransactionType.NONE, TransactionType.COMMIT):
            # Other records are in no queue and take no queue offset.
            queue_offset = self.queue_offsets.get((topic, header.queue_id), 0)
            self.queue_offsets[topic, header.queue_id] = queue_offset + 1
        offset = self.end_offset
        if decode_request_mark(frame[-TAIL_SIZE_BYTES:]) is not None:
            # Its request is not copied with it: in the new log it is a request of its own.
            mark = encode_request_mark(RequestMark(0, 0))
            frame[-TAIL_SIZE_BYTES : len(mark) - TAIL_SIZE_BYTES] = mark
        patch_record(frame, queue_offset, offset, header.store_time_millis)
        self._parts += frame
        self.end_offset += len(frame)
        self.record_count += 1
        if len(self._parts) >= WRITE_BYTES:
            self._write()
        return offset

    def finish(self) -> None:
        """Flushes everything to the disk, or raises FlushFailedError."""
        self._end_file()
        self._fs.fsync_dir(self._directory)

    def close(self) -> None:
        """Closes the file without a flush."""
        if self._fd >= 0:
            self._fs.close(self._fd)
            self._fd = -1

    def _next_file(self) -> None:
        if self._fd >= 0:
            self._parts += encode_blank(self._file_end - self.end_offset)
            self.end_offset += BLANK_SIZE_BYTES
            self._end_file()
            self.end_offset = self._file_end
        self._fd = self._fs.open(self._directory / log_file_name(self._file_end), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._fs.ftruncate(self._fd, self._file_size_bytes)
        self._file_end += self._file_size_bytes

    def _write(self) -> None:
        if self._parts:
            begin = self.end_offset - len(self._parts)
            self._fs.pwrite(self._fd, self._parts, begin - self._file_end + self._file_size_bytes)
            self._parts = bytearray()

    def _end_file(self) -> None:
        if self._fd >= 0:
            self._write()
            self._fs.fdatasync(self._fd)
            self.close()
