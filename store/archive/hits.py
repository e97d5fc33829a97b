"""What lookups in an archive find: so much of it as can be had, and what says that there may be more."""

from dataclasses import dataclass

from store.archive.segment_reader import ArchivedUnit
from store.errors import StoreError


@dataclass(frozen=True, slots=True)
class KeyHits:
    """Records whose key has the hash asked for: commit-log offsets, falling.

    `more` when there are others below; `problem` says why some may be missing.
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
    """A message of a queue by store time, in milliseconds; `problem` says why it may be another.

    Attributes:
        queue_offset: its place; None when no message lies on that side of the time.
        first_store_time_millis: of the queue's first message; None when it cannot be had.
        last_store_time_millis: of its last.
        problem: why messages may be missing.
    """

    queue_offset: int | None
    first_store_time_millis: int | None
    last_store_time_millis: int | None
    problem: StoreError | None = None
