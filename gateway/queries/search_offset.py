"""Search offset: the position of a queue for a store time."""

from dataclasses import replace
from functools import partial

from gateway.ports.deadline import Deadline
from gateway.ports.shard import BuildProgress, Built, held_elsewhere
from gateway.ports.shard import search_offset as ask_for_offset
from gateway.ports.shards import Shards, has_unwritten_queue
from gateway.queries.completeness import ShardOutcome
from gateway.queries.limits import check_not_negative, check_topic
from gateway.queries.unbuilt_queues import ask_once_more
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.errors import QueueNotFoundError, ServiceUnavailableError, TopicNotFoundError, UnsupportedStoreError


def search_offset(
    shards: Shards,
    topic: str,
    queue_id: int,
    time_millis: int,
    *,
    boundary: gateway_pb.Boundary,
    broker_name: str,
    deadline: Deadline,
) -> Built[queue_pb.SearchOffsetResponse]:
    """LOWER: the first message stored at or after the time, else max. UPPER: the last at or before it, else min.

    Raises:
        InvalidArgumentError: by field.
        BrokerNotFoundError, TopicNotFoundError, QueueNotFoundError: there is no such queue.
    """
    check_topic(topic)
    check_not_negative(queue_id, "queue_id")
    shard = shards.named(broker_name)
    search = partial(ask_for_offset, shard, topic, queue_id, time_millis, boundary, deadline)
    try:
        return search()
    except (TopicNotFoundError, QueueNotFoundError):
        found = ask_once_more(shard.call, search, deadline)
        if isinstance(found, BuildProgress):
            has_unwritten_queue(shard, topic, queue_id, deadline)
            return Built(queue_pb.SearchOffsetResponse(), found, held_elsewhere(shard, topic, deadline))
        return found


def queue_place(
    shards: Shards,
    topic: str,
    queue_id: int,
    time_millis: int,
    *,
    broker_name: str,
    deadline: Deadline,
    boundary: gateway_pb.Boundary = gateway_pb.BOUNDARY_LOWER,
    needs_end: bool = False,
    needs_place: bool = True,
) -> queue_pb.SearchOffsetResponse:
    """As `search_offset`, for a consumer that goes on there: what may be wrong is an error.

    Args:
        needs_end: the end is asked for, or a place that may be there: the queues must have what the log had at their start.
        needs_place: a first position, or one by time, is asked for.

    Raises:
        ServiceUnavailableError: the queues are being built.
        StoreError: the position may be that of another message.
    """
    found = search_offset(
        shards, topic, queue_id, time_millis, boundary=boundary, broker_name=broker_name, deadline=deadline
    )
    if needs_end and found.progress.catching_up:
        raise ServiceUnavailableError("the queues are still being built: ask again", service="consumequeue")
    # What the store has elsewhere is in no queue that is delivered.
    if needs_place and found.problem is not None and not isinstance(found.problem, UnsupportedStoreError):
        raise found.problem
    return found.answer


def outcome_of(
    broker_name: str, found: Built[queue_pb.SearchOffsetResponse], boundary: gateway_pb.Boundary
) -> ShardOutcome:
    """How the shard took part: incomplete when a message that is not built yet could be the one looked for.

    The first message at or after a time stays the first. A later message may be the last one at or before a time, wherever
    that is now: store times fall where the clock of a broker was set back. Also incomplete with a problem: of an archive, or
    because messages may be elsewhere.
    """
    progress = found.progress
    if boundary == gateway_pb.BOUNDARY_LOWER and found.answer.queue_offset < found.answer.max_offset:
        progress = replace(progress, is_final=True)
    may_move = progress.is_behind and not progress.is_final
    return ShardOutcome(broker_name, found.problem, progress, complete=not may_move and found.problem is None)
