"""QueryRoute and QueryAssignment: the queues of a topic in all shards that answer, each with the address of this gateway."""

from collections.abc import Sequence

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.ports.deadline import Deadline
from gateway.ports.shard import LIST_TOPICS, Shard, list_queues, queue_count_of
from gateway.ports.shards import Shards, topic_not_found
from gateway.rocketmq.names import OWNED_TOPIC_PREFIXES, topic_of
from gateway.rocketmq.status import RefusedError, ok
from gateway.rocketmq.topic_types import types_of
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from store.errors import StoreError
from store.format.topic import PERM_READ, PERM_WRITE

Topic = log_pb.ListTopicsResponse.Topic

# Queues of a topic in one shard that a route names, 1 MiB of it; a configured count may be any number of 32 bits.
ROUTE_QUEUE_COUNT_MAX = 8_192
# Topic and address stand in each row of the answer as the caller has named them: some host names have room.
NAMED_BYTES_MAX = 1_024
# Stands for all queues of a shard in an assignment.
ANY_QUEUE = -1


def query_route(shards: Shards, request: v2.QueryRouteRequest, deadline: Deadline) -> v2.QueryRouteResponse:
    """The queues of a topic; a topic that the shards would create has those it would get.

    Raises:
        RefusedError, StoreError: the topic is not legal or not known, or no shard answers.
    """
    response = v2.QueryRouteResponse(status=ok())
    for broker_name, settings in _settings(shards, request.topic, request.endpoints, deadline):
        for queue_id in range(min(queue_count_of(settings), ROUTE_QUEUE_COUNT_MAX)):
            queue = response.message_queues.add()
            _set_queue(queue, request, broker_name, queue_id)
            queue.permission = _permission(settings, queue_id)
            queue.accept_message_types.extend(types_of(int(settings.message_type)))
    return response


def query_assignment(
    shards: Shards, request: v2.QueryAssignmentRequest, deadline: Deadline, *, ordered: bool
) -> v2.QueryAssignmentResponse:
    """What each member of a group polls.

    Args:
        shards: the shards.
        request: the topic.
        deadline: of the call.
        ordered: whether the group is.

    Raises:
        RefusedError, StoreError: as `query_route`; FORBIDDEN when there is no queue.
    """
    response = v2.QueryAssignmentResponse(status=ok())
    for broker_name, settings in _settings(shards, request.topic, request.endpoints, deadline):
        if not settings.perm & PERM_READ or not settings.read_queue_count:
            continue
        queue_ids = range(min(settings.read_queue_count, ROUTE_QUEUE_COUNT_MAX)) if ordered else (ANY_QUEUE,)
        for queue_id in queue_ids:
            queue = response.assignments.add().message_queue
            _set_queue(queue, request, broker_name, queue_id)
            queue.permission = v2.READ_WRITE
    if not response.assignments:
        raise RefusedError(v2.FORBIDDEN, "the topic has no queue to read")
    return response


def _set_queue(
    queue: v2.MessageQueue, request: "v2.QueryRouteRequest | v2.QueryAssignmentRequest", broker_name: str, queue_id: int
) -> None:
    queue.topic.CopyFrom(request.topic)
    queue.id = queue_id
    queue.broker.name = broker_name
    queue.broker.endpoints.CopyFrom(request.endpoints)


def _permission(settings: Topic, queue_id: int) -> "v2.Permission":
    """A topic may have more queues to read than to write, such as while it gets fewer."""
    is_read = settings.perm & PERM_READ and queue_id < settings.read_queue_count
    is_written = settings.perm & PERM_WRITE and queue_id < settings.write_queue_count
    if is_read:
        return v2.READ_WRITE if is_written else v2.READ
    return v2.WRITE if is_written else v2.NONE


def _settings(
    shards: Shards, resource: v2.Resource, endpoints: v2.Endpoints, deadline: Deadline
) -> Sequence[tuple[str, Topic]]:
    """The shards that answer and have queues of the topic. A shard that is down is left out, as a name server leaves it out."""
    topic = topic_of(resource)
    named_bytes = resource.ByteSize() + endpoints.ByteSize()
    if named_bytes > NAMED_BYTES_MAX:
        raise RefusedError(
            v2.BAD_REQUEST,
            f"topic and endpoints have {named_bytes} bytes: use at most {NAMED_BYTES_MAX}, one address is enough",
        )
    if not endpoints.addresses:
        raise RefusedError(
            v2.BAD_REQUEST, "endpoints is empty: give the address by which the client called the gateway"
        )
    each = deadline.for_one_of(len(shards))
    answers = shards.fan_out.ask(shards, lambda shard: _settings_in(shard, topic, each))
    failed = [answer for answer in answers if isinstance(answer, StoreError)]
    if len(failed) == len(answers):
        raise failed[0]
    found = [
        (shard.broker_name, answer)
        for shard, answer in zip(shards, answers, strict=True)
        if not isinstance(answer, StoreError) and queue_count_of(answer)
    ]
    if not found:
        raise failed[0] if failed else topic_not_found(topic)
    return found


def _settings_in(shard: Shard, topic: str, deadline: Deadline) -> Topic:
    """The topic in the shard, or as the shard would create it."""
    answer = shard.call(LIST_TOPICS, log_pb.ListTopicsRequest(), deadline)
    known = next((each for each in answer.topics if each.topic == topic), None)
    if known is not None:
        return known
    queues = list_queues(shard, topic, deadline)
    count = max((queue.queue_id + 1 for queue in queues), default=0)
    if not topic.startswith(OWNED_TOPIC_PREFIXES):  # those are made by the consumer service, never by a client
        count = max(count, answer.new_topic_queue_count)
    return Topic(topic=topic, write_queue_count=count, read_queue_count=count, perm=PERM_READ | PERM_WRITE)
