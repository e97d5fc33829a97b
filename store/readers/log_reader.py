"""Read-only access to log files: records in log order, as builders and audits need them.

A log's end is the first place without a sound frame: zeros, damage, or a frame that says another position.
"""

from collections.abc import Iterator
from pathlib import Path

from store.dispatch import DispatchRequest
from store.errors import RecordCorruptedError
from store.files.file_system import FileSystem, RealFileSystem
from store.format.paths import commit_log_dir, log_file_name, parse_log_file_name
from store.format.record import BLANK_MAGIC, Record, decode_dispatch, decode_record
from store.readers.open_files import OpenFiles

CHUNK_BYTES = 8 << 20


class LogReader:
    """The log files of a store root.

    Args:
        root: the store root.
        fs: the door to the disk.
    """

    def __init__(self, root: Path, fs: FileSystem | None = None) -> None:
        self._directory = Path(commit_log_dir(str(root)))
        self._fs = fs or RealFileSystem()
        self._files = OpenFiles(self._fs)

    def file_offsets(self) -> list[int]:
        """First offsets of the log files, rising."""
        offsets = (parse_log_file_name(name) for name in self._fs.listdir(self._directory))
        return sorted(offset for offset in offsets if offset is not None)

    def record(self, commit_log_offset: int, size_bytes: int) -> Record:
        """The record at an offset whose size is known; RecordCorruptedError when there is none."""
        first = max((o for o in self.file_offsets() if o <= commit_log_offset), default=0)
        data = self._files.get(self._directory / log_file_name(first)).read(commit_log_offset - first, size_bytes)
        return decode_record(data, commit_log_offset=commit_log_offset)

    def dispatch_requests(self, start_offset: int = -1) -> Iterator[DispatchRequest]:
        """What builders need of each record, from an offset on (-1: the first) to the end of the log."""
        for first in self.file_offsets():
            path = self._directory / log_file_name(first)
            size = self._fs.stat_size(path)
            if start_offset >= first + size:
                continue
            position = max(start_offset - first, 0)
            rolled = False
            for request in self._of_file(path, first, size, position):
                if request is None:
                    rolled = True
                else:
                    yield request
                    position = request.next_offset - first
            if not rolled and position < size:
                return

    def _of_file(self, path: Path, first: int, size: int, position: int) -> Iterator[DispatchRequest | None]:
        """Requests of one file; None at the blank that ends it."""
        file = self._files.get(path)
        while position < size:
            chunk = file.read(position, min(CHUNK_BYTES, size - position))
            at = 0
            while True:
                left = len(chunk) - at
                if left < 8:
                    break
                frame_size = int.from_bytes(chunk[at : at + 4], "big", signed=True)
                if int.from_bytes(chunk[at + 4 : at + 8], "big", signed=True) == BLANK_MAGIC:
                    yield None
                    return
                if frame_size <= 0 or position + at + frame_size > size:
                    return
                if frame_size > left:
                    break
                try:
                    request = decode_dispatch(chunk, at, first + position + at)
                except RecordCorruptedError:
                    return
                yield request
                at += frame_size
            if at == 0:
                return
            position += at
