"""CheckedFile: a derived file as a FileChecker sees it (`file_check.py`), and the log from which it can be made again."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from services.calling.commitlog import CommitLogClient
from services.following.follower_process import LifeOverError
from store.derive.read_log import LogBatch, ReadLog
from store.files.checksums import Extent
from store.files.file_system import FileStamp

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
        is_doubtful: answers that need the file are not complete.
        was_right: its bytes were found right since this object was made.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.is_doubtful = False
        self.was_right = False
        self.stamp: FileStamp | None = None  # when it was last known to be right
        self.version = -1  # of the builder's writes, then
        self.read_at = float("-inf")
        self.is_queued = False
        self.is_being_repaired = False

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
