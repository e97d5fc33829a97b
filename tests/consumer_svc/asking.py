"""Requests to the consumer service, and what it said, as short as tests want them."""

from typing import Any

from google.protobuf.duration_pb2 import Duration

from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1.gateway_service_pb2 import PullStatus, TrackState


def pop_of(consumer_group: str, topic: str, *, invisible_millis: int = 0, **fields: Any) -> pb.PopMessagesRequest:
    """A pop; without a time its messages are renewed."""
    duration = Duration(seconds=invisible_millis // 1000, nanos=invisible_millis % 1000 * 1_000_000)
    return pb.PopMessagesRequest(
        consumer_group=consumer_group,
        topic=topic,
        invisible_duration=duration if invisible_millis else None,
        **fields,
    )


def pull_of(topic: str, queue_id: int, queue_offset: int, **fields: Any) -> pb.PullMessagesRequest:
    """A pull."""
    return pb.PullMessagesRequest(topic=topic, queue_id=queue_id, queue_offset=queue_offset, **fields)


def status_of(answer: pb.PullMessagesResponse) -> str:
    """What a pull has found, without the prefix of the proto."""
    return PullStatus.Name(answer.status).removeprefix("PULL_STATUS_")


def state_of(track: pb.TrackMessageResponse.Track) -> str:
    """How a message stands with a group, without the prefix of the proto."""
    return TrackState.Name(track.state).removeprefix("TRACK_STATE_")
