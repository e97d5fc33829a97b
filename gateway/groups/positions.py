"""Positions of consumer groups, over all shards."""

from collections.abc import Sequence

from gateway.groups.asking import (
    answered,
    ask_all,
    ask_groups,
    check_consumed_topic,
    check_group,
    check_users_group,
    group_not_found,
    raise_failure,
)
from gateway.groups.joining import ask_joined
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import DeliveringSource
from gateway.ports.groups import COMMIT_OFFSETS, GET_OFFSETS, RESET_OFFSETS
from gateway.ports.shard import Shard
from gateway.ports.shards import Shards, require_queue, require_queues
from gateway.queries.by_queue_offset import queue_place
from gateway.queries.page import check_not_negative, check_topic
from reput.consumer.v1 import consumer_service_pb2 as pb
from store.errors import (
    GroupNotFoundError,
    InvalidArgumentError,
    QueueNotFoundError,
    StoreError,
    TopicNotFoundError,
)

# Of one CommitOffsets.
POSITION_COUNT_MAX = 1_024


def get_positions(
    shards: Shards, consumer_group: str, topic: str, deadline: Deadline
) -> list[tuple[str, pb.QueueOffset]]:
    """The positions of a group with the shards' names, by topic, shard and queue.

    Raises:
        GroupNotFoundError: no shard knows the group.
        StoreError: a shard did not answer.
    """
    check_group(consumer_group)
    if topic:
        check_topic(topic)
    answers = ask_all(shards, GET_OFFSETS, pb.GetOffsetsRequest(consumer_group=consumer_group, topic=topic), deadline)
    raise_failure(answers, (GroupNotFoundError,), "")
    found = answered(answers)
    if not found:
        raise group_not_found(consumer_group)
    rows = [(name, each) for name, positions in found for each in positions.offsets]
    return sorted(rows, key=lambda row: (row[1].topic, row[0], row[1].queue_id))


def position_in_queue(
    shards: Shards,
    deliverings: DeliveringSource,
    consumer_group: str,
    broker_name: str,
    topic: str,
    queue_id: int,
    deadline: Deadline,
) -> int | None:
    """A group's place in a queue of a shard; None when it has not begun in the topic.

    A group with a place in another queue of the topic has begun: this queue came later and begins at its first message. A
    client that hears that there is none goes to where it lets groups begin, which may be the end.
    """
    shard = deliverings.named(broker_name)
    offsets = shard.offsets(consumer_group, topic, deadline.remaining_seconds())
    if queue_id in offsets:
        return offsets[queue_id]
    others = (each for each in deliverings.all() if each.broker_name != shard.broker_name)
    if not offsets and not any(each.offsets(consumer_group, topic, deadline.remaining_seconds()) for each in others):
        return None
    return queue_place(shards, topic, queue_id, 0, broker_name=shard.broker_name, deadline=deadline).min_offset


