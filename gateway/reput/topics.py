"""CreateTopic, UpdateTopic and DeleteTopic: each goes to every shard, or to the one that is named.

Shards are asked at once. When one fails the call fails, and the error names the shards that have done it: each command may be
repeated without harm.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from gateway.ports.groups import SEE_TOPICS
from gateway.ports.shard import CREATE_TOPIC, DELETE_TOPIC, UPDATE_TOPIC, Shard
from gateway.ports.shards import topic_not_found
from gateway.reput.queries import Call
from gateway.reput.wire import settings_of
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import InvalidArgumentError, ServiceUnavailableError, StoreError, TopicNotFoundError
from store.format.topic import TOPIC_QUEUE_COUNT_MAX

Answer = TypeVar("Answer")


def create_topic(call: Call, request: pb.CreateTopicRequest) -> pb.CreateTopicResponse:
    """CreateTopic; errors as the shard's, and BrokerNotFoundError."""
    command = log_pb.CreateTopicRequest(
        topic=request.topic,
        queue_count=request.queue_count,
        message_type=request.message_type,
        perm=request.perm,
        lite_expiration_minutes=request.lite_expiration_minutes,
    )
    found = _ask(call, request.broker_name, lambda shard: shard.call(CREATE_TOPIC, command, call.deadline).topic)
    return pb.CreateTopicResponse(topics=[settings_of(name, settings) for name, settings in found])


def update_topic(call: Call, request: pb.UpdateTopicRequest) -> pb.UpdateTopicResponse:
    """UpdateTopic; errors as the shard's, and BrokerNotFoundError. TopicNotFoundError when no shard has the topic."""
    both = _optional(request, "queue_count")
    if both is not None and not 1 <= both <= TOPIC_QUEUE_COUNT_MAX:
        raise InvalidArgumentError(
            f"queue_count is {both}: 1 to {TOPIC_QUEUE_COUNT_MAX} are allowed", field="queue_count", value=both
        )
    written, read = _optional(request, "write_queue_count"), _optional(request, "read_queue_count")
    command = log_pb.UpdateTopicRequest(
        topic=request.topic,
        write_queue_count=both if written is None else written,
        read_queue_count=both if read is None else read,
        perm=request.perm if request.HasField("perm") else None,
        message_type=request.message_type if request.HasField("message_type") else None,
        lite_expiration_minutes=_optional(request, "lite_expiration_minutes"),
    )

    def update(shard: Shard) -> log_pb.ListTopicsResponse.Topic | None:
        try:
            return shard.call(UPDATE_TOPIC, command, call.deadline).topic
        except TopicNotFoundError:  # messages create a topic on one shard only
            return None

    rows = [(name, settings) for name, settings in _ask(call, request.broker_name, update) if settings is not None]
    if not rows:
        raise topic_not_found(request.topic)
    return pb.UpdateTopicResponse(topics=[settings_of(name, settings) for name, settings in rows])


def delete_topic(call: Call, request: pb.DeleteTopicRequest) -> pb.DeleteTopicResponse:
    """DeleteTopic; errors as the shard's, and BrokerNotFoundError."""
    command = log_pb.DeleteTopicRequest(topic=request.topic)
    found = _ask(call, request.broker_name, lambda shard: shard.call(DELETE_TOPIC, command, call.deadline).existed)
    shards = [call.shards.named(name) for name, _ in found]

    def pass_deleted(shard: Shard) -> None:
        """Groups have nothing of the topic in flight any more when the call is answered."""
        if shard.has(SEE_TOPICS):
            shard.call(SEE_TOPICS, consumer_pb.SeeTopicsRequest(), call.deadline)

    for answer in call.shards.fan_out.ask(shards, pass_deleted):
        if isinstance(answer, StoreError):
            answer.message = f"the topic is deleted, and groups may still have messages of it: {answer.message}"
            raise answer
    return pb.DeleteTopicResponse(broker_names=[name for name, existed in found if existed])


def _ask(call: Call, broker_name: str, command: Callable[[Shard], Answer]) -> list[tuple[str, Answer]]:
    """What each shard answered, with its name; the error of the first one that failed."""
    shards: Sequence[Shard] = [call.shards.named(broker_name)] if broker_name else list(call.shards)
    answers = call.shards.fan_out.ask(shards, lambda shard: command(_commanded(shard)))
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


def _commanded(shard: Shard) -> Shard:
    if not shard.has(CREATE_TOPIC):
        raise ServiceUnavailableError(
            f"shard {shard.broker_name} takes no commands for topics", service="commitlog", brokerName=shard.broker_name
        )
    return shard


def _optional(request: pb.UpdateTopicRequest, field: str) -> int | None:
    return int(getattr(request, field)) if request.HasField(field) else None
