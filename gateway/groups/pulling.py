"""What consumers that pull ask besides messages: to get some again, and to have queues for themselves."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.groups.asking import ask_groups, check_consumed_topic, check_users_group, raise_failure
from gateway.groups.joining import Join, ask_joined, join
from gateway.ports.deadline import Deadline
from gateway.ports.groups import LOCK_QUEUES, SEND_BACK
from gateway.ports.shard import Shard
from gateway.ports.shards import Shards
from gateway.queries.page import check_not_empty, check_not_negative
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.errors import GroupNotFoundError, InvalidArgumentError, QueueNotFoundError, StoreError

SENT_BACK_COUNT_MAX = 32
LOCKED_COUNT_MAX = 1_024


def send_back(
    shards: Shards, question: pb.SendBackMessagesRequest, broker_name: str, deadline: Deadline
) -> pb.SendBackMessagesResponse:
    """Give messages of a queue to a group again; the outcomes in order.

    Raises:
        InvalidArgumentError, BrokerNotFoundError, TopicNotFoundError, OffsetOutOfRangeError: nothing was sent back.
        ServiceUnavailableError: the group has to begin in the topic, and a shard that may know where does not answer.
        StoreError: the shard failed; the call may be repeated.
    """
    check_users_group(question.consumer_group)
    check_consumed_topic(question.topic)
    check_not_negative(question.queue_id, "queue_id")
    _check_count(len(question.queue_offsets), SENT_BACK_COUNT_MAX, "queue_offsets")
    for queue_offset in question.queue_offsets:
        check_not_negative(queue_offset, "queue_offsets")
    shard = shards.named(broker_name)
    question.known_only = True

    def give(one: Shard) -> pb.SendBackMessagesResponse:
        try:
            return ask_groups(one, SEND_BACK, question, deadline)
        except GroupNotFoundError as unknown:
            if unknown.metadata.get("beginsAtEnd") != "true":
                raise
        join(
            shards,
            Join(one.broker_name, question.consumer_group, question.topic, True, sent_back_queue_id=question.queue_id),
        )
        return ask_groups(one, SEND_BACK, question, deadline)

    (answer,) = ask_joined(shards, [shard], question.consumer_group, deadline, give)
    if isinstance(answer, StoreError):
        raise answer
    return answer


@dataclass(frozen=True, slots=True)
class LockedQueues:
    """What a member has locked, and what does not exist; shard, topic and number of each queue."""

    held: list[tuple[str, str, int]]
    unknown: list[tuple[str, str, int]]


def lock_queues(
    shards: Shards, question: pb.LockQueuesRequest, broker_names: Sequence[str], deadline: Deadline
) -> LockedQueues:
    """Lock or unlock queues for a member.

    Args:
        shards: all shards.
        question: with the queues of all of them.
        broker_names: the shard of each queue; may be empty when there is only one.
        deadline: of the call.

    Raises:
        InvalidArgumentError, BrokerNotFoundError: nothing was locked.
        QueueNotFoundError: none of the queues exists.
        StoreError: a shard failed; the call may be repeated.
    """
    check_users_group(question.consumer_group)
    check_not_empty(question.client_id, "client_id")
    _check_count(len(question.queues), LOCKED_COUNT_MAX, "queues")
    by_shard: dict[str, list[gateway_pb.TopicQueue]] = {}
    for broker_name, queue in zip(broker_names, question.queues, strict=True):
        check_consumed_topic(queue.topic)
        check_not_negative(queue.queue_id, "queue_id")
        by_shard.setdefault(shards.named(broker_name).broker_name, []).append(queue)
    named = [shards.named(name) for name in by_shard]
    shard_deadline = deadline.for_one_of(len(named))

    def lock(shard: Shard) -> LockedQueues:
        asked = pb.LockQueuesRequest(
            consumer_group=question.consumer_group,
            client_id=question.client_id,
            queues=by_shard[shard.broker_name],
            unlock=question.unlock,
            renew=question.renew,
        )
        answer = ask_groups(shard, LOCK_QUEUES, asked, shard_deadline)
        return LockedQueues(
            [(shard.broker_name, each.topic, each.queue_id) for each in answer.queues],
            [(shard.broker_name, each.topic, each.queue_id) for each in answer.unknown_queues],
        )

    answers = shards.fan_out.ask(named, lock)
    raise_failure(list(zip(by_shard, answers, strict=True)), (), "the locks are set")
    known = [answer for answer in answers if isinstance(answer, LockedQueues)]
    locked = LockedQueues(
        sorted(row for answer in known for row in answer.held),
        sorted(row for answer in known for row in answer.unknown),
    )
    if len(locked.unknown) == len(
        {(at, each.topic, each.queue_id) for at, queues in by_shard.items() for each in queues}
    ):
        broker_name, topic, queue_id = locked.unknown[0]
        raise QueueNotFoundError(
            f"Topic {topic!r} has no queue {queue_id} in {broker_name}, and none of the queues exists: nothing is locked.",
            topic=topic,
            queueId=queue_id,
            brokerName=broker_name,
        )
    return locked


def _check_count(count: int, count_max: int, field: str) -> None:
    if not 1 <= count <= count_max:
        raise InvalidArgumentError(f"there are {count} {field}: 1 to {count_max} are possible.", field=field)
