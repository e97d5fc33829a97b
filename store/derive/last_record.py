"""LastRecord: the newest record that a builder applied, as its checkpoint stores it.

A log of the same length may be another log: it was restored from a copy, or a power cut shortened it and it grew again.
So a builder resumes at its last record, not behind it, and compares.
"""

import zlib
from dataclasses import dataclass

from store.derive.dispatch import DispatchRequest


@dataclass(frozen=True, slots=True)
class LastRecord:
    """Where the record starts in the log (bytes), and its fingerprint."""

    commit_log_offset: int
    fingerprint: int

    @classmethod
    def of(cls, request: DispatchRequest) -> "LastRecord":
        """The last record as this one."""
        return cls(request.commit_log_offset, fingerprint(request))


def fingerprint(request: DispatchRequest) -> int:
    """CRC-32 over a record's position, offset, size, store time and unique key; must not change between versions."""
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
