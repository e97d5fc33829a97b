"""Read-only access to what ConsumeQueueExt adds to a consume queue."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

from store.files.open_files import OpenFiles
from store.format.derived.queue_ext import UNIT_SIZE_BYTES_MAX as EXT_UNIT_SIZE_BYTES_MAX
from store.format.derived.queue_ext import QueueExtUnit, decode_queue_ext_unit, ext_offset, is_ext_address
from store.format.derived.queue_unit import QueueUnit
from store.format.paths import CONSUME_QUEUE_EXT, log_file_name
from store.readers.queue_reader import file_offsets

READ_SIZE_BYTES = 4096  # the addresses of neighbours in a queue are neighbours here


class QueueExtUnits:
    """The ext units of one queue, by their addresses.

    Args:
        files: opens them.
        queue_directory: the queue's folder in `consumequeue/`; theirs lies in the folder beside that one, or is absent.
    """

    def __init__(self, files: OpenFiles, queue_directory: Path) -> None:
        topic_and_queue = queue_directory.parts[-2:]
        self.directory = queue_directory.parents[2].joinpath(CONSUME_QUEUE_EXT, *topic_and_queue)
        self._files = files
        self._firsts: list[int] = []

    def unit(self, address: int) -> QueueExtUnit | None:
        """The unit at an address; None if it is not there: never written, expired, or damaged."""
        return _decode(self._read_fresh(ext_offset(address), EXT_UNIT_SIZE_BYTES_MAX), 0)

    def resolved(self, units: Iterable[QueueUnit]) -> Iterator[QueueUnit]:
        """Queue units with their tags codes in place of addresses. An address stays where nothing is found."""
        begin, data = 0, b""
        for unit in units:
            if not is_ext_address(unit.tags_code):
                yield unit
                continue
            offset = ext_offset(unit.tags_code)
            ext = _decode(data, offset - begin)
            if ext is None:
                begin, data = offset, self._read_fresh(offset, READ_SIZE_BYTES)
                ext = _decode(data, 0) or self.unit(unit.tags_code)
            yield unit if ext is None else unit._replace(tags_code=ext.tags_code)

    def _read_fresh(self, offset: int, size_bytes: int) -> bytes:
        data = self._read(offset, size_bytes)
        if _decode(data, 0) is None:
            self._firsts = file_offsets(self._files.fs, self.directory)  # a new file, or one that expired
            data = self._read(offset, size_bytes)
        return data

    def _read(self, offset: int, size_bytes: int) -> bytes:
        place = bisect_right(self._firsts, offset)
        if place == 0:
            return b""
        first = self._firsts[place - 1]
        try:
            return self._files.get(self.directory / log_file_name(first)).read(offset - first, size_bytes)
        except FileNotFoundError:
            return b""


def _decode(data: bytes, at: int) -> QueueExtUnit | None:
    return decode_queue_ext_unit(data, at) if 0 <= at < len(data) else None
