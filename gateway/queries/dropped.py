"""Tells records that retention has dropped from missing ones.

Retention shortens queues and index files later than the log, so they may point at expired records. Queries skip these. An
offset behind the log's end, or one where no record starts, is damage: the queue or index belongs to another log, or its
bytes have changed.
"""

from store.errors import OffsetOutOfRangeError, StoreError


def was_dropped(error: StoreError, commit_log_offset: int) -> bool:
    """Whether `error`, the outcome of reading the record at that offset (bytes), says that it expired."""
    if not isinstance(error, OffsetOutOfRangeError):
        return False
    try:
        return 0 <= commit_log_offset < int(error.metadata["firstOffset"])
    except (KeyError, ValueError):
        return False
