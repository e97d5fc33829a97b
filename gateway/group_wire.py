"""Conversions between the messages of `reput.gateway.v1` about consumer groups and the values of gateway/groups."""

from typing import Any

from google.protobuf.duration_pb2 import Duration

from gateway.groups.administration import Group
from gateway.groups.dead_letters import Letter
from gateway.groups.tracked import TrackedMessage
from gateway.groups.tracks import MessageTrack
from gateway.ports.delivery import (
    ALL_MESSAGES,
    EXPRESSION_CHARACTERS_MAX,
    ClientFacts,
    Filter,
    FilterKind,
    GroupSettings,
)
from gateway.ports.groups import GroupQueue, ResetQuestion, ResetTo
from gateway.ports.shard import store_millis
from gateway.ports.time_window import millis_at_or_after
from gateway.wire import millis_of, shard_outcome_of, timestamp_of
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from services.convert import timestamp_to_millis
from store.errors import InvalidArgumentError
from store.format.properties import DLQ_ORIGIN_TOPIC, RETRY_TOPIC


def filter_of(wanted: pb.MessageFilter) -> Filter:
    """Which messages are wanted; the consumer service checks what the text means. InvalidArgumentError when it is too long."""
    kind = wanted.WhichOneof("expression")
    text: str = getattr(wanted, kind) if kind is not None else ""
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        raise InvalidArgumentError(
            f"the filter has {len(text)} characters: at most {EXPRESSION_CHARACTERS_MAX} are possible.", field="filter"
        )
    if kind == "sql":
        return Filter(FilterKind.SQL, text)
    return ALL_MESSAGES if text in ("", "*") else Filter(FilterKind.TAGS, text)


def filter_to(asked: Filter) -> pb.MessageFilter:
    """The same in an answer."""
    if asked.kind is FilterKind.SQL:
        return pb.MessageFilter(sql=asked.expression)
    return pb.MessageFilter(tags=asked.expression)


def settings_to(settings: GroupSettings) -> pb.ConsumerGroupSettings:
    """The settings of a group."""
    return pb.ConsumerGroupSettings(
        consumer_group=settings.consumer_group,
        ordered=settings.ordered,
        delivery_attempts_max=settings.delivery_attempts_max,
        consume_disabled=not settings.consume_enabled,
        broadcast=settings.broadcast,
    )


def reset_question_of(request: pb.ResetOffsetsRequest) -> ResetQuestion:
    """Where a group shall go on; InvalidArgumentError when the request does not say where."""
    kind = request.WhichOneof("to")
    value = 0
    if kind == "time":
        value = millis_of(request, "time", millis_at_or_after) or 0
        to = ResetTo.TIME
    elif kind == "queue_offset":
        value = request.queue_offset
        to = ResetTo.OFFSET
    elif kind is not None and getattr(request, kind):
        to = ResetTo.EARLIEST if kind == "earliest" else ResetTo.LATEST
    else:
        raise InvalidArgumentError("to is missing: set earliest, latest, time or queue_offset.", field="to")
    return ResetQuestion(
        request.consumer_group,
        request.topic,
        to,
        value,
        request.queue_id if request.HasField("queue_id") else None,
        request.dry_run,
    )


def group_to(group: Group, now_millis: int) -> pb.GetConsumerGroupResponse:
    """A group."""
    return pb.GetConsumerGroupResponse(
        settings=settings_to(group.settings),
        members=map(_member_to, group.members),
        queues=[_queue_to(broker_name, queue, now_millis) for broker_name, queue in group.queues],
        retry_count=group.retry_count,
        dead_letter_count=group.dead_letter_count,
        problems=group.problems,
        outcomes=map(shard_outcome_of, group.outcomes),
    )


def _member_to(member: ClientFacts) -> pb.ConsumerGroupMember:
    return pb.ConsumerGroupMember(
        client_id=member.client_id,
        language=member.language,
        version=member.version,
        address=member.address,
        subscriptions=[
            pb.TopicSubscription(topic=topic, filter=filter_to(asked)) for topic, asked in member.subscriptions
        ],
    )


def _queue_to(broker_name: str, queue: GroupQueue, now_millis: int) -> pb.ConsumerGroupQueue:
    row = pb.ConsumerGroupQueue(
        topic=queue.topic,
        queue_id=queue.queue_id,
        broker_name=broker_name,
        consumer_offset=queue.consumer_offset,
        min_offset=queue.min_offset,
        max_offset=queue.max_offset,
        lag_count=queue.lag_count,
        in_flight_count=queue.in_flight_count,
        removed_count=queue.removed_count,
    )
    if queue.lag_count and queue.oldest_store_time_millis is not None:
        row.lag_age.CopyFrom(duration_of(max(now_millis - queue.oldest_store_time_millis, 0)))
    return row


def track_to(followed: MessageTrack) -> pb.TrackMessageResponse.Track:
    """How a message stands with a group."""
    track = followed.track
    return pb.TrackMessageResponse.Track(
        consumer_group=track.consumer_group,
        state=f"TRACK_STATE_{track.state.name}",
        delivery_attempts=track.delivery_attempts,
        next_time=timestamp_of(track.visible_millis),
        copy_offset_msg_ids=followed.copy_offset_msg_ids,
        is_online=track.is_online,
        client_id=track.client_id,
        reason=track.reason,
    )


def facts_of(record: StoredMessage) -> TrackedMessage:
    """What tracks read of a record."""
    return TrackedMessage(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        commit_log_offset=record.commit_log_offset,
        store_time_millis=store_millis(record),
        offset_msg_id=record.offset_msg_id,
        unique_key=record.unique_key,
        reconsume_times=record.reconsume_times,
        properties=record.properties,
    )


def letter_of(message: StoredMessage) -> Letter:
    """A dead letter. Where it goes is what it says of its origin, RocketMQ's or ours."""
    properties = message.properties
    return Letter(
        message.offset_msg_id,
        timestamp_to_millis(message.store_time, "store_time"),
        properties.get(DLQ_ORIGIN_TOPIC) or properties.get(RETRY_TOPIC) or "",
    )


def duration_of(millis: int) -> Duration:
    """The Duration of milliseconds."""
    return Duration(seconds=millis // 1000, nanos=millis % 1000 * 1_000_000)


def millis_of_duration(request: Any, field: str) -> int:
    """A Duration of a request in milliseconds, 0 when it is absent; InvalidArgumentError when it is negative."""
    duration: Duration = getattr(request, field)
    millis = duration.seconds * 1000 + duration.nanos // 1_000_000
    if millis < 0:
        raise InvalidArgumentError(f"{field} is {millis} ms: it must be 0 or more.", field=field)
    return millis
