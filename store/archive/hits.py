"""Results of lookups in an archive, and why they may be incomplete."""

from dataclasses import dataclass

from store.archive.segment_reader import ArchivedUnit
from store.errors import StoreError


@dataclass(frozen=True, slots=True)
class KeyHits:
    """Commit-log offsets of records whose key has the given hash, falling.

    `more` says whether there are others below; `problem` why some may be missing.
    """

    commit_log_offsets: tuple[int, ...]
    more: bool
    problem: StoreError | None = None


@dataclass(frozen=True, slots=True)
class QueueHits:
    """Messages of a queue, by rising queue offset; `problem` says why some may be missing."""

    units: tuple[ArchivedUnit, ...]
    problem: StoreError | None = None


@dataclass(frozen=True, slots=True)
class TimeHit:
    """A message of a queue by store time, in milliseconds; `problem` says why it may be the wrong one.

    Attributes:
        queue_offset: its place; None when no message is on that side of the time.
        first_store_time_millis: of the queue's first message; None when it cannot be read.
        last_store_time_millis: of its last.
        problem: why messages may be missing.
    """

    queue_offset: int | None
    first_store_time_millis: int | None
    last_store_time_millis: int | None
    problem: StoreError | None = None
