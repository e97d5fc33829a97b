"""Read your write: who brings a token waits for the shard's builder, within the deadline, and is told what is late."""

import threading
from dataclasses import dataclass

import pytest

from gateway.ports.deadline import Deadline
from gateway.ports.shard import BuildProgress
from gateway.ports.shards import FanOut, Shards
from gateway.queries.completeness import ShardOutcome
from gateway.queries.freshness import TOKEN_COUNT_MAX, FreshnessWaits, Part, wanted_offsets
from reput.message.v1 import message_pb2
from store.errors import InvalidFreshnessTokenError, ResourceBusyError, ServiceUnavailableError
from store.format.freshness_token import encode_freshness_token
from tests.gateway.memory_shard import MemoryShard

BROKER = "broker-a"


@dataclass
class Clock:
    """Time that passes when somebody waits."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def memory(records, clock):
    """A shard whose builders are at the log's begin; waiting for them takes as long as the caller allows."""
    memory = MemoryShard(records, built_offset=0)
    memory.on_wait = lambda past_offset, wait_seconds: clock.pause(wait_seconds)
    return memory


@pytest.fixture
def wait(memory, clock, fan_out):
    def wait(*tokens, seconds=10.0, part=Part.INDEX, waits=None):
        waits = waits or FreshnessWaits(pause=clock.pause)
        return waits.wait(Shards([memory.shard()], fan_out), tokens, part, Deadline.after(seconds, clock))

    return wait


def token_of(record, broker_name=BROKER):
    return encode_freshness_token(broker_name, record.commit_log_offset)


def test_without_a_token_nobody_is_asked(wait, memory):
    freshness = wait()
    assert memory.calls == []
    outcome = ShardOutcome(BROKER, None, BuildProgress(0, 100, catching_up=True), complete=True)
    assert freshness.judge([outcome], message_pb2.COMPLETENESS_COMPLETE) == (
        (outcome,),
        message_pb2.COMPLETENESS_COMPLETE,
    )


