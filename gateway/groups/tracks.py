"""What has become of a message for each consumer group.

The consumer service of the message's shard tells how the record itself stands. A record that a group is done with may have been
moved: then the state is that of its newest copy in the group's retry and dead-letter topics.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from gateway.groups.asking import keeper_of
from gateway.groups.copies import Original, copies_of, is_copy_of, only
from gateway.groups.tracked import FactsOf
from gateway.groups.waits import due_millis
from gateway.ports.deadline import Deadline
from gateway.ports.groups import GroupChoice, GroupPage, Track, TrackState
from gateway.ports.shard import topics_of
from gateway.ports.shards import Shards
from gateway.queries.completeness import Completeness, ShardOutcome, judge
from store.errors import StoreError
from store.format.topic import (
    DLQ_PREFIX,
    SCHEDULE_TOPIC,
    dead_letter_topic_of,
    pull_retry_topic_of,
    retry_topic_of,
    retry_topic_v2_of,
)


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """How a message stands with one group, and the ids of its copies, oldest first."""

    track: Track
    copy_offset_msg_ids: Sequence[str] = ()


def tracks_of_record(shards: Shards, original: Original, choice: GroupChoice, deadline: Deadline) -> GroupPage[Track]:
    """How the record itself stands with groups, by name."""
    shard = shards.named(original.broker_name)
    return keeper_of(shard).track(original.record, choice, deadline)


def follow(
    shards: Shards,
    facts_of: FactsOf,
    original: Original,
    tracks: Iterable[Track],
    deadline: Deadline,
) -> tuple[list[MessageTrack], list[ShardOutcome], Completeness]:
    """The tracks with what became of the copies.

    Args:
        shards: all shards, as they are after `tracks` was answered: a move that it knows of is then in the log.
        facts_of: reads a record.
        original: the message.
        tracks: how the record itself stands.
        deadline: the caller's.
    """
    within = only(shards, original.broker_name)
    (shard,) = within
    moved = [track for track in tracks if track.state is TrackState.CONSUMED]
    known: Collection[str] = topics_of(shard, deadline) if moved else ()
    outcomes: list[ShardOutcome] = []
    followed = []
    for track in tracks:
        if track.state is TrackState.CONSUMED:
            followed.append(_followed(within, facts_of, original, track, known, outcomes, deadline))
        elif track.state is TrackState.DEAD_LETTER:
            followed.append(MessageTrack(track, [original.facts.offset_msg_id]))
        else:
            followed.append(MessageTrack(track))
    return followed, outcomes, judge(outcomes, more=False)


def _followed(
    within: Shards,
    facts_of: FactsOf,
    original: Original,
    track: Track,
    known: Collection[str],
    outcomes: list[ShardOutcome],
    deadline: Deadline,
) -> MessageTrack:
    facts = original.facts
    topics = moved_topics(track.consumer_group, facts.origin_topic)
    # Its first message makes a retry topic; before, it may wait for its delay level.
    asked = [topic for topic in (*topics, SCHEDULE_TOPIC) if topic in known]
    if not asked:
        return MessageTrack(track)
    if not facts.unique_key:
        return _unknown(track, "it has no unique key, by which copies in the group's retry topic are found")
    own: list[ShardOutcome] = []
    copies: list[Original] = []
    try:
        for topic in asked:
            copies += [
                copy
                for copy in copies_of(within, facts_of, topic, facts.unique_key, own, deadline)
                if copy.facts.target_topic in topics and is_copy_of(copy.facts, facts)
            ]
    except StoreError as error:
        outcomes.append(ShardOutcome(original.broker_name, error, complete=False))
        return _unknown(track, f"its copies in the group's retry topic cannot be looked for now: {error.message}")
    outcomes += own
    if not copies:
        if all(outcome.complete for outcome in own):
            return MessageTrack(track)
        return _unknown(track, "the index is behind the log, so that a copy may not be found yet: ask again")
    copies.sort(key=lambda copy: copy.facts.commit_log_offset)
    ids = [copy.facts.offset_msg_id for copy in copies]
    return MessageTrack(_track_of_copy(within, copies[-1], track, deadline), ids)


def _unknown(track: Track, reason: str) -> MessageTrack:
    return MessageTrack(replace(track, state=TrackState.UNKNOWN, reason=reason))


def _track_of_copy(within: Shards, copy: Original, track: Track, deadline: Deadline) -> Track:
    """How the newest copy stands with the group."""
    facts = copy.facts
    track = replace(track, delivery_attempts=facts.reconsume_times)
    if facts.topic.startswith(DLQ_PREFIX):
        return replace(track, state=TrackState.DEAD_LETTER)
    (shard,) = within
    if facts.topic == SCHEDULE_TOPIC:
        return replace(track, state=TrackState.RETRYING, visible_millis=due_millis(shard, facts, deadline))
    only = GroupChoice(1, only=track.consumer_group)
    page = keeper_of(shard).track(copy.record, only, deadline)
    of_copy = [each for each in page.items if each.consumer_group == track.consumer_group]
    if not of_copy or of_copy[0].state is TrackState.NOT_CONSUMED:  # it waits in the retry topic
        return replace(track, state=TrackState.RETRYING, visible_millis=facts.store_time_millis)
    attempts = of_copy[0].delivery_attempts or facts.reconsume_times + (of_copy[0].state is TrackState.CONSUMED)
    return replace(of_copy[0], delivery_attempts=attempts)


def moved_topics(consumer_group: str, topic: str) -> list[str]:
    """Where messages of a topic go that a group did not consume."""
    return [
        retry_topic_of(consumer_group, topic),
        retry_topic_v2_of(consumer_group, topic),
        pull_retry_topic_of(consumer_group),
        dead_letter_topic_of(consumer_group),
    ]
