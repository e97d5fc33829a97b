"""Offsets: a group's place in a queue, and the ends and times of queues."""

import grpc

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.groups.joining import ask_joined
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import DeliveringSource
from gateway.ports.shard import Built
from gateway.ports.shards import Shards, require_queue
from gateway.ports.time_window import millis_at_or_after
from gateway.queries.search_offset import search_offset
from gateway.rocketmq.names import full_name, group_of, topic_of
from gateway.rocketmq.status import RefusedError, ok
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.methods import QUERY_SECONDS
from services.serving.deadline import answer_seconds
from store.errors import UnsupportedStoreError


def update_offset(
    shards: Shards,
    delivering: DeliveringSource,
    request: v2.UpdateOffsetRequest,
    context: grpc.ServicerContext,
) -> v2.UpdateOffsetResponse:
    """Sets a group's place in a queue."""
    queue = request.message_queue
    topic, group = topic_of(queue.topic), group_of(request.group)
    if request.offset < 0:
        raise RefusedError(v2.ILLEGAL_OFFSET, f"offset is {request.offset}: it must be 0 or more")
    if queue.id < 0:
        raise RefusedError(v2.BAD_REQUEST, f"queue {queue.id} cannot be: name one from 0 on")
    shard = delivering.named(queue.broker.name)
    deadline = Deadline.after(answer_seconds(context, QUERY_SECONDS))
    catalog = shards.named(shard.broker_name)
    require_queue(catalog, topic, queue.id, deadline)

    def commit(_: object) -> None:
        shard.commit_offset(group, topic, queue.id, request.offset, deadline.remaining_seconds())

    (outcome,) = ask_joined(shards, [catalog], group, deadline, commit)
    if outcome is not None:
        raise outcome
    return v2.UpdateOffsetResponse(status=ok())


def get_offset(
    shards: Shards,
    delivering: DeliveringSource,
    request: v2.GetOffsetRequest,
    context: grpc.ServicerContext,
) -> v2.GetOffsetResponse:
    """A group's place in a queue.

    A group with an offset in another queue of the topic has begun: this queue came later and begins at its first message. A
    client that hears OFFSET_NOT_FOUND would go to where it lets groups begin, which may be the end.
    """
    queue = request.message_queue
    topic, group = topic_of(queue.topic), group_of(request.group)
    shard = delivering.named(queue.broker.name)
    deadline = Deadline.after(answer_seconds(context, QUERY_SECONDS))
    offsets = shard.offsets(group, topic, deadline.remaining_seconds())
    offset = offsets.get(queue.id)
    if offset is None:
        others = (each for each in delivering.all() if each.broker_name != shard.broker_name)
        if not offsets and not any(each.offsets(group, topic, deadline.remaining_seconds()) for each in others):
            raise RefusedError(v2.OFFSET_NOT_FOUND, f"group {group} has no offset in queue {queue.id} of topic {topic}")
        found = search_offset(
            shards,
            topic,
            queue.id,
            0,
            boundary=gateway_pb.BOUNDARY_LOWER,
            broker_name=shard.broker_name,
            deadline=deadline,
        )
        _check_whole(found)
        offset = found.answer.min_offset
    return v2.GetOffsetResponse(status=ok(), offset=offset)


def query_offset(shards: Shards, request: v2.QueryOffsetRequest, deadline: Deadline) -> v2.QueryOffsetResponse:
    """The begin or end of a queue, or the first position at or after a time."""
    policy = request.query_offset_policy
    if policy not in (v2.BEGINNING, v2.END, v2.TIMESTAMP):
        raise RefusedError(
            v2.BAD_REQUEST, f"query_offset_policy {policy} is not known: use BEGINNING, END or TIMESTAMP"
        )
    if policy == v2.TIMESTAMP and not request.HasField("timestamp"):
        raise RefusedError(v2.BAD_REQUEST, "timestamp is missing: set it, or use another query_offset_policy")
    time = request.timestamp
    queue = request.message_queue
    found = search_offset(
        shards,
        full_name(queue.topic),
        queue.id,
        millis_at_or_after(time.seconds, time.nanos, "timestamp"),
        boundary=gateway_pb.BOUNDARY_LOWER,
        broker_name=queue.broker.name,
        deadline=deadline,
    )
    if found.progress.catching_up and policy != v2.BEGINNING:
        raise RefusedError(v2.HA_NOT_AVAILABLE, "the queues are still being built: ask again")
    if policy != v2.END:
        _check_whole(found)
    place = found.answer
    offsets = {v2.BEGINNING: place.min_offset, v2.END: place.max_offset, v2.TIMESTAMP: place.queue_offset}
    return v2.QueryOffsetResponse(status=ok(), offset=offsets[policy])


def _check_whole(found: Built[queue_pb.SearchOffsetResponse]) -> None:
    """Raise what may make a position wrong; what the store has elsewhere is in no queue that is delivered."""
    if found.problem is not None and not isinstance(found.problem, UnsupportedStoreError):
        raise found.problem