def commit_positions(
    shards: Shards,
    consumer_group: str,
    positions: Sequence[tuple[str, pb.QueueOffset]],
    deadline: Deadline,
    *,
    begins: bool = False,
    member: str = "",
) -> None:
    """Set positions, each with the name of its shard, which may be empty when there is only one.

    With `begins` the group begins at them; positions that it has are kept. `member`: whose they are, as its pulls name it.

    Raises:
        InvalidArgumentError, BrokerNotFoundError, TopicNotFoundError, QueueNotFoundError: nothing was set.
        StoreError: a shard failed; the call may be repeated.
    """
    check_users_group(consumer_group)
    if not 1 <= len(positions) <= POSITION_COUNT_MAX:
        raise InvalidArgumentError(
            f"there are {len(positions)} positions: 1 to {POSITION_COUNT_MAX} are possible.", field="positions"
        )
    by_shard: dict[str, list[pb.QueueOffset]] = {}
    for broker_name, position in positions:
        check_consumed_topic(position.topic)
        check_not_negative(position.queue_id, "queue_id")
        check_not_negative(position.queue_offset, "consumer_offset")
        by_shard.setdefault(shards.named(broker_name).broker_name, []).append(position)
    named = [shards.named(name) for name in by_shard]
    shard_deadline = deadline.for_one_of(len(named))

    def require(shard: Shard) -> None:
        queue_ids: dict[str, set[int]] = {}
        for each in by_shard[shard.broker_name]:
            queue_ids.setdefault(each.topic, set()).add(each.queue_id)
        for topic, of_topic in queue_ids.items():
            require_queues(shard, topic, of_topic, shard_deadline)

    for answer in shards.fan_out.ask(named, require):
        if isinstance(answer, StoreError):
            raise answer

    def commit(shard: Shard) -> pb.CommitOffsetsResponse:
        request = pb.CommitOffsetsRequest(
            consumer_group=consumer_group,
            offsets=by_shard[shard.broker_name],
            begins=begins,
            known_only=True,
            member=member,
        )
        return ask_groups(shard, COMMIT_OFFSETS, request, shard_deadline)

    answers = ask_joined(shards, named, consumer_group, deadline, commit)
    raise_failure(list(zip(by_shard, answers, strict=True)), (), "the positions are set")


def reset_positions(
    shards: Shards, question: pb.ResetOffsetsRequest, broker_name: str, deadline: Deadline
) -> list[tuple[str, pb.ResetOffsetsResponse.Reset]]:
    """Move a group, in all shards or one; the queues with the shards' names, by shard and queue. It need not exist yet.

    Raises:
        TopicNotFoundError: no shard that was asked has the topic.
        GroupNotFoundError: consumer services of an older release do not know the group.
        QueueNotFoundError, InvalidArgumentError, BrokerNotFoundError: nothing was moved.
        StoreError: a shard failed; the call may be repeated.
    """
    check_users_group(question.consumer_group)
    check_topic(question.topic)
    if question.HasField("queue_id"):
        check_not_negative(question.queue_id, "queue_id")
        _require_queue(shards, question.topic, question.queue_id, broker_name, deadline)
    check_not_negative(question.queue_offset, "queue_offset")
    known = pb.ResetOffsetsRequest()
    known.CopyFrom(question)
    known.known_only = True
    asked = [shards.named(broker_name)] if broker_name else list(shards)
    within = deadline.for_one_of(len(asked))
    moved = ask_joined(
        shards,
        asked,
        question.consumer_group,
        deadline,
        lambda shard: ask_groups(shard, RESET_OFFSETS, known, within),
    )
    answers = list(zip([shard.broker_name for shard in asked], moved, strict=True))
    raise_failure(answers, (GroupNotFoundError, TopicNotFoundError), "" if question.dry_run else "the group was moved")
    found = answered(answers)
    if not found:
        of_topic = [error for _, error in answers if isinstance(error, TopicNotFoundError)]
        if of_topic:
            raise TopicNotFoundError(
                f"No shard has the topic {question.topic!r}: no position of {question.consumer_group!r} was moved.",
                topic=question.topic,
            )
        raise group_not_found(question.consumer_group)
    return [(name, each) for name, moved in found for each in sorted(moved.resets, key=lambda reset: reset.queue_id)]


def _require_queue(shards: Shards, topic: str, queue_id: int, broker_name: str, deadline: Deadline) -> None:
    """QueueNotFoundError when no shard that is asked has such a queue, and all have answered."""
    asked = [shards.named(broker_name)] if broker_name else list(shards)
    answers = shards.fan_out.ask(asked, lambda shard: require_queue(shard, topic, queue_id, deadline))
    if any(not isinstance(answer, TopicNotFoundError | QueueNotFoundError) for answer in answers):
        return
    raise QueueNotFoundError(f"Topic {topic!r} has no queue {queue_id}.", topic=topic, queueId=queue_id)
