"""Tells a queue without messages from a queue whose messages are not built yet; neither has a file.

    unknown ──▶ how far are the queues? ──▶ ask once more ──▶ known: the answer
                                              │ unknown still
                                              ▼
                                            behind: messages may be missing      at the log's end: there is none

The progress is asked first. Otherwise a queue that is built meanwhile would look like one without messages.
"""

from collections.abc import Callable
from typing import TypeVar

from gateway.ports.chain import Answering
from gateway.ports.deadline import Deadline
from gateway.ports.shard import QUEUES_PROGRESS, BuildProgress
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from store.errors import QueueNotFoundError, TopicNotFoundError

Answer = TypeVar("Answer")


def ask_once_more(call: Answering, ask: Callable[[], Answer], deadline: Deadline) -> Answer | BuildProgress:
    """Asks again about a queue without a file; the builder's progress when it still has none.

    Args:
        call: asks the shard.
        ask: asks them; TopicNotFoundError or QueueNotFoundError without a file.
        deadline: the caller's.
    """
    progress = call(QUEUES_PROGRESS, queue_pb.GetStatusRequest(past_offset=0), deadline).progress
    try:
        return ask()
    except (TopicNotFoundError, QueueNotFoundError):
        return progress
