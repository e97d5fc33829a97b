"""The port to a coordinator: one document, read, and replaced only by who knows its version."""

from dataclasses import dataclass
from typing import Protocol

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
