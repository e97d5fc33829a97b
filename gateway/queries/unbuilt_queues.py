"""Tells a queue without messages from a queue whose messages are not built yet; neither has a file.

    unknown ──▶ how far are the queues? ──▶ ask once more ──▶ known: the answer
                                              │ unknown still
                                              ▼
                                            behind: messages may be missing      at the log's end: there is none

The progress is asked first. Otherwise a queue that is built meanwhile would look like one without messages.
"""

from collections.abc import Callable
from typing import TypeVar

from gateway.ports.deadline import Deadline
from gateway.ports.shard import BuildProgress, QueueLocator
from store.errors import QueueNotFoundError, TopicNotFoundError

Answer = TypeVar("Answer")


def ask_once_more(queues: QueueLocator, ask: Callable[[], Answer], deadline: Deadline) -> Answer | BuildProgress:
    """Asks again about a queue without a file; the builder's progress when it still has none.

    Args:
        queues: the shard's queues.
        ask: asks them; TopicNotFoundError or QueueNotFoundError without a file.
        deadline: the caller's.
    """
    progress = queues.progress(0, 0.0, deadline)
    try:
        return ask()
    except (TopicNotFoundError, QueueNotFoundError):
        return progress
