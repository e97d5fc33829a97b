"""FileChecker: finds files that are not as they were written, while they are served, and has them built again.

Theory of operation: one thread beside the builder.
- Each second it looks at the stamps (length, times, inode) of LOOK_COUNT_MAX files, all of them in turn. A stamp that the
  builder did not change makes the file doubtful at once: answers that need it are PARTIAL.
- It reads doubtful files first, then files whose stamp changed otherwise, then files without a checksum, and compares
  CRC-32s, at a limited rate. A file that the builder still writes is compared with what the builder remembers.
- Every PASS_SECONDS it begins to read all files, for damage that changes no stamp.
- A file with a wrong checksum is made again from the log on this thread; the thread of the builder puts it into its place
  (`FollowingBuilder.hand_over`), so that nobody else writes meanwhile.

A failure here is logged and tried again after a pause; the builder does not see it.

CheckedFile: a derived file as a FileChecker sees it, and the log from which it can be made again.
"""

import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from services.calling.commitlog import CommitLogClient
from services.following.follower_process import LifeOverError
from store.derive.read_log import LogBatch, ReadLog
from store.errors import StoreCorruptedError, StoreError
from store.files.checksums import Checksum, ChecksumTable, Extent
from store.files.file_system import FileStamp, FileSystem
from store.files.json_state import pause_seconds
from store.files.open_files import OpenFile

# Asked now and then during long work; False: stop. It also looks at the stamps of other files when it is time.
GoesOn = Callable[[], bool]
# Put into place what was made; False when the log must be followed anew from the builder's `start_offset`.
Repair = Callable[[], bool]


def log_of(client: CommitLogClient, stopping: threading.Event | None = None) -> ReadLog:
    """The log of a commitlog service; for a life's own thread LifeOverError behind a batch once `stopping` is set."""

    @contextmanager
    def read(offset: int) -> Iterator[Iterator[LogBatch]]:
        stream = client.reput(offset)
        try:
            yield iter(stream) if stopping is None else _until(stopping, stream)
        finally:
            stream.cancel()

    return read


def _until(stopping: threading.Event, batches: Iterable[LogBatch]) -> Iterator[LogBatch]:
    for batch in batches:
        if stopping.is_set():
            raise LifeOverError
        yield batch


class CheckedFile(ABC):
    """One file that is checked.

    Args:
        name: its key in the table of checksums.
        path: the file.

    Attributes:
        name: as above.
        is_doubtful: answers that need the file are not complete.
        was_right: its bytes were found right since this object was made.
    """

    __slots__ = (
        "_path",
        "is_being_repaired",
        "is_doubtful",
        "is_queued",
        "name",
        "read_at",
        "stamp",
        "version",
        "was_right",
    )

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = str(path)  # a path takes a kilobyte, and a store may have a million queues
        self.is_doubtful = False
        self.was_right = False
        self.stamp: FileStamp | None = None  # when it was last known to be right
        self.version = -1  # of the builder's writes, then
        self.read_at = float("-inf")
        self.is_queued = False
        self.is_being_repaired = False

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self._path)

    @property
    @abstractmethod
    def is_wanted(self) -> bool:
        """Whether the file belongs to the store still, and is still written or no longer written as it was."""

    @property
    def write_count(self) -> int:
        """Changes before and after each write of the builder, from 1 on; 0 for a file that is not written any more."""
        return 0

    @property
    def is_being_written(self) -> bool:
        """Whether a write of the builder is open, between two changes of `write_count`."""
        return False

    @abstractmethod
    def extents(self) -> Sequence[Extent]:
        """What is checked; a CRC of None is not known yet."""

    @property
    def note(self) -> tuple[int, ...]:
        """Numbers to be kept with the checksum."""
        return ()

    def learn(self, extents: Sequence[Extent]) -> Repair | None:
        """Take checksums that were not known before, from the file; the builder's part of it, None for nothing."""
        return None

    @abstractmethod
    def doubt(self, is_doubtful: bool) -> None:
        """Make answers say that they are not complete, or no longer."""

    @abstractmethod
    def make_again(self, goes_on: GoesOn) -> Repair | None:
        """Make the file again from the log; None when it is not needed any more. StoreError: it cannot be made now."""


