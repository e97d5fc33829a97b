"""Says which waiting messages are not delivered and why: each has its line in the log of the service."""

import structlog

from store.errors import StoreError

UNUSABLE = "its record does not say where it belongs"

_log = structlog.get_logger("reput.schedule")


def log_skipped(kind: str, queue_offset: int, commit_log_offset: int, topic: str, why: StoreError | str) -> None:
    """Say that a message is skipped.

    Args:
        kind: of waiting messages: level, timer, transaction.
        queue_offset: its position in the system topic.
        commit_log_offset: of the record that waited (bytes).
        topic: where it belongs; empty: not known.
        why: the error, or a text.
    """
    reason = why if isinstance(why, str) else why.message
    _log.warning(
        f"{kind}.skipped",
        queue_offset=queue_offset,
        commit_log_offset=commit_log_offset,
        topic=topic,
        reason=reason,
    )
