"""Shards that record what they are asked answer as those that they wrap."""

from dataclasses import dataclass, replace

import pytest

from gateway.ports.shard import (
    STATUSES,
    get_record,
    get_records,
    get_units,
    keys_progress,
    list_queues,
    queues_progress,
    search_key,
    search_offset,
    topics_of,
)
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow, set_millis
from gateway.queries.recorded_shards import recorded
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import OffsetOutOfRangeError, RecordCorruptedError, ServiceUnavailableError
from tests.gateway.memory_shard import MemoryShard, candidates, topic_row


@pytest.fixture
def memory(records) -> MemoryShard:
    return MemoryShard(records, topics={"b_log": 4})


def test_every_call_is_answered_and_counted(memory, fan_out, deadline) -> None:
    shards, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, key: key in found.keys)
    (shard,) = shards
    first = memory.records[0]
    plain = memory.shard()

    assert get_record(shard, first.commit_log_offset, deadline) == get_record(plain, first.commit_log_offset, deadline)
    assert list_queues(shard, "b_log", deadline) == list_queues(plain, "b_log", deadline)
    (queue, *_) = list_queues(plain, "b_log", deadline)
    where = ("b_log", queue.queue_id)
    assert get_units(shard, *where, 0, 3, deadline) == get_units(plain, *where, 0, 3, deadline)
    found = search_offset(shard, *where, 0, gateway_pb.BOUNDARY_LOWER, deadline)
    assert found == search_offset(plain, *where, 0, gateway_pb.BOUNDARY_LOWER, deadline)
    assert queues_progress(shard, deadline) == memory.progress_now
    assert keys_progress(shard, deadline) == memory.progress_now
    assert topics_of(shard, deadline) == {"b_log": topic_row("b_log", 4)}
    names = ("log.read", "queues.list", "queues.read", "queues.search", "queues.wait", "index.wait", "topics.list")
    assert {name: step.call_count for name, step in record.steps.items()} == dict.fromkeys(names, 1)


def test_a_call_that_is_no_step_of_a_query_is_answered_and_not_counted(memory, fan_out, deadline) -> None:
    shards, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, key: False)
    (shard,) = shards

    assert shard.call(STATUSES, None, deadline) == memory.shard().call(STATUSES, None, deadline)
    assert record.steps == {}


def test_a_candidate_of_two_lookups_is_told_of_to_both(memory, fan_out, deadline) -> None:
    keyed = next(record for record in memory.records if record.topic == "b_log" and record.keys)
    key = keyed.keys[0]
    shards, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, asked: asked in found.keys)
    (shard,) = shards
    record.searched(index_pb.SearchKeyRequest(topic="b_log", key=key), _found(memory, keyed))
    record.searched(index_pb.SearchKeyRequest(topic="other-topic", key=key), _found(memory, keyed))
    record.searched(index_pb.SearchKeyRequest(topic="b_log", key="another-key"), _found(memory, keyed))

    for _ in range(4):  # once more than there are lookups: then nothing is left to note
        get_records(shard, [keyed.commit_log_offset], 1 << 20, deadline)

    assert [bool(lookup.matches) for lookup in record.lookups] == [True, False, False]
    reasons = [rejected.reason for lookup in record.lookups for rejected in lookup.rejected.values()]
    assert reasons == [gateway_pb.REJECTION_OTHER_TOPIC, gateway_pb.REJECTION_OTHER_KEY]
    assert [lookup.unread_count for lookup in record.lookups] == [0, 0, 0]


def test_a_failure_is_recorded_and_raised(memory, fan_out, deadline) -> None:
    memory.failures["list_queues"] = ServiceUnavailableError("down")
    shards, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, key: True)
    (shard,) = shards

    with pytest.raises(ServiceUnavailableError):
        list_queues(shard, None, deadline)

    assert record.error is memory.failures["list_queues"]


@dataclass
class ExplainingShard(MemoryShard):
    """Its index says how it found what it gives, when it is asked to."""

    explanation: index_pb.KeyExplanation | None = None
    passed_over: int = gateway_pb.PASSED_OVER_UNSPECIFIED

    def search(self, *question, explain=False, **bounds):
        found = super().search(*question, **bounds)
        found.passed_over = self.passed_over
        if explain and self.explanation is not None:
            found.answer.explanation.CopyFrom(self.explanation)
        return found


VISIT = gateway_pb.ShardExplanation.FileVisit(
    name="20261121102912255",
    entry_count=100,
    chain_entry_count=3,
    same_hash_count=2,
    candidate_count=2,
    read_bytes=4096,
)


