"""The port to a coordinator: one document that is read, and replaced only by a caller that knows its version.

Beside it, what every record store asks of a document before it is sent, and a record store in the memory of one process, for
tests and for trying out.
"""

import threading
from dataclasses import dataclass
from typing import Protocol

from store.errors import InvalidArgumentError, RecordConflictError

# A record with dozens of replicas has a few KiB; etcd takes 1.5 MiB, all annotations of a Lease together 256 KiB.
DATA_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """What is stored.

    Attributes:
        data: UTF-8 text.
        version: of the coordinator's own making, for `write`. No other content ever has it, also not after the coordinator
            lost its data and began to count anew.
    """

    data: bytes
    version: str


class RecordStore(Protocol):
    """One document at a coordinator. Thread-safe. No call is repeated, none blocks for long after `timeout_seconds`."""

    def read(self, timeout_seconds: float) -> StoredRecord | None:
        """What is stored now, by the coordinator's majority; None: there is no document.

        Raises:
            CoordinatorUnavailableError: it cannot be known.
        """
        ...

    def write(self, data: bytes, version: str | None, timeout_seconds: float) -> str:
        """Replace the document; its new version.

        Args:
            data: UTF-8 text, DATA_BYTES_MAX at most.
            version: of the document that is replaced; None: there must be none.
            timeout_seconds: after so long the outcome is unknown.

        Raises:
            RecordConflictError: another version is stored. Nothing was written.
            CoordinatorUnavailableError: it cannot be known whether `data` was written, or will be.
            InvalidArgumentError: `data` is too long or no UTF-8.
        """
        ...


def checked_text(data: bytes) -> str:
    """The document as text.

    Raises:
        InvalidArgumentError: it is too long or no UTF-8.
    """
    if len(data) > DATA_BYTES_MAX:
        raise InvalidArgumentError(
            f"the record of a shard has {len(data)} bytes, {DATA_BYTES_MAX} are allowed: name fewer replicas",
            field="data",
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"the record of a shard is no UTF-8: {error}", field="data") from error


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
