"""What a consumer that pulls asks besides messages: to get some again, and to have queues for itself; `QueryClient` has both as
methods, `PullConsumer` calls them.
"""

from collections.abc import Iterable, Sequence
from enum import Enum

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.consuming.pulling.allocation import MessageQueue
from reput_client.querying.question import Question


class SendBackOutcome(Enum):
    """What became of a message that was sent back."""

    OK = pb.SEND_BACK_OUTCOME_OK  # it waits for its delay level, or was sent back before
    DEAD_LETTER = pb.SEND_BACK_OUTCOME_DEAD_LETTER  # it had all its attempts, or the level was negative
    REMOVED = pb.SEND_BACK_OUTCOME_REMOVED  # retention has removed it: it cannot come again


def send_back(
    consumer_group: str, queue: MessageQueue, queue_offsets: Sequence[int], delay_level: int = 0
) -> Question[tuple[SendBackOutcome, ...]]:
    """Give messages of a queue to a group again: they come in its topic `%RETRY%<group>`.

    Args:
        consumer_group: the group; made when it is new.
        queue: where they were pulled.
        queue_offsets: their positions, at most 32.
        delay_level: RocketMQ's, 1 (1 s) to 18 (2 h); 0: 3 (10 s), and one more for each attempt before; negative: they become
            dead letters.

    Returns:
        What became of each, in order. This is in the log.

    Raises:
        NotFoundError, OffsetOutOfRangeError: there is no such queue or message; nothing was sent back.
    """
    request = pb.SendBackMessagesRequest(
        consumer_group=consumer_group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        broker_name=queue.broker_name,
        queue_offsets=queue_offsets,
        delay_level=delay_level,
    )
    return Question(
        "SendBackMessages", request, lambda answer: tuple(SendBackOutcome(each) for each in answer.outcomes)
    )


def lock_queues(
    consumer_group: str, client_id: str, queues: Iterable[MessageQueue], *, unlock: bool = False, renew: bool = False
) -> Question[tuple[MessageQueue, ...]]:
    """Lock queues for a member of a group for 60 seconds.

    Args:
        consumer_group: the group.
        client_id: the member.
        queues: at most 1,024.
        unlock: unlock them instead.
        renew: the member has them by an answer that is younger than 60 seconds.

    Returns:
        Those that the member has now.
    """
    request = pb.LockQueuesRequest(
        consumer_group=consumer_group,
        client_id=client_id,
        queues=[
            pb.TopicQueue(topic=each.topic, queue_id=each.queue_id, broker_name=each.broker_name) for each in queues
        ],
        unlock=unlock,
        renew=renew,
    )
    return Question(
        "LockQueues",
        request,
        lambda answer: tuple(MessageQueue(each.topic, each.broker_name, each.queue_id) for each in answer.queues),
    )
