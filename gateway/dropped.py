"""Whether a record that the log does not have was dropped by retention, which is no loss, or is missing, which is.

Queues and index files follow the log's front with a delay, so they may still point at records that have expired. Such
places are passed over in silence. A place behind the log's end, or one where no record starts, is damage: the queue or
the index was made from another log, or its bytes have rotted.
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
