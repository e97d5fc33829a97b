"""Shards that record what they are asked answer as those that they wrap."""

import pytest

from gateway.ports.shard import Boundary, Candidates
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.recorded_shards import Rejection, recorded
from store.errors import ServiceUnavailableError
from tests.gateway.memory_shard import MemoryShard


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
    assert shard.topics.queue_counts(deadline) == {"b_log": 4}
    assert shard.topics.new_topic_queue_count(deadline) == memory.new_topic_queues
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


def _found(memory, keyed):
    return Candidates((keyed.commit_log_offset,), False, memory.progress_now)
