"""Tracks over records in memory, also over copies as a real RocketMQ writes them: without Reput's own property."""

from dataclasses import replace

import pytest

from gateway.groups.copies import find_original
from gateway.groups.tracked import state_of
from gateway.groups.tracks import follow, tracks_of_record
from gateway.groups.waits import due_millis
from gateway.ports.shard import store_millis
from gateway.ports.shards import Shards
from gateway.ports.time_window import millis_in, set_millis
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1.gateway_service_pb2 import (
    MESSAGE_STATE_PENDING_TRANSACTION,
    MESSAGE_STATE_SCHEDULED,
    TRACK_STATE_CONSUMED,
    TRACK_STATE_DEAD_LETTER,
    TRACK_STATE_IN_FLIGHT,
    TRACK_STATE_RETRYING,
    TRACK_STATE_UNKNOWN,
)
from store.errors import InvalidArgumentError, ServiceUnavailableError
from store.format.properties import encode_properties
from store.format.record import Record
from tests.gateway.groups.memory_groups import MemoryGroups
from tests.gateway.memory_shard import MemoryShard, shown

KEY = "7F0000010000000000000000000000AA"
KNOWN = {"T": 1, "%RETRY%g_T": 1, "%RETRY%g": 1, "%DLQ%g": 1, "SCHEDULE_TOPIC_XXXX": 18}


@pytest.fixture
def make(records):
    """Makes records behind one another, all with one unique key."""
    model = records[0]
    made: list[Record] = []

    def record(topic: str, reconsume_times: int = 0, **properties: str) -> Record:
        at = made[-1].commit_log_offset + made[-1].store_size_bytes if made else 0
        new = replace(
            model,
            topic=topic,
            queue_id=int(properties.pop("queue_id", "0")),
            queue_offset=len(made),
            commit_log_offset=at,
            reconsume_times=reconsume_times,
            properties_bytes=encode_properties({"UNIQ_KEY": KEY, **properties}),
        )
        made.append(new)
        return new

    record.made = made
    return record


def asked(made, fan_out, deadline, tracks, known=KNOWN, **which):
    """The message and its tracks, when the consumer service answers with `tracks` by record."""
    groups = MemoryGroups(MemoryShard(made, known))
    groups.tracks = tracks
    shards = Shards([groups.shard("broker-a")], fan_out)
    asked_for = {"offset_msg_id": "", "topic": "", "unique_key": "", **which}
    original, _, _ = find_original(shards, **asked_for, deadline=deadline)
    if original is None:
        return None, []
    of_record = tracks_of_record(shards, original, pb.TrackMessageRequest(page_size=64), deadline).tracks
    followed, _, _ = follow(shards, original, of_record, deadline)
    return original, followed


def consumed(group: str = "g") -> pb.TrackMessageResponse.Track:
    return pb.TrackMessageResponse.Track(consumer_group=group, state=TRACK_STATE_CONSUMED)


CONSUMED = consumed()


def test_the_oldest_record_with_the_key_is_the_message_and_not_a_resend_of_it(make, fan_out, deadline):
    first, _ = make("T"), make("T")

    original, _ = asked(make.made, fan_out, deadline, {}, topic="T", unique_key=KEY)

    assert original.record == shown(first)


def test_a_consumed_record_without_copies_is_consumed(make, fan_out, deadline):
    first = make("T")

    _, (track,) = asked(make.made, fan_out, deadline, {first.commit_log_offset: [CONSUMED]}, topic="T", unique_key=KEY)

    assert (track.state, list(track.copy_offset_msg_ids)) == (TRACK_STATE_CONSUMED, [])


@pytest.mark.parametrize("retry_topic", ["%RETRY%g_T", "%RETRY%g"])
def test_a_retry_that_waits_is_followed_also_when_a_real_broker_wrote_it(make, fan_out, deadline, retry_topic):
    first = make("T")
    retry = make(retry_topic, 1, RETRY_TOPIC="T")

    _, (track,) = asked(make.made, fan_out, deadline, {first.commit_log_offset: [CONSUMED]}, topic="T", unique_key=KEY)

    assert track.state == TRACK_STATE_RETRYING
    assert track.delivery_attempts == 1
    assert track.copy_offset_msg_ids == [shown(retry).offset_msg_id]


def test_the_newest_copy_counts_and_its_own_state_is_asked_for(make, fan_out, deadline):
    first, second = make("T"), make("%RETRY%g_T", 1, RETRY_TOPIC="T")
    third = make("%RETRY%g_T", 2, RETRY_TOPIC="T")
    with_client = pb.TrackMessageResponse.Track(
        consumer_group="g", state=TRACK_STATE_IN_FLIGHT, delivery_attempts=3, client_id="c"
    )
    set_millis(with_client.visible_time, 77)
    tracks = {
        first.commit_log_offset: [CONSUMED],
        second.commit_log_offset: [CONSUMED],
        third.commit_log_offset: [with_client],
    }

    _, (track,) = asked(make.made, fan_out, deadline, tracks, topic="T", unique_key=KEY)

    assert (track.state, track.delivery_attempts, track.client_id) == (TRACK_STATE_IN_FLIGHT, 3, "c")
    assert track.next_time == with_client.visible_time
    assert len(track.copy_offset_msg_ids) == 2


