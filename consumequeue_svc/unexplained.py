"""What the log does not explain among the queues: left alone, or kept aside; never deleted.

A unit names a record by its commit-log offset. The record decides:

    it states this queue and this position        the log explains the unit: the builder writes it again
    it names the queue in INNER_MULTI_DISPATCH    the queue is a broker's, which does not build it again: it is left alone
    anything else, or there is no such record     it would be wrong to serve the unit: it is kept aside (`store/files/aside.py`)

Light queues (`%LMQ%...`) are a broker's by their name. What our own checkpoint covers, and what retention removed the records
of, is ours: it is removed as before.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from store.files.aside import Aside
from store.format.derived.queue_unit import QueueUnit
from store.format.paths import parse_queue_folder_name


class RecordPlace(NamedTuple):
    """The queue and position that a record states; `dispatched_to`: further queues that it names."""

    topic: str
    queue_id: int
    queue_offset: int
    dispatched_to: frozenset[str] = frozenset()


# The place of the record at a commit-log offset (bytes); None when there is none, or it cannot be read.
RecordAt = Callable[[int], RecordPlace | None]


class Keeper:
    """Judges units and keeps what leaves its place.

    Args:
        aside: takes it; None: nothing is kept, for a store that is not changed.
        record_at: reads the log; None: no unit is explained by a look.
    """

    def __init__(self, aside: Aside | None = None, record_at: RecordAt | None = None) -> None:
        self._aside = aside
        self._record_at = record_at
        self._kept_whole: set[Path] = set()

    def is_own(self, directory: Path, position: int, unit: QueueUnit) -> bool:
        """Whether the record of a unit states this queue, by its folder, and this position."""
        place = self._place(unit)
        return place is not None and place[:3] == (
            directory.parent.name,
            parse_queue_folder_name(directory.name),
            position,
        )

    def is_dispatched(self, topic: str, unit: QueueUnit) -> bool:
        """Whether the record of a unit names the topic as a further queue."""
        place = self._place(unit)
        return place is not None and topic in place.dispatched_to

    def move(self, path: Path, why: str) -> bool:
        """Moves a file aside; False when nothing is kept, and the caller removes it."""
        if self._aside is None or path in self._kept_whole:
            return False
        self._aside.move(path, why)
        return True

    def copy(self, path: Path, begin: int, why: str) -> None:
        """Keeps the bytes of a file from one on, which are about to be cleared."""
        if self._aside is not None and path not in self._kept_whole:
            self._aside.copy(path, begin=begin, suffix=f".from.{begin}", why=why)

    def copy_whole(self, path: Path, why: str) -> None:
        """Keeps a file that is about to be overwritten, once."""
        if self._aside is not None and path not in self._kept_whole:
            self._aside.copy(path, why=why)
            self._kept_whole.add(path)

    @property
    def can_look(self) -> bool:
        """Whether units are looked up in the log."""
        return self._record_at is not None

    @property
    def keeps(self) -> bool:
        """Whether anything is kept."""
        return self._aside is not None

    def _place(self, unit: QueueUnit) -> RecordPlace | None:
        if self._record_at is None or unit.is_empty or unit.is_filler or unit.commit_log_offset < 0:
            return None
        return self._record_at(unit.commit_log_offset)
