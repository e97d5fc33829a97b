"""Says which waiting messages are not delivered and why: each has its line in the log of the service."""

import structlog

from reput.message.v1.message_pb2 import StoredMessage
from store.errors import StoreError
from store.format.properties import REAL_TOPIC
from store.format.topic import RETRY_OR_DLQ_TOPIC_LENGTH_MAX

UNUSABLE = "its record does not say where it belongs"
REMOVED = "retention removed their records"

_log = structlog.get_logger("reput.schedule")


def log_skipped(kind: str, queue_offset: int, commit_log_offset: int, topic: str | None, why: StoreError | str) -> None:
    """Say that a message is skipped.

    Args:
        kind: of waiting messages: level, timer, transaction, recall.
        queue_offset: its position in the system topic.
        commit_log_offset: of the record that waited (bytes).
        topic: where it belongs; None: not known, and left out.
        why: the error, or a text.
    """
    known = {} if topic is None else {"topic": topic}
    reason = why if isinstance(why, str) else why.message
    _log.warning(
        f"{kind}.skipped", queue_offset=queue_offset, commit_log_offset=commit_log_offset, **known, reason=reason
    )


def log_removed(kind: str, queue_offset: int, message_count: int) -> None:
    """Say that so many messages, from a position in the system topic on, are skipped because their records are removed."""
    _log.warning(f"{kind}.skipped", queue_offset=queue_offset, message_count=message_count, reason=REMOVED)


def real_topic_of(message: StoredMessage) -> str | None:
    """Where a waiting message belongs, as its record says it; None when it does not. No longer than a topic can be."""
    return message.properties.get(REAL_TOPIC, "")[:RETRY_OR_DLQ_TOPIC_LENGTH_MAX] or None