def test_each_round_of_a_search_is_explained_without_the_query_asking_for_it(records, fan_out, deadline) -> None:
    memory = ExplainingShard(records, explanation=index_pb.KeyExplanation(key_hash=7, visits=[VISIT]))
    key = next(key for record in records if record.topic == "b_log" for key in record.keys)
    shards, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, asked: asked in found.keys)
    (shard,) = shards

    def search(below_offset):
        return search_key(
            shard, "b_log", key, TimeWindow(), below_offset=below_offset, count_max=1, deadline=deadline, explain=False
        )

    first = search(None)
    second = search(first.answer.commit_log_offsets[-1])

    (lookup,) = record.lookups
    assert (lookup.topic, lookup.key) == ("b_log", key)
    assert lookup.candidates == [*first.answer.commit_log_offsets, *second.answer.commit_log_offsets]
    assert lookup.unread_count == len(lookup.candidates) == record.steps["index.search"].item_count
    assert (lookup.visits, lookup.passed_over) == ([VISIT, VISIT], gateway_pb.PASSED_OVER_UNSPECIFIED)


@pytest.mark.parametrize(
    ("explanation", "passed_over"),
    [
        (None, gateway_pb.PASSED_OVER_UNSPECIFIED),
        (index_pb.KeyExplanation(key_hash=7), gateway_pb.PASSED_OVER_TIME),
    ],
)
def test_an_index_that_was_not_asked_has_a_reason_and_no_visits(
    records, fan_out, deadline, explanation, passed_over
) -> None:
    memory = ExplainingShard(records, explanation=explanation, passed_over=passed_over)
    shards, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, key: True)
    (shard,) = shards

    search_key(shard, "b_log", "k", TimeWindow(), below_offset=None, count_max=1, deadline=deadline)

    (lookup,) = record.lookups
    assert (lookup.visits, lookup.passed_over) == ([], passed_over)


def test_candidates_that_cannot_be_read_or_lie_outside_the_window_are_told_apart(memory, fan_out, deadline) -> None:
    found = [record for record in memory.records if record.topic == "b_log"][:4]
    dropped, damaged, early, match = (record.commit_log_offset for record in found)
    memory.damaged[dropped] = OffsetOutOfRangeError("expired", firstOffset=damaged, lastOffset=1 << 40)
    memory.damaged[damaged] = RecordCorruptedError("a byte rotted")
    window = TimeWindow(found[3].store_time_millis, None)
    assert found[2].store_time_millis < found[3].store_time_millis
    shards, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, key: True)
    (shard,) = shards
    offsets = (dropped, damaged, early, match)
    request = index_pb.SearchKeyRequest(topic="b_log", key="k")
    set_millis(request.begin_time, window.begin_millis)
    record.searched(request, candidates(offsets, False, memory.progress_now))

    get_records(shard, offsets, 1 << 20, deadline)

    (lookup,) = record.lookups
    reasons = {offset: rejected.reason for offset, rejected in lookup.rejected.items()}
    assert reasons == {
        dropped: gateway_pb.REJECTION_DROPPED,
        damaged: gateway_pb.REJECTION_UNREADABLE,
        early: gateway_pb.REJECTION_OUT_OF_WINDOW,
    }
    assert lookup.matches == {match}
    assert record.steps["log.read"].item_count == 2, "what could not be read did not come"


def test_the_time_of_a_shard_is_that_of_its_calls_failed_ones_included(memory, fan_out, deadline) -> None:
    memory.failures["list_queues"] = ServiceUnavailableError("down")
    seconds = iter((10.0, 10.25, 20.0, 20.5))
    shards, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, key: True, lambda: next(seconds))
    (shard,) = shards

    topics_of(shard, deadline)
    with pytest.raises(ServiceUnavailableError):
        list_queues(shard, None, deadline)

    assert {name: step.elapsed_micros for name, step in record.steps.items()} == {
        "topics.list": 250_000,
        "queues.list": 500_000,
    }
    assert record.elapsed_micros == 750_000


def _found(memory, keyed):
    return candidates((keyed.commit_log_offset,), False, memory.progress_now)


def test_a_caller_that_sees_a_part_counts_only_the_candidates_that_it_may_see(memory, fan_out, deadline) -> None:
    keyed = next(record for record in memory.records if record.topic == "b_log" and record.keys)
    key = keyed.keys[0]
    _, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, asked: asked in found.keys)
    hidden = keyed.commit_log_offset + 1
    found = candidates([keyed.commit_log_offset, hidden], False, replace(memory.progress_now, is_limited=True))
    record.searched(index_pb.SearchKeyRequest(topic="b_log", key=key), found)
    (seen,) = get_records(memory.shard(), [keyed.commit_log_offset], 1 << 20, deadline)
    record.read(keyed.commit_log_offset, seen)
    record.read(hidden, StoredMessage(commit_log_offset=hidden))  # stands for a record that the caller may not see
    (lookup,) = record.lookups
    assert (lookup.candidate_count, lookup.unread_count) == (1, 0)
