"""A record store in the memory of one process, for tests and for trying out."""

import threading

from services.coordination.checks import checked_text
from services.coordination.port import StoredRecord
from store.errors import RecordConflictError


class MemoryRecordStore:
    """Several threads share one object. Never unavailable."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stored: StoredRecord | None = None
        self._written_count = 0

    def read(self, timeout_seconds: float) -> StoredRecord | None:
        """See RecordStore."""
        with self._lock:
            return self._stored

    def write(self, data: bytes, version: str | None, timeout_seconds: float) -> str:
        """See RecordStore."""
        checked_text(data)
        with self._lock:
            current = self._stored.version if self._stored is not None else None
            if current != version:
                raise RecordConflictError("the record in memory has another version: read it again")
            self._written_count += 1
            self._stored = StoredRecord(data, str(self._written_count))
            return self._stored.version

    def lose(self) -> None:
        """The document is gone; versions are not used again."""
        with self._lock:
            self._stored = None
