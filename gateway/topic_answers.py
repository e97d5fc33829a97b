"""CreateTopic, UpdateTopic and DeleteTopic: each goes to every shard, or to the one that is named.

Shards are asked at once. When one fails the call fails, and the error names the shards that have done it: each command may be
repeated without harm.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from gateway.ports.shard import Shard
from gateway.ports.shards import topic_not_found
from gateway.ports.topic_admin import TopicAdmin, TopicChange, TopicSettings
from gateway.query_answers import Call
from gateway.wire import settings_of
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import InvalidArgumentError, ServiceUnavailableError, StoreError, TopicNotFoundError
from store.format.topic import TOPIC_QUEUE_COUNT_MAX

Answer = TypeVar("Answer")


def create_topic(call: Call, request: pb.CreateTopicRequest) -> pb.CreateTopicResponse:
    """CreateTopic; errors as TopicAdmin, and BrokerNotFoundError."""
    count = request.queue_count or None
    change = TopicChange(count, count, request.perm or None, request.message_type)
    found = _ask(call, request.broker_name, lambda admin: admin.create(request.topic, change, call.deadline))
    return pb.CreateTopicResponse(topics=[settings_of(name, settings) for name, settings in found])


def update_topic(call: Call, request: pb.UpdateTopicRequest) -> pb.UpdateTopicResponse:
    """UpdateTopic; errors as TopicAdmin, and BrokerNotFoundError. TopicNotFoundError when no shard has the topic."""
    both = _optional(request, "queue_count")
    if both is not None and not 1 <= both <= TOPIC_QUEUE_COUNT_MAX:
        raise InvalidArgumentError(
            f"queue_count is {both}: 1 to {TOPIC_QUEUE_COUNT_MAX} are allowed", field="queue_count", value=both
        )
    written, read = _optional(request, "write_queue_count"), _optional(request, "read_queue_count")
    change = TopicChange(
        both if written is None else written,
        both if read is None else read,
        _optional(request, "perm"),
        _optional(request, "message_type"),
    )

    def update(admin: TopicAdmin) -> TopicSettings | None:
        try:
            return admin.update(request.topic, change, call.deadline)
        except TopicNotFoundError:  # messages create a topic on one shard only
            return None

    rows = [(name, settings) for name, settings in _ask(call, request.broker_name, update) if settings is not None]
    if not rows:
        raise topic_not_found(request.topic)
    return pb.UpdateTopicResponse(topics=[settings_of(name, settings) for name, settings in rows])


def delete_topic(call: Call, request: pb.DeleteTopicRequest) -> pb.DeleteTopicResponse:
    """DeleteTopic; errors as TopicAdmin, and BrokerNotFoundError."""
    found = _ask(call, request.broker_name, lambda admin: admin.delete(request.topic, call.deadline))
    shards = [call.shards.named(name) for name, _ in found]

    def pass_deleted(shard: Shard[object]) -> None:
        """Groups have nothing of the topic in flight any more when the call is answered."""
        if shard.groups is not None:
            shard.groups.see_topics(call.deadline)

    for answer in call.shards.fan_out.ask(shards, pass_deleted):
        if isinstance(answer, StoreError):
            answer.message = f"the topic is deleted, and groups may still have messages of it: {answer.message}"
            raise answer
    return pb.DeleteTopicResponse(broker_names=[name for name, existed in found if existed])


def _ask(call: Call, broker_name: str, command: Callable[[TopicAdmin], Answer]) -> list[tuple[str, Answer]]:
    """What each shard answered, with its name; the error of the first one that failed."""
    shards: Sequence[Shard[object]] = [call.shards.named(broker_name)] if broker_name else list(call.shards)
    answers = call.shards.fan_out.ask(shards, lambda shard: command(_admin(shard)))
    done: list[tuple[str, Answer]] = []
    failed: list[tuple[str, StoreError]] = []
    for shard, answer in zip(shards, answers, strict=True):
        if isinstance(answer, StoreError):
            failed.append((shard.broker_name, answer))
        else:
            done.append((shard.broker_name, answer))
    if not failed:
        return done
    name, error = failed[0]
    error.metadata.setdefault("brokerName", name)
    if done:
        names = ", ".join(each for each, _ in done)
        error.message = f"shard {name}: {error.message}; shard {names} has done it: repeat the call when this is mended"
    raise error


def _admin(shard: Shard[object]) -> TopicAdmin:
    if shard.topic_admin is None:
        raise ServiceUnavailableError(
            f"shard {shard.broker_name} takes no commands for topics", service="commitlog", brokerName=shard.broker_name
        )
    return shard.topic_admin


def _optional(request: pb.UpdateTopicRequest, field: str) -> int | None:
    return int(getattr(request, field)) if request.HasField(field) else None
