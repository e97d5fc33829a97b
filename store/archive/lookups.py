"""What the gateway asks of the messages that a log has dropped: an archive and the cold tier answer it."""

from pathlib import Path
from typing import Protocol

from store.archive.hits import KeyHits, QueueHits, TimeHit
from store.errors import StoreError
from store.format.record import Record


class Lookups(Protocol):
    """Lookups of single messages of a shard. Thread-safe. Hits carry a `problem` when they may not be complete."""

    @property
    def root(self) -> Path | str:
        """Where it is."""

    def problem(self) -> StoreError | None:
        """Why it is not complete: it cannot be read, or log is missing between its parts."""

    def range(self) -> tuple[int, int]:
        """First and end commit-log offset (bytes); (0, 0) when it is empty."""

    def record(self, commit_log_offset: int) -> Record:
        """The record that starts there; OffsetOutOfRangeError, RecordNotFoundError, or why it cannot be read."""

    def search(
        self,
        topic: str,
        key: str,
        *,
        below_offset: int | None = None,
        begin_millis: int | None = None,
        end_millis: int | None = None,
        count: int = 64,
    ) -> KeyHits:
        """Records with a key, or a unique key, of the same hash, newest first; the caller compares topic, key and time."""

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> QueueHits:
        """Up to `count` messages of a queue from a queue offset on; missing places are skipped."""

    def at_time(self, topic: str, queue_id: int, time_millis: int, *, is_upper: bool = False) -> TimeHit:
        """The first message of a queue stored at or after a time, or with `is_upper` the last at or before it."""

    def queues(self, topic: str | None = None) -> dict[tuple[str, int], tuple[int, int]]:
        """First queue offset and the one behind the last, by topic and queue id; StoreError when it cannot be read."""
