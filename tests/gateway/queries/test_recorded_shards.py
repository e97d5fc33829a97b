"""Shards that record what they are asked answer as those that they wrap."""

from dataclasses import dataclass, replace

import pytest

from gateway.ports.key_facts import FileVisit, KeyExplanation, PassedOver
from gateway.ports.shard import Boundary, Candidates, topics_of
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.recorded_shards import Rejection, recorded
from store.errors import OffsetOutOfRangeError, RecordCorruptedError, ServiceUnavailableError
from tests.gateway.memory_shard import MemoryShard, topic_row


@pytest.fixture
def memory(records) -> MemoryShard:
    return MemoryShard(records, topics={"b_log": 4})


def test_every_call_is_answered_and_counted(memory, fan_out, deadline) -> None:
    shards, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, key: key in found.keys)
    (shard,) = shards
    first = memory.records[0]
    plain = memory.shard()

    assert shard.records.get(first.commit_log_offset, deadline) == plain.records.get(first.commit_log_offset, deadline)
    assert shard.queues.list_queues("b_log", deadline) == plain.queues.list_queues("b_log", deadline)
    (queue, *_) = plain.queues.list_queues("b_log", deadline)
    where = ("b_log", queue.queue_id)
    assert shard.queues.units(*where, 0, 3, deadline) == plain.queues.units(*where, 0, 3, deadline)
    found = shard.queues.search_offset(*where, 0, Boundary.LOWER, deadline)
    assert found == plain.queues.search_offset(*where, 0, Boundary.LOWER, deadline)
    assert shard.queues.progress(0, 0.0, deadline) == memory.progress_now
    assert shard.keys.progress(0, 0.0, deadline) == memory.progress_now
    assert topics_of(shard, deadline) == {"b_log": topic_row("b_log", 4)}
    names = ("log.read", "queues.list", "queues.read", "queues.search", "queues.wait", "index.wait", "topics.list")
    assert {name: step.call_count for name, step in record.steps.items()} == dict.fromkeys(names, 1)


def test_a_candidate_of_two_lookups_is_told_of_to_both(memory, fan_out, deadline) -> None:
    keyed = next(record for record in memory.records if record.topic == "b_log" and record.keys)
    key = keyed.keys[0]
    shards, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, asked: asked in found.keys)
    (shard,) = shards
    record.searched("b_log", key, TimeWindow(), _found(memory, keyed))
    record.searched("other-topic", key, TimeWindow(), _found(memory, keyed))
    record.searched("b_log", "another-key", TimeWindow(), _found(memory, keyed))

    for _ in range(4):  # once more than there are lookups: then nothing is left to note
        shard.records.get_many([keyed.commit_log_offset], 1 << 20, deadline)

    assert [bool(lookup.matches) for lookup in record.lookups] == [True, False, False]
    reasons = [rejected.reason for lookup in record.lookups for rejected in lookup.rejected.values()]
    assert reasons == [Rejection.OTHER_TOPIC, Rejection.OTHER_KEY]
    assert [lookup.unread_count for lookup in record.lookups] == [0, 0, 0]


def test_a_failure_is_recorded_and_raised(memory, fan_out, deadline) -> None:
    memory.failures["list_queues"] = ServiceUnavailableError("down")
    shards, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, key: True)
    (shard,) = shards

    with pytest.raises(ServiceUnavailableError):
        shard.queues.list_queues(None, deadline)

    assert record.error is memory.failures["list_queues"]


@dataclass
class ExplainingShard(MemoryShard):
    """Its index says how it found what it gives, when it is asked to."""

    explanation: KeyExplanation | None = None

    def search(self, *question, explain=False, **bounds):
        found = super().search(*question, **bounds)
        return replace(found, explanation=self.explanation) if explain else found


VISIT = FileVisit("20261121102912255", PassedOver.NOT, 100, 3, 2, 0, 2, False, 4096)


def test_each_round_of_a_search_is_explained_without_the_query_asking_for_it(records, fan_out, deadline) -> None:
    memory = ExplainingShard(records, explanation=KeyExplanation(7, visits=(VISIT,)))
    key = next(key for record in records if record.topic == "b_log" for key in record.keys)
    shards, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, asked: asked in found.keys)
    (shard,) = shards

    def search(below_offset):
        return shard.keys.search(
            "b_log", key, TimeWindow(), below_offset=below_offset, count_max=1, deadline=deadline, explain=False
        )

    first = search(None)
    second = search(first.commit_log_offsets[-1])

    (lookup,) = record.lookups
    assert (lookup.topic, lookup.key) == ("b_log", key)
    assert lookup.candidates == [*first.commit_log_offsets, *second.commit_log_offsets]
    assert lookup.unread_count == len(lookup.candidates) == record.steps["index.search"].item_count
    assert (lookup.visits, lookup.passed_over) == ([VISIT, VISIT], PassedOver.NOT)


@pytest.mark.parametrize(
    ("explanation", "passed_over"),
    [(None, PassedOver.NOT), (KeyExplanation(7, passed_over=PassedOver.TIME), PassedOver.TIME)],
)
def test_an_index_that_was_not_asked_has_a_reason_and_no_visits(
    records, fan_out, deadline, explanation, passed_over
) -> None:
    memory = ExplainingShard(records, explanation=explanation)
    shards, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, key: True)
    (shard,) = shards

    shard.keys.search("b_log", "k", TimeWindow(), below_offset=None, count_max=1, deadline=deadline)

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
    record.searched("b_log", "k", window, Candidates(offsets, False, memory.progress_now))

    shard.records.get_many(offsets, 1 << 20, deadline)

    (lookup,) = record.lookups
    reasons = {offset: rejected.reason for offset, rejected in lookup.rejected.items()}
    assert reasons == {
        dropped: Rejection.DROPPED,
        damaged: Rejection.UNREADABLE,
        early: Rejection.OUT_OF_WINDOW,
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
        shard.queues.list_queues(None, deadline)

    assert {name: step.elapsed_micros for name, step in record.steps.items()} == {
        "topics.list": 250_000,
        "queues.list": 500_000,
    }
    assert record.elapsed_micros == 750_000


def _found(memory, keyed):
    return Candidates((keyed.commit_log_offset,), False, memory.progress_now)


def test_a_caller_that_sees_a_part_counts_only_the_candidates_that_it_may_see(memory, fan_out, deadline) -> None:
    keyed = next(record for record in memory.records if record.topic == "b_log" and record.keys)
    key = keyed.keys[0]
    _, (record,) = recorded(Shards([memory.shard()], fan_out), lambda found, asked: asked in found.keys)
    found = replace(_found(memory, keyed), is_limited=True)
    hidden = keyed.commit_log_offset + 1
    record.searched("b_log", key, TimeWindow(), replace(found, commit_log_offsets=[keyed.commit_log_offset, hidden]))
    (seen,) = memory.shard().records.get_many([keyed.commit_log_offset], 1 << 20, deadline)
    record.read(keyed.commit_log_offset, seen)
    record.read(hidden, replace(seen, topic=""))  # stands for a record that the caller may not see
    (lookup,) = record.lookups
    assert (lookup.candidate_count, lookup.unread_count) == (1, 0)
