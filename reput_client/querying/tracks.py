"""What became of a message: where it is, and how it stands with each consumer group."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.encoding import time_or_none
from reput_client.querying.message import Message, message_of


class TrackState(Enum):
    """How a message stands with a consumer group."""

    CONSUMED = pb.TRACK_STATE_CONSUMED  # acknowledged
    NOT_CONSUMED = pb.TRACK_STATE_NOT_CONSUMED  # not yet delivered
    IN_FLIGHT = pb.TRACK_STATE_IN_FLIGHT  # with a client
    RETRYING = pb.TRACK_STATE_RETRYING  # delivered without success; it comes again
    DEAD_LETTER = pb.TRACK_STATE_DEAD_LETTER  # given up
    FILTERED_OUT = pb.TRACK_STATE_FILTERED_OUT  # the group's current subscription does not want it
    SKIPPED = pb.TRACK_STATE_SKIPPED  # a reset went past it, or the group began behind it
    UNKNOWN = pb.TRACK_STATE_UNKNOWN  # it cannot be known


class MessageState(Enum):
    """Where a message is."""

    STORED = pb.MESSAGE_STATE_STORED  # in its topic
    SCHEDULED = pb.MESSAGE_STATE_SCHEDULED  # it waits for its time
    PENDING_TRANSACTION = pb.MESSAGE_STATE_PENDING_TRANSACTION  # it waits for the verdict of its transaction
    RECALLED = pb.MESSAGE_STATE_RECALLED  # it was recalled before its time
    ROLLED_BACK = pb.MESSAGE_STATE_ROLLED_BACK  # its transaction was rolled back
    GIVEN_UP = pb.MESSAGE_STATE_GIVEN_UP  # no producer gave a verdict on its transaction


@dataclass(frozen=True, slots=True)
class Track:
    """How a message stands with a consumer group.

    Attributes:
        consumer_group: the group; empty: the groups of the shard are not known.
        state: how it stands.
        delivery_attempts: deliveries so far.
        next_time: in flight or retrying, when it may come again; None: not known.
        copy_offset_msg_ids: its copies in the group's retry and dead-letter topics, oldest first.
        is_online: whether a member of the group lives.
        client_id: who has it in flight.
        reason: why it is UNKNOWN, and what to do.
    """

    consumer_group: str
    state: TrackState
    delivery_attempts: int
    next_time: datetime | None
    copy_offset_msg_ids: tuple[str, ...]
    is_online: bool
    client_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MessageTracks:
    """What has become of a message, until when it waits for its time, and whether there are more groups than were asked for."""

    message: Message
    state: MessageState
    due_time: datetime | None
    tracks: tuple[Track, ...]
    has_more: bool = False


def tracks_of(answer: pb.TrackMessageResponse) -> MessageTracks:
    """The answer of TrackMessage."""
    return MessageTracks(
        message_of(answer.message),
        MessageState(answer.state),
        time_or_none(answer, "due_time"),
        tuple(map(track_of, answer.tracks)),
        bool(answer.next_page_token),
    )


def track_of(track: pb.TrackMessageResponse.Track) -> Track:
    """How a message stands with a group."""
    return Track(
        track.consumer_group,
        TrackState(track.state),
        track.delivery_attempts,
        time_or_none(track, "next_time"),
        tuple(track.copy_offset_msg_ids),
        track.is_online,
        track.client_id,
        track.reason,
    )
