"""LightFiles: light queues (LMQ) as the files of a broker, `consumequeue/%LMQ%.../0/`, for a hand-over (ADR 0156).

A broker reads them at its start, and does not make those that are missing. Reput neither reads nor needs them, so they are
written when a broker is to take the store, and only then: each costs two folders and a file with holes.

A queue begins with the file that holds the unit of its first record in the log; positions without a unit hold fillers.
Where the queue has files, a broker's or those of a run that was killed, what they lack is written behind them.
Files that say something else are moved aside.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from consumequeue_svc.light_queues import LightQueues, LightUnits
from store.errors import StoreCorruptedError
from store.files.aside import Aside
from store.files.file_system import FileSystem
from store.files.open_files import OpenFiles
from store.format.derived.queue_unit import FILLER, UNIT_SIZE_BYTES, QueueUnit, encode_queue_unit
from store.format.paths import log_file_name, queue_dir
from store.readers.queue_reader import QueueUnits

PAGE_UNIT_COUNT = 100_000
_FILLER = encode_queue_unit(FILLER)


@dataclass(slots=True)
class WrittenFiles:
    """What was written: queues and units, and queues whose files were moved aside before."""

    queue_count: int = 0
    unit_count: int = 0
    aside_count: int = 0


class LightFiles:
    """See the top of this file.

    Args:
        fs: the disk port.
        root: the store root, which nothing else has open.
        file_size_bytes: of a queue file.
        aside: where files go that say something else.
        log_first_offset: the log's first byte.
    """

    def __init__(
        self, fs: FileSystem, root: Path, file_size_bytes: int, aside: Aside, log_first_offset: int = 0
    ) -> None:
        self._fs = fs
        self._root = root
        self._file_size_bytes = file_size_bytes
        self._file_unit_count = file_size_bytes // UNIT_SIZE_BYTES
        self._aside = aside
        self._log_first_offset = log_first_offset

    def write(
        self, light: LightQueues, on_progress: Callable[[int, int], None], sync: Callable[[], None] = os.sync
    ) -> WrittenFiles:
        """Writes the files of all light queues.

        Args:
            light: the queues, up to the end of the log.
            on_progress: called with the number of queues that are written, and of all.
            sync: puts everything on the disk, once at the end: to flush a million files one by one takes hours.

        Raises:
            StoreCorruptedError: the light queues are damaged.
            DiskFullError: there is no room; a further run goes on where this one ended.
        """
        written = WrittenFiles()
        names = light.names()
        for number, name in enumerate(names):
            queue = light.get(name)
            if queue is not None:
                self._write_queue(name, queue.units, written)
            on_progress(number + 1, len(names))
        self._fs.mkdirs(self._root / "consumequeue")
        sync()
        return written

    def _write_queue(self, name: str, units: LightUnits, written: WrittenFiles) -> None:
        directory = Path(queue_dir(str(self._root), name, 0))
        # Units of removed records are left out: between them and the next one may be millions of fillers. The newest one always
        # is there, so that a broker goes on behind it.
        end = units.end
        begin = min(units.min_offset(self._log_first_offset), units.real_from(end - 1))
        known_end = self._known_end(directory, units, written)
        if known_end is not None and begin - known_end < self._file_unit_count:
            begin = known_end
        else:
            self._fs.mkdirs(directory, durable=False)
            begin -= begin % self._file_unit_count
        written.queue_count += begin < end
        while begin < end:
            # From one unit to the next there may be many fillers, so a page ends with its last unit or with its file.
            page = units.units(begin, PAGE_UNIT_COUNT)
            stop = min(page[-1][0] + 1, begin + self._file_unit_count - begin % self._file_unit_count)
            data = bytearray(_FILLER * (stop - begin))
            for position, unit in page:
                if position < stop:
                    at = (position - begin) * UNIT_SIZE_BYTES
                    data[at : at + UNIT_SIZE_BYTES] = encode_queue_unit(unit)
                    written.unit_count += 1
            self._write_units(directory, begin, data)
            begin = stop

    def _known_end(self, directory: Path, units: LightUnits, written: WrittenFiles) -> int | None:
        """Behind the last unit that the queue's files hold; None when there are none to keep."""
        if not self._fs.is_dir(directory):
            return None
        files = OpenFiles(self._fs)
        there = QueueUnits(files, directory, self._file_size_bytes)
        try:
            there.load()
            if there.end == there.begin:
                return None
            if self._is_begin_of(there, units):
                return there.end
        except StoreCorruptedError:
            pass
        finally:
            files.close()
        self._aside.move(directory.parent)
        written.aside_count += 1
        return None

    def _is_begin_of(self, there: QueueUnits, units: LightUnits) -> bool:
        """Whether the files hold the begin of a queue, and nothing else where the queue is known."""
        if there.end > units.end:
            return False
        begin = max(there.begin, units.min_offset(0))
        while begin < there.end:
            stop = min(there.end, begin + PAGE_UNIT_COUNT)
            ours: dict[int, QueueUnit] = dict(units.units(begin, stop - begin))
            if any(there.unit(position) != ours.get(position, FILLER) for position in range(begin, stop)):
                return False
            begin = stop
        return True

    def _write_units(self, directory: Path, begin: int, data: bytearray) -> None:
        """Writes units that lie in one file; a new file has its whole size, and holes."""
        first_byte = begin * UNIT_SIZE_BYTES
        within = first_byte % self._file_size_bytes
        fd = self._fs.open(directory / log_file_name(first_byte - within), os.O_RDWR | os.O_CREAT)
        try:
            self._fs.ftruncate(fd, self._file_size_bytes)
            self._fs.pwrite(fd, data, within)
        finally:
            self._fs.close(fd)
