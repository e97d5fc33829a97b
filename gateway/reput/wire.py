"""Conversions between the messages of `reput.gateway.v1` and the values of the queries."""

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from gateway.ports.deadline import Deadline
from gateway.ports.delivery import EXPRESSION_CHARACTERS_MAX, expression_of, filter_in
from gateway.ports.time_window import TimeWindow, millis_at_or_after, millis_at_or_before
from gateway.queries.completeness import ShardOutcome
from gateway.queries.page import PageEntry
from reput.commitlog.v1.commitlog_service_pb2 import ListTopicsResponse
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.convert import millis_to_timestamp
from services.methods import QUERY_SECONDS
from services.serving.calls.at_once import AttemptContext
from services.serving.deadline import answer_seconds
from services.status import to_status
from store.errors import InvalidArgumentError


def deadline_of(context: grpc.ServicerContext) -> Deadline:
    """When the query of a caller has to end; a caller without a deadline has QUERY_SECONDS, an attempt no time."""
    if isinstance(context, AttemptContext):
        return Deadline.at_hand()
    return Deadline.after(answer_seconds(context, QUERY_SECONDS))


def window_of(request: Any) -> TimeWindow:
    """The store times from `begin_time` to `end_time` of a request, in milliseconds.

    Raises:
        InvalidArgumentError: a time is outside 1970 to 9999, or the window ends before it begins.
    """
    return TimeWindow(
        millis_of(request, "begin_time", millis_at_or_after), millis_of(request, "end_time", millis_at_or_before)
    )


def millis_of(request: Any, field: str, to_millis: Callable[[int, int, str], int]) -> int | None:
    """A Timestamp of a request in milliseconds since 1970; None when it is absent.

    Args:
        request: a request of any query.
        field: the name of its Timestamp field.
        to_millis: converts seconds and nanoseconds; it decides how a time between two milliseconds is rounded.
    """
    if not request.HasField(field):
        return None
    time: Timestamp = getattr(request, field)
    return to_millis(time.seconds, time.nanos, field)


def timestamp_of(time_millis: int | None) -> Timestamp | None:
    """The Timestamp of milliseconds since 1970; None for None."""
    return None if time_millis is None else millis_to_timestamp(time_millis)


def message_of(entry: PageEntry) -> message_pb2.StoredMessage:
    """The message to show, with the shard's name in this gateway; the record's own object, changed in place."""
    message = entry.record
    message.broker_name = entry.broker_name
    if message.source != message_pb2.MESSAGE_SOURCE_ARCHIVE:
        message.source = message_pb2.MESSAGE_SOURCE_LIVE
    if entry.body_omitted:
        message.ClearField("body")
        message.body_omitted = True
    return message


def shard_outcome_of(outcome: ShardOutcome) -> pb.ShardOutcome:
    """The row of an answer that says how a shard took part."""
    shard = pb.ShardOutcome(broker_name=outcome.broker_name)
    if outcome.error is not None:
        shard.error.CopyFrom(to_status(outcome.error))
    if outcome.progress is not None and outcome.progress.is_limited:
        shard.catching_up = outcome.progress.catching_up
        shard.log_end_offset = int(outcome.progress.is_behind)
    elif outcome.progress is not None:
        shard.indexed_up_to_offset = outcome.progress.next_offset
        shard.log_end_offset = outcome.progress.log_end_offset
        shard.catching_up = outcome.progress.catching_up
        if outcome.progress.built_up_to_millis is not None:
            shard.indexed_up_to_time.CopyFrom(millis_to_timestamp(outcome.progress.built_up_to_millis))
    return shard


def settings_of(broker_name: str, settings: ListTopicsResponse.Topic) -> pb.TopicSettings:
    """A topic as a shard has it configured."""
    return pb.TopicSettings(
        broker_name=broker_name,
        topic=settings.topic,
        write_queue_count=settings.write_queue_count,
        read_queue_count=settings.read_queue_count,
        perm=settings.perm,
        message_type=settings.message_type,
        lite_expiration_minutes=settings.lite_expiration_minutes,
    )


def filter_of(wanted: pb.MessageFilter) -> pb.MessageFilter:
    """Which messages are wanted; the consumer service checks what the text means. InvalidArgumentError when it is too long."""
    count = len(expression_of(wanted))
    if count > EXPRESSION_CHARACTERS_MAX:
        raise InvalidArgumentError(
            f"the filter has {count} characters: at most {EXPRESSION_CHARACTERS_MAX} are possible.", field="filter"
        )
    return filter_in(wanted)


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
