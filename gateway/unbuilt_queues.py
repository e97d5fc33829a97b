"""What it means that a shard has no file of a queue: no message was ever there, or none of them is built yet.

    unknown ──▶ how far are the queues? ──▶ ask once more ──▶ known: the answer
                                              │ unknown still
                                              ▼
                                            behind: messages may be missing      at the log's end: there is none

The progress is asked first, so that what is built while this goes on is not taken for a queue without messages.
"""

from collections.abc import Callable
from typing import TypeVar

from gateway.deadline import Deadline
from gateway.ports import BuildProgress, QueueLocator
from store.errors import QueueNotFoundError, TopicNotFoundError

Answer = TypeVar("Answer")


def ask_once_more(queues: QueueLocator, ask: Callable[[], Answer], deadline: Deadline) -> Answer | BuildProgress:
    """The answer to what was just asked for a queue without a file; the builder's progress when it has none still.

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
