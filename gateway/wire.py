"""The contract's messages and what queries deal in: times and messages, from the one to the other and back."""

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from gateway.completeness import Completeness, ShardOutcome
from gateway.deadline import Deadline
from gateway.page import PageEntry
from gateway.time_window import TimeWindow, millis_at_or_after, millis_at_or_before
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.convert import millis_to_timestamp
from services.deadline import remaining_seconds
from services.status import to_status

QUERY_SECONDS_DEFAULT = 30.0


def deadline_of(context: grpc.ServicerContext) -> Deadline:
    """When the caller stops waiting; QUERY_SECONDS_DEFAULT from now if he does not say."""
    return Deadline.after(remaining_seconds(context, QUERY_SECONDS_DEFAULT))


def window_of(request: Any) -> TimeWindow:
    """The store times between `begin_time` and `end_time` of a request, to the millisecond."""
    return TimeWindow(
        millis_of(request, "begin_time", millis_at_or_after), millis_of(request, "end_time", millis_at_or_before)
    )


def millis_of(request: Any, field: str, to_millis: Callable[[int, int, str], int]) -> int | None:
    """A request's time in milliseconds since 1970; None when it is absent.

    Args:
        request: of any query.
        field: its Timestamp.
        to_millis: from seconds and nanoseconds; which millisecond stands for what lies between two.
    """
    if not request.HasField(field):
        return None
    time: Timestamp = getattr(request, field)
    return to_millis(time.seconds, time.nanos, field)


def timestamp_of(time_millis: int | None) -> Timestamp | None:
    """The Timestamp, absent for None."""
    return None if time_millis is None else millis_to_timestamp(time_millis)


def stored_of(payload: object) -> message_pb2.StoredMessage:
    """The stored message around which a record's facts were put."""
    assert isinstance(payload, message_pb2.StoredMessage)
    return payload


def message_of(entry: PageEntry) -> message_pb2.StoredMessage:
    """The message to show, under the name that the gateway knows its shard by."""
    message = stored_of(entry.record.payload)
    message.broker_name = entry.broker_name
    message.source = message_pb2.MESSAGE_SOURCE_ARCHIVE if entry.record.is_archived else message_pb2.MESSAGE_SOURCE_LIVE
    if entry.body_omitted:
        message.ClearField("body")
        message.body_omitted = True
    return message


def completeness_of(completeness: Completeness) -> str:
    """The name that stands for it."""
    return message_pb2.Completeness.Name(completeness.value)


def shard_outcome_of(outcome: ShardOutcome) -> pb.ShardOutcome:
    """How a shard took part, as an answer says it."""
    shard = pb.ShardOutcome(broker_name=outcome.broker_name)
    if outcome.error is not None:
        shard.error.CopyFrom(to_status(outcome.error))
    if outcome.progress is not None:
        shard.indexed_up_to_offset = outcome.progress.next_offset
        shard.log_end_offset = outcome.progress.log_end_offset
        shard.catching_up = outcome.progress.catching_up
        if outcome.progress.built_up_to_millis is not None:
            shard.indexed_up_to_time.CopyFrom(millis_to_timestamp(outcome.progress.built_up_to_millis))
    return shard
