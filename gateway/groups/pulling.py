"""What consumers that pull ask besides messages: to get some again, and to have queues for themselves."""

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


def lock_queues(shards: Shards, question: pb.LockQueuesRequest, deadline: Deadline) -> gateway_pb.LockQueuesResponse:
    """Lock or unlock queues for a member; by shard, topic and queue.

    Args:
        shards: all shards.
        question: with the queues of all of them; a shard's name may be empty when there is only one.
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
    for queue in question.queues:
        check_consumed_topic(queue.topic)
        check_not_negative(queue.queue_id, "queue_id")
        rows = by_shard.setdefault(shards.named(queue.broker_name).broker_name, [])
        rows.append(gateway_pb.TopicQueue(topic=queue.topic, queue_id=queue.queue_id))
    named = [shards.named(name) for name in by_shard]
    shard_deadline = deadline.for_one_of(len(named))

    def lock(shard: Shard) -> pb.LockQueuesResponse:
        asked = pb.LockQueuesRequest(
            consumer_group=question.consumer_group,
            client_id=question.client_id,
            queues=by_shard[shard.broker_name],
            unlock=question.unlock,
            renew=question.renew,
        )
        answer = ask_groups(shard, LOCK_QUEUES, asked, shard_deadline)
        for queue in (*answer.queues, *answer.unknown_queues):
            queue.broker_name = shard.broker_name
        return answer

    answers = shards.fan_out.ask(named, lock)
    raise_failure(list(zip(by_shard, answers, strict=True)), (), "the locks are set")
    known = [answer for answer in answers if not isinstance(answer, StoreError)]
    held = sorted((queue for answer in known for queue in answer.queues), key=_place_of)
    unknown = sorted((queue for answer in known for queue in answer.unknown_queues), key=_place_of)
    asked_count = len({(at, each.topic, each.queue_id) for at, queues in by_shard.items() for each in queues})
    if len(unknown) == asked_count:
        first = unknown[0]
        raise QueueNotFoundError(
            f"Topic {first.topic!r} has no queue {first.queue_id} in {first.broker_name}, and none of the queues exists: "
            "nothing is locked.",
            topic=first.topic,
            queueId=first.queue_id,
            brokerName=first.broker_name,
        )
    return gateway_pb.LockQueuesResponse(queues=held, unknown_queues=unknown)


def _place_of(queue: gateway_pb.TopicQueue) -> tuple[str, str, int]:
    return queue.broker_name, queue.topic, queue.queue_id


def _check_count(count: int, count_max: int, field: str) -> None:
    if not 1 <= count <= count_max:
        raise InvalidArgumentError(f"there are {count} {field}: 1 to {count_max} are possible.", field=field)
