"""LogCopy: a new log, filled with frames that have their times already.

An append gives a frame its store time; here the frame keeps it, together with its hosts, its flags and its body, and only
takes a place: the next queue offset of its queue and the next position of the log. So the same bytes lie in the copy,
apart from

    20  i64  queue offset
    28  i64  commit-log offset
        the ten digits of `__CRC32#`, where the frame has one: they guard the two above

Files are filled and closed as the commit log's owner does it: a frame that does not fit with 8 bytes for a blank behind it
closes the file with a blank. They are sparse; nothing of them is on the disk before `finish`.
"""

import os
from pathlib import Path

from store.errors import InvalidMessageError
from store.files.file_system import FileSystem
from store.format.paths import log_file_name
from store.format.record import BLANK_SIZE_BYTES, decode_header, encode_blank, patch_record
from store.format.sys_flag import TransactionType, transaction_type

WRITE_BYTES = 4 << 20  # frames are collected up to so much for one write


class LogCopy:
    """Writes the log files of a directory that has none.

    Args:
        fs: the door to the disk.
        directory: `commitlog/` of the new store.
        file_size_bytes: of each file.

    Attributes:
        end_offset: the first byte behind the last frame.
        record_count: how many frames there are.
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
        self._parts = bytearray()  # lies right before end_offset
        fs.mkdirs(directory)

    def add(self, topic: str, frame: bytearray) -> int:
        """Puts a whole frame at the end of the log; its commit-log offset there.

        Args:
            topic: the frame's.
            frame: is changed in place.

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
            # The others stand in no queue and count in none.
            queue_offset = self.queue_offsets.get((topic, header.queue_id), 0)
            self.queue_offsets[topic, header.queue_id] = queue_offset + 1
        offset = self.end_offset
        patch_record(frame, queue_offset, offset, header.store_time_millis)
        self._parts += frame
        self.end_offset += len(frame)
        self.record_count += 1
        if len(self._parts) >= WRITE_BYTES:
            self._write()
        return offset

    def finish(self) -> None:
        """Everything is on the disk afterwards, or FlushFailedError."""
        self._end_file()
        self._fs.fsync_dir(self._directory)

    def close(self) -> None:
        """Closes the file; without a flush."""
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