def test_a_retry_that_was_consumed_makes_the_message_consumed_with_one_attempt_more(make, fan_out, deadline):
    first, second = make("T"), make("%RETRY%g_T", 1, RETRY_TOPIC="T")
    tracks = {first.commit_log_offset: [CONSUMED], second.commit_log_offset: [CONSUMED]}

    _, (track,) = asked(make.made, fan_out, deadline, tracks, topic="T", unique_key=KEY)

    assert (track.state, track.delivery_attempts) == (TRACK_STATE_CONSUMED, 2)


def test_the_first_message_that_was_sent_back_is_a_retry_before_there_is_a_retry_topic(make, fan_out, deadline):
    first = make("T")
    waiting = make("SCHEDULE_TOPIC_XXXX", 1, queue_id="2", REAL_TOPIC="%RETRY%g", REAL_QID="0", RETRY_TOPIC="T")
    known = {"T": 1, "SCHEDULE_TOPIC_XXXX": 18}
    tracks = {first.commit_log_offset: [CONSUMED, consumed("other")]}

    _, (track, other) = asked(make.made, fan_out, deadline, tracks, known, topic="T", unique_key=KEY)

    assert track.state == TRACK_STATE_RETRYING
    assert millis_in(track, "next_time") == waiting.store_time_millis + 10_000
    assert other.state == TRACK_STATE_CONSUMED


def test_a_copy_that_waits_for_its_delay_level_is_a_retry_with_the_time_of_that_level(make, fan_out, deadline):
    first = make("T")
    waiting = make("SCHEDULE_TOPIC_XXXX", 1, queue_id="2", REAL_TOPIC="%RETRY%g", REAL_QID="0", RETRY_TOPIC="T")

    _, (track,) = asked(make.made, fan_out, deadline, {first.commit_log_offset: [CONSUMED]}, topic="T", unique_key=KEY)

    assert track.state == TRACK_STATE_RETRYING
    assert millis_in(track, "next_time") == waiting.store_time_millis + 10_000  # level 3 of messageDelayLevel: 10s


def test_another_groups_dead_letter_with_the_same_key_is_not_taken_for_this_groups(make, fan_out, deadline):
    first = make("T")
    make("%DLQ%h", 17, RETRY_TOPIC="T")
    both = [CONSUMED, consumed("h")]

    _, tracks = asked(
        make.made,
        fan_out,
        deadline,
        {first.commit_log_offset: both},
        {**KNOWN, "%DLQ%h": 1},
        topic="T",
        unique_key=KEY,
    )

    assert [each.state for each in tracks] == [TRACK_STATE_CONSUMED, TRACK_STATE_DEAD_LETTER]


def test_a_state_is_unknown_when_the_index_that_would_show_the_copies_is_away(make, fan_out, deadline):
    first = make("T")
    groups = MemoryGroups(MemoryShard(make.made, KNOWN))
    groups.tracks = {first.commit_log_offset: [CONSUMED]}
    shards = Shards([groups.shard("broker-a")], fan_out)
    original, _, _ = find_original(shards, offset_msg_id="", topic="T", unique_key=KEY, deadline=deadline)
    groups.memory.failures["search"] = ServiceUnavailableError("away")

    of_record = tracks_of_record(shards, original, pb.TrackMessageRequest(page_size=64), deadline).tracks
    (track,), outcomes, _ = follow(shards, original, of_record, deadline)

    assert track.state == TRACK_STATE_UNKNOWN
    assert outcomes[0].error is not None


def test_a_message_that_waits_for_its_time_or_its_verdict_is_found_under_its_own_topic(make, fan_out, deadline):
    make("SCHEDULE_TOPIC_XXXX", queue_id="0", REAL_TOPIC="T", REAL_QID="0")
    original, tracks = asked(make.made, fan_out, deadline, {}, topic="T", unique_key=KEY)

    assert state_of(original.record) == MESSAGE_STATE_SCHEDULED
    (shard,) = Shards([MemoryGroups(MemoryShard(make.made, {})).shard("broker-a")], fan_out)
    assert due_millis(shard, original.record, deadline) == store_millis(original.record) + 1_000
    assert tracks == []

    delivered = make("T")
    original, _ = asked(make.made, fan_out, deadline, {}, topic="T", unique_key=KEY)
    assert original.record == shown(delivered)


def test_a_half_message_waits_for_its_verdict(make, fan_out, deadline):
    make("RMQ_SYS_TRANS_HALF_TOPIC", REAL_TOPIC="T", REAL_QID="0")

    original, _ = asked(make.made, fan_out, deadline, {}, topic="T", unique_key=KEY)

    assert state_of(original.record) == MESSAGE_STATE_PENDING_TRANSACTION


def test_a_message_is_named_by_its_id_or_by_topic_and_key_and_not_by_both_or_none(make, fan_out, deadline):
    make("T")
    for which in (
        {},
        {"offset_msg_id": "A" * 32, "unique_key": KEY},
        {"topic": "T"},
        {"offset_msg_id": "A" * 32, "topic": "T"},
    ):
        with pytest.raises(InvalidArgumentError):
            asked(make.made, fan_out, deadline, {}, **which)
