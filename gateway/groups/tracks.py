"""What has become of a message for each consumer group.

The consumer service of the message's shard tells how the record itself stands. A record that a group is done with may have been
moved: then the state is that of its newest copy in the group's retry and dead-letter topics.
"""

from collections.abc import Collection, Iterable

from gateway.groups.asking import ask_groups
from gateway.groups.copies import Original, copies_of, is_copy_of, only
from gateway.groups.tracked import origin_topic_of, target_topic_of
from gateway.groups.waits import due_millis
from gateway.ports.deadline import Deadline
from gateway.ports.groups import TRACK
from gateway.ports.shard import store_millis, topics_of
from gateway.ports.shards import Shards
from gateway.queries.completeness import ShardOutcome, judge
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1.gateway_service_pb2 import (
    TRACK_STATE_CONSUMED,
    TRACK_STATE_DEAD_LETTER,
    TRACK_STATE_NOT_CONSUMED,
    TRACK_STATE_RETRYING,
    TRACK_STATE_UNKNOWN,
    TRACK_STATE_UNSPECIFIED,
    TrackMessageResponse,
    TrackState,
)
from reput.message.v1 import message_pb2
from services.convert import delivery_count, millis_to_timestamp
from store.errors import StoreError
from store.format.topic import (
    DLQ_PREFIX,
    SCHEDULE_TOPIC,
    dead_letter_topic_of,
    pull_retry_topic_of,
    retry_topic_of,
    retry_topic_v2_of,
)

Track = TrackMessageResponse.Track
_KNOWN_STATES = frozenset(TrackState.values()) - {TRACK_STATE_UNSPECIFIED}


def tracks_of_record(
    shards: Shards, original: Original, choice: consumer_pb.TrackMessageRequest, deadline: Deadline
) -> consumer_pb.TrackMessageResponse:
    """How the record itself stands with groups, by name; the choice says with which, and gets the record."""
    shard = shards.named(original.broker_name)
    return ask_groups(shard, TRACK, _of_record(choice, original), deadline)


def _of_record(request: consumer_pb.TrackMessageRequest, asked: Original) -> consumer_pb.TrackMessageRequest:
    request.message.CopyFrom(asked.record)
    request.message.ClearField("body")  # filters read properties only
    return request


def follow(
    shards: Shards,
    original: Original,
    tracks: Iterable[consumer_pb.TrackMessageResponse.Track],
    deadline: Deadline,
) -> tuple[list[Track], list[ShardOutcome], message_pb2.Completeness]:
    """The tracks with what became of the copies.

    Args:
        shards: all shards, as they are after `tracks` was answered: a move that it knows of is then in the log.
        original: the message.
        tracks: how the record itself stands.
        deadline: the caller's.
    """
    within = only(shards, original.broker_name)
    (shard,) = within
    followed = [track_of(each) for each in tracks]
    has_moved = any(track.state == TRACK_STATE_CONSUMED for track in followed)
    known: Collection[str] = topics_of(shard, deadline) if has_moved else ()
    outcomes: list[ShardOutcome] = []
    for track in followed:
        if track.state == TRACK_STATE_CONSUMED:
            _follow(within, original, track, known, outcomes, deadline)
        elif track.state == TRACK_STATE_DEAD_LETTER:
            track.copy_offset_msg_ids.append(original.record.offset_msg_id)
    return followed, outcomes, judge(outcomes, more=False)


def track_of(asked: consumer_pb.TrackMessageResponse.Track) -> Track:
    """What a consumer service says of a record, as an answer of the gateway; what a later release may say is UNKNOWN."""
    track = Track(
        consumer_group=asked.consumer_group,
        state=asked.state if asked.state in _KNOWN_STATES else TRACK_STATE_UNKNOWN,
        delivery_attempts=asked.delivery_attempts,
        is_online=asked.is_online,
        client_id=asked.client_id,
        reason=asked.reason,
    )
    if asked.HasField("visible_time"):
        track.next_time.CopyFrom(asked.visible_time)
    return track


def _follow(
    within: Shards,
    original: Original,
    track: Track,
    known: Collection[str],
    outcomes: list[ShardOutcome],
    deadline: Deadline,
) -> None:
    """Change the track of a record that its group is done with to what became of its copies."""
    record = original.record
    topics = moved_topics(track.consumer_group, origin_topic_of(record))
    # Its first message makes a retry topic; before, it may wait for its delay level.
    asked = [topic for topic in (*topics, SCHEDULE_TOPIC) if topic in known]
    if not asked:
        return
    if not record.unique_key:
        _set_unknown(track, "it has no unique key, by which copies in the group's retry topic are found")
        return
    own: list[ShardOutcome] = []
    copies: list[Original] = []
    try:
        for topic in asked:
            copies += [
                copy
                for copy in copies_of(within, topic, record.unique_key, own, deadline)
                if target_topic_of(copy.record) in topics and is_copy_of(copy.record, record)
            ]
    except StoreError as error:
        outcomes.append(ShardOutcome(original.broker_name, error, complete=False))
        _set_unknown(track, f"its copies in the group's retry topic cannot be looked for now: {error.message}")
        return
    outcomes += own
    if not copies:
        if not all(outcome.complete for outcome in own):
            _set_unknown(track, "the index is behind the log, so that a copy may not be found yet: ask again")
        return
    copies.sort(key=lambda copy: copy.record.commit_log_offset)
    _set_copy(within, copies[-1], track, deadline)
    track.copy_offset_msg_ids[:] = [copy.record.offset_msg_id for copy in copies]


def _set_unknown(track: Track, reason: str) -> None:
    track.state, track.reason = TRACK_STATE_UNKNOWN, reason


def _set_copy(within: Shards, copy: Original, track: Track, deadline: Deadline) -> None:
    """Change the track to how the newest copy stands with the group."""
    record = copy.record
    track.delivery_attempts = record.reconsume_times
    if record.topic.startswith(DLQ_PREFIX):
        track.state = TRACK_STATE_DEAD_LETTER
        return
    (shard,) = within
    if record.topic == SCHEDULE_TOPIC:
        _set_retrying(track, due_millis(shard, record, deadline))
        return
    request = consumer_pb.TrackMessageRequest(consumer_group=track.consumer_group, page_size=1)
    page = ask_groups(shard, TRACK, _of_record(request, copy), deadline)
    of_copy = [track_of(each) for each in page.tracks if each.consumer_group == track.consumer_group]
    if not of_copy or of_copy[0].state == TRACK_STATE_NOT_CONSUMED:  # it waits in the retry topic
        _set_retrying(track, store_millis(record))
        return
    track.CopyFrom(of_copy[0])
    track.delivery_attempts = track.delivery_attempts or delivery_count(record, track.state == TRACK_STATE_CONSUMED)


def _set_retrying(track: Track, next_millis: int | None) -> None:
    track.state = TRACK_STATE_RETRYING
    track.ClearField("next_time")
    if next_millis is not None:
        track.next_time.CopyFrom(millis_to_timestamp(next_millis))


def moved_topics(consumer_group: str, topic: str) -> list[str]:
    """Where messages of a topic go that a group did not consume."""
    return [
        retry_topic_of(consumer_group, topic),
        retry_topic_v2_of(consumer_group, topic),
        pull_retry_topic_of(consumer_group),
        dead_letter_topic_of(consumer_group),
    ]
