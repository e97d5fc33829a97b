"""Offsets: a group's place in a queue, and the ends and times of queues."""

import grpc

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.groups.joining import ask_joined
from gateway.groups.positions import position_in_queue
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import DeliveringSource
from gateway.ports.shards import Shards, require_queue
from gateway.ports.time_window import millis_at_or_after
from gateway.queries.by_queue_offset import queue_place
from gateway.rocketmq.names import full_name, group_of, topic_of
from gateway.rocketmq.status import RefusedError, ok
from services.methods import QUERY_SECONDS
from services.serving.deadline import answer_seconds


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
    """A group's place in a queue."""
    queue = request.message_queue
    topic, group = topic_of(queue.topic), group_of(request.group)
    deadline = Deadline.after(answer_seconds(context, QUERY_SECONDS))
    offset = position_in_queue(shards, delivering, group, queue.broker.name, topic, queue.id, deadline)
    if offset is None:
        raise RefusedError(v2.OFFSET_NOT_FOUND, f"group {group} has no offset in queue {queue.id} of topic {topic}")
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
    place = queue_place(
        shards,
        full_name(queue.topic),
        queue.id,
        millis_at_or_after(time.seconds, time.nanos, "timestamp"),
        broker_name=queue.broker.name,
        deadline=deadline,
        needs_end=policy != v2.BEGINNING,
        needs_place=policy != v2.END,
    )
    offsets = {v2.BEGINNING: place.min_offset, v2.END: place.max_offset, v2.TIMESTAMP: place.queue_offset}
    return v2.QueryOffsetResponse(status=ok(), offset=offsets[policy])