@pytest.mark.parametrize("part", Part)
def test_it_waits_until_the_record_is_built_and_no_longer(wait, memory, records, clock, part):
    """The last record of the first half: built up to its begin is not enough, up to its end is."""
    record = records[len(records) // 2]
    ends = [record.commit_log_offset - 1, record.commit_log_offset, record.commit_log_offset + record.store_size_bytes]

    def on_wait(past_offset, wait_seconds):
        assert past_offset == record.commit_log_offset
        clock.pause(wait_seconds / 2)
        memory.built_offset = ends.pop(0)

    memory.on_wait = on_wait
    freshness = wait(token_of(record), part=part)

    assert ends == []
    assert freshness.late == {}
    assert memory.calls.count("progress") == 3
    assert clock.seconds < 1010


def test_the_newest_of_a_shards_tokens_counts(wait, memory, records):
    memory.built_offset = records[10].commit_log_offset
    freshness = wait(*map(token_of, records[:10]))
    assert freshness.wanted == {BROKER: records[9].commit_log_offset}
    assert freshness.late == {}


@pytest.mark.parametrize("seconds", [0.001, 0.05, 1.0, 30.0])
def test_a_builder_that_is_late_costs_four_fifths_of_the_time_and_is_named(wait, memory, records, clock, seconds):
    record = records[5]
    memory.built_offset = records[4].commit_log_offset
    begin = clock.seconds

    freshness = wait(token_of(record), seconds=seconds)

    assert clock.seconds - begin <= seconds * 0.8
    assert clock.seconds - begin > seconds * 0.8 - 0.01
    progress = BuildProgress(memory.built_offset, 10**9, catching_up=False)
    for seen in (None, progress):
        outcomes, completeness = freshness.judge([ShardOutcome(BROKER, None, seen)], message_pb2.COMPLETENESS_COMPLETE)
        assert completeness == message_pb2.COMPLETENESS_PARTIAL
        (outcome,) = outcomes
        assert not outcome.complete
        assert outcome.error.metadata == {
            "brokerName": BROKER,
            "commitLogOffset": str(record.commit_log_offset),
            "nextOffset": str(memory.built_offset),
        }


def test_a_builder_that_arrives_between_wait_and_query_makes_the_answer_whole(wait, memory, records):
    freshness = wait(token_of(records[5]), seconds=1.0)
    arrived = ShardOutcome(BROKER, None, BuildProgress(records[6].commit_log_offset, 10**9, catching_up=False))
    assert freshness.judge([arrived], message_pb2.COMPLETENESS_TRUNCATED) == (
        (arrived,),
        message_pb2.COMPLETENESS_TRUNCATED,
    )


def test_a_builder_that_begins_anew_between_wait_and_query_is_late(wait, memory, records):
    memory.built_offset = records[6].commit_log_offset
    freshness = wait(token_of(records[5]), seconds=1.0)
    again = ShardOutcome(BROKER, None, BuildProgress(records[2].commit_log_offset, 10**9, catching_up=True))
    outcomes, completeness = freshness.judge([again], message_pb2.COMPLETENESS_COMPLETE)
    assert (outcomes[0].complete, completeness) == (False, message_pb2.COMPLETENESS_PARTIAL)


def test_a_builder_that_is_asked_while_too_many_wait_is_not_asked_without_pause(wait, memory, records, clock):
    """It answers at once then."""
    memory.on_wait = lambda past_offset, wait_seconds: clock.pause(0.0001)
    wait(token_of(records[5]), seconds=1.0)
    assert 20 < memory.calls.count("progress") < 200


def test_a_shard_that_does_not_answer_is_left_to_the_query(wait, memory, records):
    memory.failures["progress"] = ServiceUnavailableError("gone", service="index")
    freshness = wait(token_of(records[5]))
    assert freshness.late == {BROKER: None}
    dead = ShardOutcome(BROKER, memory.failures["progress"], complete=False)
    outcomes, completeness = freshness.judge([dead], message_pb2.COMPLETENESS_PARTIAL)
    assert (outcomes[0].error, completeness) == (memory.failures["progress"], message_pb2.COMPLETENESS_PARTIAL)


def test_only_the_shards_of_tokens_are_waited_for(records, clock, fan_out):
    """The other one may be behind: its messages were not asked for."""
    named, other = MemoryShard(records), MemoryShard(records, built_offset=0)
    shards = Shards([named.shard("broker-a"), other.shard("broker-b")], fan_out)
    waits = FreshnessWaits(pause=clock.pause)
    freshness = waits.wait(shards, [token_of(records[5], "broker-a")], Part.INDEX, Deadline.after(1.0, clock))
    assert other.calls == []
    outcome = ShardOutcome("broker-b", None, other.progress_now, complete=False)
    assert freshness.judge([outcome], message_pb2.COMPLETENESS_PARTIAL)[0] == (outcome,)


def test_one_shard_of_two_that_is_late_is_the_one_named(records, clock, fan_out):
    early, late = MemoryShard(records), MemoryShard(records, built_offset=0)
    late.on_wait = lambda past_offset, wait_seconds: clock.pause(wait_seconds)
    shards = Shards([early.shard("broker-a"), late.shard("broker-b")], fan_out)
    tokens = [token_of(records[5], name) for name in ("broker-a", "broker-b")]
    freshness = FreshnessWaits(pause=clock.pause).wait(shards, tokens, Part.QUEUES, Deadline.after(1.0, clock))
    assert list(freshness.late) == ["broker-b"]


def test_a_token_of_a_byte_that_the_log_has_not_reached_is_refused_soon(wait, memory, records, clock):
    """Of another store under the same name, or of a record that a power cut took."""
    begin = clock.seconds
    with pytest.raises(InvalidFreshnessTokenError, match="which ends at byte") as refused:
        wait(encode_freshness_token(BROKER, memory._end), seconds=30.0)
    assert clock.seconds - begin < 1.0
    assert refused.value.metadata["logEndOffset"] == str(memory._end)
    assert wait(token_of(records[-1]), seconds=1.0).late, "the last record is there"


@pytest.mark.parametrize(("part", "waits"), [(Part.INDEX, False), (Part.QUEUES, True)])
def test_a_builder_that_is_switched_off_is_not_waited_for(wait, memory, records, clock, part, waits):
    memory.states["index"] = "off"
    begin = clock.seconds
    assert wait(token_of(records[5]), seconds=10.0, part=part).late
    assert (clock.seconds - begin > 5) == waits


def test_a_token_of_another_gateways_shard_is_refused_by_name(wait, records):
    with pytest.raises(InvalidFreshnessTokenError, match=r"'broker-z'.*it serves broker-a") as refused:
        wait(token_of(records[5]), token_of(records[5], "broker-z"))
    assert refused.value.metadata["field"] == "freshness_tokens"


def test_too_many_tokens_are_refused(memory, records, fan_out):
    shards = Shards([memory.shard()], fan_out)
    assert wanted_offsets(shards, [token_of(records[5])] * TOKEN_COUNT_MAX)
    with pytest.raises(InvalidFreshnessTokenError, match="more than 1024"):
        wanted_offsets(shards, [token_of(records[5])] * (TOKEN_COUNT_MAX + 1))


def test_too_many_waiters_are_refused_and_places_come_free_again(wait, memory, records, clock):
    waits = FreshnessWaits(waiting_count_max=1, pause=clock.pause)
    refusals = []

    def on_wait(past_offset, wait_seconds):
        clock.pause(wait_seconds)
        if not refusals:
            with pytest.raises(ResourceBusyError) as refused:
                wait(token_of(records[5]), waits=waits)
            refusals.append(refused)

    memory.on_wait = on_wait
    wait(token_of(records[5]), seconds=1.0, waits=waits)
    wait(token_of(records[5]), seconds=1.0, waits=waits)
    assert len(refusals) == 1


def test_queries_that_wait_took_the_threads_of_those_that_do_not(records):
    """Three wait for two shards each; the shards' own two threads are free all the while."""
    asked, go_on = threading.Semaphore(0), threading.Event()

    def on_wait(past_offset, wait_seconds):
        asked.release()
        assert go_on.wait(60)

    memories = [MemoryShard(records, built_offset=1 << 50, on_wait=on_wait) for _ in range(2)]
    names = ("broker-a", "broker-b")
    fan_out, waits = FanOut(2), FreshnessWaits(waiting_count_max=3)
    shards = Shards([memory.shard(name) for memory, name in zip(memories, names, strict=True)], fan_out)
    tokens = [token_of(records[5], name) for name in names]
    waiting = [
        threading.Thread(target=waits.wait, args=(shards, tokens, Part.QUEUES, Deadline.after(60))) for _ in range(3)
    ]
    try:
        for thread in waiting:
            thread.start()
        for _ in range(6):
            assert asked.acquire(timeout=60)
        assert fan_out.start(lambda: "free").result(60) == "free"
    finally:
        go_on.set()
        for thread in waiting:
            thread.join(60)
        waits.close()
        fan_out.close()
    with pytest.raises(RuntimeError):
        waits.wait(shards, tokens, Part.QUEUES, Deadline.after(60))