LOOK_SECONDS = 1.0
# Stamps read each second: 10 ms of one core.
LOOK_COUNT_MAX = 2_000
# A file that is being written is read again so long after the last time; its stamp changes all the time.
WRITTEN_SECONDS = 10.0
PASS_SECONDS = 3_600.0
CHUNK_BYTES = 1 << 20
# The default of a setting: a full index file is read in 13 s, and most of a disk's throughput stays for others.
VERIFY_BYTES_PER_SECOND = 32 << 20
# A full index file is read in seven minutes.
VERIFY_BYTES_PER_SECOND_MIN = 1 << 20
# Pause after a failure: space, a disk or the log seldom comes back sooner.
RETRY_SECONDS = 5.0
CLOSE_SECONDS_MAX = 5.0


class FileChecker:
    """See the top of this file.

    Args:
        kind: of the files, for events.
        fs: the disk port.
        files: gives all files; called often.
        table: their checksums.
        hand_over: has the builder's thread do something.
        bytes_per_second_max: limit for reading.
        clock: seconds, rising.
    """

    def __init__(
        self,
        kind: str,
        fs: FileSystem,
        files: Callable[[], Sequence[CheckedFile]],
        table: ChecksumTable,
        hand_over: Callable[[Repair], None],
        *,
        bytes_per_second_max: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fs = fs
        self._files = files
        self._table = table
        self._hand_over = hand_over
        self._bytes_per_second_max = bytes_per_second_max
        self._clock = clock
        self._log = structlog.get_logger(f"reput.{kind}")
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._look_at = 0.0
        self._next_look = 0
        self._pass_at = clock() + PASS_SECONDS
        self._urgent: deque[CheckedFile] = deque()
        self._later: deque[CheckedFile] = deque()

    def start(self) -> None:
        """Check from now on."""
        self._thread = threading.Thread(target=self._run, name="file-checks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and save the table."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS_MAX)
        with suppress(StoreError, OSError):
            self._table.save()

    def step(self) -> bool:
        """Look at the next files if it is time, then check one; whether there was one."""
        self._look_if_due()
        file = self._next()
        if file is None:
            return False
        file.is_queued = False
        try:
            self.check(file)
        except BaseException:
            self._queue(file, urgent=file.is_doubtful)
            raise
        return True

    def look(self, files: Iterable[CheckedFile]) -> None:
        """Compare the stamps of some files with those that they had when they were right."""
        for file in files:
            version = file.write_count
            stamp = self._stamp_of(file.path)
            if file.is_being_repaired or not file.is_wanted:
                continue
            if file.stamp is None and file.write_count == 0:
                row = self._table.get(file.name)
                if row is None:
                    self._queue(file, urgent=False)
                    continue
                file.stamp, file.version = row.stamp, 0
            if stamp is not None and stamp == file.stamp:
                continue
            if file.is_being_written or file.write_count != version or (file.version != version and stamp is not None):
                # The builder wrote, too: only its bytes tell.
                if self._clock() - file.read_at >= WRITTEN_SECONDS:
                    self._queue(file, urgent=False)
                continue
            if stamp is None or file.stamp is None or stamp.differs_in_content(file.stamp):
                self._doubt(file)
            self._queue(file, urgent=True)

    def check(self, file: CheckedFile) -> None:
        """Read a file and compare; make it again when it is wrong."""
        if file.is_being_repaired or not file.is_wanted:
            return
        version, extents = file.write_count, file.extents()
        stamp = self._stamp_of(file.path)
        found = self._read(file.path, extents) if stamp is not None else None
        file.read_at = self._clock()
        if self._stopping.is_set() or not file.is_wanted:
            return
        is_known = all(extent.crc is not None for extent in extents)
        if found is None or any(extent.crc not in (None, crc) for extent, crc in zip(extents, found, strict=True)):
            self._make_again(file)
            return
        if self._stamp_of(file.path) != stamp and file.write_count == version and not file.is_being_written:
            self._queue(file, urgent=True)  # somebody else writes
            return
        file.was_right = True
        if not is_known:
            extents = [Extent(each.position, each.size_bytes, crc) for each, crc in zip(extents, found, strict=True)]
            repair = file.learn(extents)
            if repair is not None:
                self._hand_over(repair)
        if file.write_count == version and not file.is_being_written:
            assert stamp is not None
            file.stamp, file.version = stamp, version
            if version == 0:
                self._table.put(file.name, Checksum(stamp, tuple(extents), file.note))
        if file.is_doubtful:
            self._log.info("file.is_right", file=str(file.path))
            self._set_doubt(file, is_doubtful=False)

    # -- the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if not self.step():
                    self._table.save()
                    self._stopping.wait(LOOK_SECONDS)
            except (StoreError, OSError) as error:
                if not self._stopping.is_set():
                    self._log.warning("file.check_failed", error=str(error))
                    self._stopping.wait(RETRY_SECONDS)
            except Exception:
                # The thread must not end here: nothing would notice damage until the next start.
                self._log.exception("file.check_failed")
                self._stopping.wait(RETRY_SECONDS)

    def _next(self) -> CheckedFile | None:
        for waiting in (self._urgent, self._later):
            if waiting:
                return waiting.popleft()
        return None

    def _goes_on(self) -> bool:
        self._look_if_due()
        return not self._stopping.is_set()

    def _look_if_due(self) -> None:
        now = self._clock()
        if now < self._look_at:
            return
        files = self._files()
        if now >= self._pass_at:
            self._pass_at = now + PASS_SECONDS
            for file in files:
                self._queue(file, urgent=False)
        begin = self._next_look if self._next_look < len(files) else 0
        self._next_look = begin + LOOK_COUNT_MAX
        self.look(files[begin : self._next_look])
        end = self._clock()
        self._look_at = max(now + LOOK_SECONDS, end + pause_seconds(len(files), end - now))

    def _queue(self, file: CheckedFile, *, urgent: bool) -> None:
        if urgent and file.is_queued and file in self._later:
            self._later.remove(file)
            file.is_queued = False
        if not file.is_queued:
            file.is_queued = True
            (self._urgent if urgent else self._later).append(file)

    def _read(self, path: Path, extents: Sequence[Extent]) -> list[int] | None:
        """The CRC-32 of each extent, at a limited rate; None when the file ends before them or the disk cannot read it."""
        if not self._fs.is_file(path):
            return None
        try:
            opened = OpenFile(self._fs, path, is_writable=False)  # by its name: what is open may have lost it
            crcs = []
            for position, size_bytes, _ in extents:
                crc, end = 0, position + size_bytes
                for at in range(position, end, CHUNK_BYTES):
                    data = opened.read(at, min(CHUNK_BYTES, end - at))
                    if len(data) < min(CHUNK_BYTES, end - at):
                        return None
                    crc = zlib.crc32(data, crc)
                    if self._stopping.wait(len(data) / self._bytes_per_second_max):
                        return None
                    self._look_if_due()
                crcs.append(crc)
            return crcs
        except (FileNotFoundError, StoreCorruptedError):
            return None

    def _make_again(self, file: CheckedFile) -> None:
        self._log.error(
            "file.damaged",
            file=str(file.path),
            what="its bytes are not those that were written: answers are partial until it is built again from the log",
        )
        self._set_doubt(file, is_doubtful=True)
        repair = file.make_again(self._goes_on)
        if repair is None or self._stopping.is_set():
            return

        def done() -> bool:
            goes_on = repair()
            file.stamp, file.version = None, -1
            stamp = self._stamp_of(file.path)
            if file.write_count == 0 and file.is_wanted and stamp is not None:
                file.stamp, file.version = stamp, 0
                self._table.put(file.name, Checksum(stamp, tuple(file.extents()), file.note))
            file.is_being_repaired = False
            self._set_doubt(file, is_doubtful=False)
            self._log.warning("file.built_again", file=str(file.path))
            return goes_on

        file.is_being_repaired = True
        self._hand_over(done)

    def _doubt(self, file: CheckedFile) -> None:
        if not file.is_doubtful:
            self._log.warning(
                "file.doubtful",
                file=str(file.path),
                what="it was changed by another program, or is missing: answers are partial until it is checked",
            )
            self._set_doubt(file, is_doubtful=True)

    def _set_doubt(self, file: CheckedFile, *, is_doubtful: bool) -> None:
        file.is_doubtful = is_doubtful
        file.doubt(is_doubtful)

    def _stamp_of(self, path: Path) -> FileStamp | None:
        try:
            return self._fs.stamp(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
