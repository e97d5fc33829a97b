"""LastRecord: the newest record that a builder applied, small enough to keep, exact enough to know it again.

A log of the same length may be another log: one that was brought back from a copy, or cut by a power cut and grown
again. A builder therefore resumes at its last record, not behind it, and compares.
"""

import zlib
from dataclasses import dataclass

from store.dispatch import DispatchRequest


@dataclass(frozen=True, slots=True)
class LastRecord:
    """Where the record starts in the log (bytes), and a CRC-32 over what a builder knows of it."""

    commit_log_offset: int
    fingerprint: int

    @classmethod
    def of(cls, request: DispatchRequest) -> "LastRecord":
        """Of this record."""
        return cls(request.commit_log_offset, fingerprint(request))


def fingerprint(request: DispatchRequest) -> int:
    """CRC-32 over a record's place, size, store time and unique key; the same in every version."""
    fields = (
        request.topic,
        request.queue_id,
        request.queue_offset,
        request.commit_log_offset,
        request.record_size_bytes,
        request.tags_code,
        request.store_time_millis,
        request.unique_key,
    )
    return zlib.crc32("\0".join(map(str, fields)).encode("utf-8", "surrogateescape"))
