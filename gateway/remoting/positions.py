"""Positions: where a group is in a queue (14, 15), and the ends, times and first store time of queues (29 to 32).

Sources: `ConsumerManageProcessor` and `AdminBrokerProcessor` of RocketMQ. Two answers differ from a broker's, which tells 0 for
both: a topic that does not exist is TOPIC_NOT_EXIST, and while the queues are being built after a start an end is
SERVICE_NOT_AVAILABLE. Before that, an answer waits until the queues have what the log had when it was asked for
(builder_waits.py): a message that was stored before is never skipped by a group that begins.
"""

import os
from collections.abc import Mapping
from functools import partial

from gateway.groups.positions import commit_positions, position_in_queue
from gateway.ports.deadline import Deadline
from gateway.ports.shard import get_units
from gateway.ports.time_window import millis_in
from gateway.queries.by_queue_offset import queue_place
from gateway.remoting.builder_waits import Arrival
from gateway.remoting.door import Answer, Ask, Handler, RefusedError, peer_of
from gateway.remoting.door_shard import CALL_SECONDS, DoorShard
from gateway.remoting.topics import config_of
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.rocketmq.codes import RequestCode, ResponseCode
from store.errors import TopicNotFoundError
from store.format.paths import QUEUE_ID_MAX

# RocketMQ's accessMessageInMemoryMaxRatio: a message that is nearer to the end of the log is taken to be in memory.
IN_MEMORY_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 40 // 100


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    of_queues: dict[int, Handler] = {
        code: shard.when_built(partial(answer, shard))
        for code, answer in (
            (RequestCode.QUERY_CONSUMER_OFFSET, query_consumer_offset),
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search_offset_by_timestamp),
            (RequestCode.GET_MAX_OFFSET, get_max_offset),
            (RequestCode.GET_MIN_OFFSET, get_min_offset),
            (RequestCode.GET_EARLIEST_MSG_STORETIME, get_earliest_msg_store_time),
        )
    }

    def update(ask: Ask) -> None:
        number = shard.position_order.number()  # before a thread takes it
        ask.work(lambda: update_consumer_offset(shard, number, ask))

    return of_queues | {RequestCode.UPDATE_CONSUMER_OFFSET: update}


