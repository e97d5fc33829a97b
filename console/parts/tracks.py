"""What has become of a message for each consumer group, as rows."""

from dataclasses import dataclass
from typing import Any

from console.calls import Calls
from console.parts.message_row import message_href
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.convert import timestamp_to_millis
from store.errors import ServiceUnavailableError, StoreError

TRACK_SECONDS_MAX = 1.0
SHOWN_TRACK_COUNT = 50


@dataclass(frozen=True, slots=True)
class TrackRow:
    """How the message stands with a group; `state` is the name in the contract without its prefix."""

    consumer_group: str
    state: str
    delivery_attempts: int
    next_millis: int | None
    client_id: str
    is_online: bool
    copy_hrefs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tracks:
    """The first rows, whether there are more, where the message is, and why they are not known; None when they are."""

    rows: tuple[TrackRow, ...] = ()
    has_more: bool = False
    state: str = ""
    due_millis: int | None = None
    problem: StoreError | None = None
    answer: Any = None


def tracks_of(calls: Calls, message: Any) -> Tracks:
    """The tracks of a message; of a retry or dead letter those of the message that it was made of."""
    request = pb.TrackMessageRequest(offset_msg_id=message.offset_msg_id, page_size=SHOWN_TRACK_COUNT)
    try:
        answer = calls.ask(calls.gateway.TrackMessage, request, TRACK_SECONDS_MAX)
    except StoreError as error:
        return Tracks(problem=error)
    known = [track for track in answer.tracks if track.consumer_group]
    reasons = (track.reason for track in answer.tracks if not track.consumer_group)
    problem = next((ServiceUnavailableError(reason) for reason in reasons), None)
    rows = tuple(_row(track, message.broker_name) for track in known)
    state = pb.MessageState.Name(answer.state).removeprefix("MESSAGE_STATE_")
    due_millis = timestamp_to_millis(answer.due_time, "due_time") if answer.HasField("due_time") else None
    return Tracks(rows, bool(answer.next_page_token), state, due_millis, problem, answer=answer)


def _row(track: Any, broker_name: str) -> TrackRow:
    return TrackRow(
        track.consumer_group,
        pb.TrackState.Name(track.state).removeprefix("TRACK_STATE_"),
        track.delivery_attempts,
        timestamp_to_millis(track.next_time, "next_time") if track.HasField("next_time") else None,
        track.client_id,
        track.is_online,
        tuple(message_href(each, broker_name) for each in track.copy_offset_msg_ids),
    )