def query_consumer_offset(shard: DoorShard, ask: Ask, arrival: Arrival) -> Answer:
    """14: where a group is in a queue; QUERY_NOT_FOUND sends its client to where it lets groups begin.

    A young queue is read from its first message, wherever the client would begin (`checkInMemByConsumeOffset`). So is an empty
    one: the client would ask for its end next, and skip what is stored between its two questions.
    """
    group, topic, queue_id = ask.text("consumerGroup"), ask.text("topic"), ask.number("queueId")
    deadline = Deadline.after(CALL_SECONDS)
    offset = position_in_queue(
        shard.source.now(), shard.deliverings, group, shard.broker_name, topic, queue_id, deadline
    )
    if offset is not None:
        return Answer({"offset": str(offset)})
    if not ask.flag("setZeroIfNotFound", default=True):
        raise RefusedError(ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first")
    arrival.require_queues()  # a first message that is not in its queue yet would be skipped
    if _is_young(shard, topic, queue_id, deadline):
        return Answer({"offset": "0"})
    raise RefusedError(ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")


def _is_young(shard: DoorShard, topic: str, queue_id: int, deadline: Deadline) -> bool:
    """Whether the queue has no message yet, or its first message, and that is taken to be in memory."""
    try:
        place = queue_place(shard.shards, topic, queue_id, 0, broker_name=shard.broker_name, deadline=deadline)
    except TopicNotFoundError:
        if not _has_from_start(shard, topic, queue_id):
            raise
        return True
    return not place.max_offset or (not place.min_offset and is_in_memory(shard, topic, queue_id, deadline))


def is_in_memory(shard: DoorShard, topic: str, queue_id: int, deadline: Deadline) -> bool:
    """Whether the first message of a queue is taken to be in memory; waits."""
    found = get_units(shard.shard, topic, queue_id, 0, 1, deadline)
    units = found.answer.units
    return bool(units) and found.progress.log_end_offset - units[0].commit_log_offset <= IN_MEMORY_BYTES


def update_consumer_offset(shard: DoorShard, number: int, ask: Ask) -> Answer:
    """15: the group's position is in the log when this is answered, or one that came after it."""
    # A number that no queue can have is refused as one that no queue has.
    queue_id = min(max(ask.number("queueId"), -1), QUEUE_ID_MAX)
    position = consumer_pb.QueueOffset(
        topic=ask.text("topic"), queue_id=queue_id, queue_offset=ask.number("commitOffset")
    )
    store_position(shard, number, ask.text("consumerGroup"), position, member=member_of(ask))
    return Answer()


def member_of(ask: Ask) -> str:
    """The name of a member that pulls and stores positions: its client id, before its first heartbeat its address."""
    client = ask.client
    return peer_of(ask.connection) if client is None else client.client_id


def store_position(
    shard: DoorShard,
    number: int,
    group: str,
    position: consumer_pb.QueueOffset,
    *,
    goes_back: bool = True,
    member: str = "",
) -> None:
    """Have a position of a group stored in its turn; see `PositionOrder.store`, and `commit_positions` for the member."""

    def commit() -> None:
        rows = [(shard.broker_name, position)]
        commit_positions(shard.source.now(), group, rows, Deadline.after(CALL_SECONDS), member=member)

    key = group, position.topic, position.queue_id
    shard.position_order.store(key, number, position.queue_offset, commit, goes_back=goes_back)


def search_offset_by_timestamp(shard: DoorShard, ask: Ask, arrival: Arrival) -> Answer:
    """29: the first position at or after a time, or with `boundaryType` upper the last at or before it."""
    is_upper = ask.text("boundaryType", "").lower() == "upper"
    boundary = gateway_pb.BOUNDARY_UPPER if is_upper else gateway_pb.BOUNDARY_LOWER
    place = _place(shard, ask, arrival, ask.time_millis("timestamp"), boundary, needs_end=True)
    return Answer({"offset": str(place.queue_offset)})


def get_max_offset(shard: DoorShard, ask: Ask, arrival: Arrival) -> Answer:
    """30: the position of the next message."""
    return Answer({"offset": str(_place(shard, ask, arrival, needs_end=True, needs_place=False).max_offset)})


def get_min_offset(shard: DoorShard, ask: Ask, arrival: Arrival) -> Answer:
    """31: the position of the first message that is in the log."""
    return Answer({"offset": str(_place(shard, ask, arrival).min_offset)})


def get_earliest_msg_store_time(shard: DoorShard, ask: Ask, arrival: Arrival) -> Answer:
    """32: the store time of that message (ms since 1970); -1 when there is none."""
    place = _place(shard, ask, arrival)
    millis = millis_in(place, "first_store_time")
    return Answer({"timestamp": str(-1 if millis is None else millis)})


def _place(
    shard: DoorShard,
    ask: Ask,
    arrival: Arrival,
    time_millis: int = 0,
    boundary: gateway_pb.Boundary = gateway_pb.BOUNDARY_LOWER,
    *,
    needs_end: bool = False,
    needs_place: bool = True,
) -> queue_pb.SearchOffsetResponse:
    topic, queue_id = ask.text("topic"), ask.number("queueId")
    arrival.wait_for_queues()
    try:
        return queue_place(
            shard.shards,
            topic,
            queue_id,
            time_millis,
            broker_name=shard.broker_name,
            deadline=Deadline.after(CALL_SECONDS),
            boundary=boundary,
            needs_end=needs_end,
            needs_place=needs_place,
        )
    except TopicNotFoundError:
        if not _has_from_start(shard, topic, queue_id):
            raise
        return queue_pb.SearchOffsetResponse()


def _has_from_start(shard: DoorShard, topic: str, queue_id: int) -> bool:
    """Whether every broker has this queue. Here the first message of such a topic makes it: it is empty before."""
    own = config_of(shard, topic)
    return own is not None and 0 <= queue_id < own.read_queue_count
