"""ExplainQuery beside the query itself and a scan over all records: what was found, what was not and why."""

from types import SimpleNamespace

import pytest

from gateway.ports.shards import Shards
from gateway.queries.page import PAGE_SIZE_MAX, PageTokens
from gateway.reput.servicer import GatewayServicer
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.convert import millis_to_timestamp
from store.errors import (
    InvalidArgumentError,
    InvalidPageTokenError,
    OffsetOutOfRangeError,
    PermissionDeniedError,
    RecordCorruptedError,
    ServiceUnavailableError,
    UnauthenticatedError,
)
from store.format.derived.index_layout import index_key, key_hash
from store.format.message_id import encode_offset_msg_id
from tests.gateway.memory_shard import MemoryShard

CONTEXT = SimpleNamespace(time_remaining=lambda: 60.0)
TOPIC, KEY = "b_order", "AaAa"  # a key that shares its hash with AaBB, BBAa and BBBB


class ExplainedShard(MemoryShard):
    """Says of each search one file that it visited."""

    def search(self, topic, key, window, *, explain=False, **named):
        found = super().search(topic, key, window, **named)
        if not explain:
            return found
        count = len(found.answer.commit_log_offsets)
        explanation = found.answer.explanation
        explanation.key_hash, explanation.slot, explanation.slot_count = key_hash(index_key(topic, key)), 3, 7
        explanation.elapsed_micros = 11
        explanation.visits.add(
            name="20260101000000000",
            entry_count=99,
            chain_entry_count=count + 1,
            same_hash_count=count,
            candidate_count=count,
            read_bytes=20 * (count + 1),
        )
        explanation.visits.add(
            name="20250101000000000", passed_over=pb.PASSED_OVER_FILTER, entry_count=98, read_bytes=4096
        )
        return found


def servicer_of(fan_out, **memories):
    return GatewayServicer(
        Shards([memory.shard(name.replace("_", "-")) for name, memory in memories.items()], fan_out),
        PageTokens("a secret", bytes),
    )


@pytest.fixture
def memory(records):
    return ExplainedShard(records, topics={record.topic: 4 for record in records})


@pytest.fixture
def servicer(memory, fan_out):
    return servicer_of(fan_out, broker_a=memory)


def explain(servicer, **query):
    return servicer.ExplainQuery(pb.ExplainQueryRequest(**query), CONTEXT)


def hash_hits(records, topic, key):
    """The records that an index knows by the hash of the key, newest first."""
    hash_ = key_hash(index_key(topic, key))
    return [
        record
        for record in reversed(records)
        if hash_ in {key_hash(index_key(record.topic, own)) for own in {*record.keys, record.unique_key or ""} - {""}}
    ]


def steps(shard):
    return {step.name: (step.call_count, step.item_count) for step in shard.steps}


def reasons(lookup):
    return {row.commit_log_offset: pb.Rejection.Name(row.reason) for row in lookup.rejected}


def test_each_candidate_is_a_match_or_rejected_for_its_reason(servicer, records):
    hits = hash_hits(records, TOPIC, KEY)
    middle = hits[len(hits) // 2].store_time_millis
    request = pb.QueryMessageByKeyRequest(topic=TOPIC, key=KEY, page_size=PAGE_SIZE_MAX)
    request.begin_time.CopyFrom(millis_to_timestamp(middle))

    explained = explain(servicer, by_key=request)

    expected = {}
    for record in hits:
        if record.topic != TOPIC:
            expected[record.commit_log_offset] = "REJECTION_OTHER_TOPIC"
        elif KEY not in record.keys:
            expected[record.commit_log_offset] = "REJECTION_OTHER_KEY"
        elif record.store_time_millis < middle:
            expected[record.commit_log_offset] = "REJECTION_OUT_OF_WINDOW"
    assert len(set(expected.values())) >= 2
    (shard,) = explained.shards
    (lookup,) = shard.lookups
    shown = reasons(lookup)
    assert shown == dict(list(expected.items())[: len(shown)])
    assert len(shown) == min(len(expected), 100)
    assert (lookup.candidate_count, lookup.rejected_count) == (len(hits), len(expected))
    assert lookup.match_count == explained.message_count == len(hits) - len(expected)
    assert lookup.unread_count == 0
    answer = servicer.QueryMessageByKey(request, CONTEXT)
    assert (len(answer.messages), answer.completeness) == (explained.message_count, explained.completeness)
    assert steps(shard)["index.search"] == (lookup.round_count, len(hits))
    assert steps(shard)["log.read"][1] == len(hits)


def test_what_the_index_says_comes_through(servicer, records):
    request = pb.QueryMessageByKeyRequest(topic=TOPIC, key=KEY)
    (lookup,) = explain(servicer, by_key=request).shards[0].lookups
    count = len(lookup.visits) // 2
    assert (lookup.key_hash, lookup.slot, lookup.slot_count) == (key_hash(f"{TOPIC}#{KEY}"), 3, 7)
    assert lookup.search_micros == 11 * lookup.round_count == 11 * count
    assert [visit.passed_over for visit in lookup.visits] == [0, pb.PASSED_OVER_FILTER] * count
    assert lookup.read_bytes == sum(visit.read_bytes for visit in lookup.visits)
    assert sum(visit.candidate_count for visit in lookup.visits) == lookup.candidate_count
    assert lookup.passed_over == pb.PASSED_OVER_UNSPECIFIED


def test_a_page_that_is_full_leaves_candidates_unread_and_its_token_goes_on_in_the_query(servicer, records):
    request = pb.QueryMessageByKeyRequest(topic=TOPIC, key=KEY, page_size=2)
    explained = explain(servicer, by_key=request)
    assert explained.message_count == 2
    assert explained.completeness == message_pb2.COMPLETENESS_TRUNCATED

    first = servicer.QueryMessageByKey(request, CONTEXT)
    assert first.next_page_token == explained.next_page_token
    request.page_token = explained.next_page_token
    second = servicer.QueryMessageByKey(request, CONTEXT)
    assert explain(servicer, by_key=request).message_count == len(second.messages)


def test_what_retention_dropped_and_what_rotted_are_told_apart(memory, servicer, records):
    hits = [record for record in hash_hits(records, TOPIC, KEY) if record.topic == TOPIC and KEY in record.keys]
    gone, rotten = hits[-1].commit_log_offset, hits[0].commit_log_offset
    memory.damaged[gone] = OffsetOutOfRangeError("gone", firstOffset=gone + 1, lastOffset=1 << 40)
    memory.damaged[rotten] = RecordCorruptedError("its body's CRC differs", commitLogOffset=rotten)

    explained = explain(servicer, by_key=pb.QueryMessageByKeyRequest(topic=TOPIC, key=KEY, page_size=1000))

    (shard,) = explained.shards
    shown = reasons(shard.lookups[0])
    assert (shown[gone], shown[rotten]) == ("REJECTION_DROPPED", "REJECTION_UNREADABLE")
    assert explained.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert "CRC" in shard.error.message
    details = {row.commit_log_offset: row.detail for row in shard.lookups[0].rejected}
    assert details[rotten] == "its body's CRC differs"


def test_queries_by_unique_key_id_and_offset_are_explained(memory, servicer, records):
    record = next(record for record in reversed(records) if record.unique_key)
    by_unique_key = explain(
        servicer, by_unique_key=pb.QueryMessageByUniqueKeyRequest(topic=record.topic, unique_key=record.unique_key)
    )
    (lookup,) = by_unique_key.shards[0].lookups
    assert (lookup.key, lookup.match_count) == (record.unique_key, by_unique_key.message_count)
    assert by_unique_key.message_count >= 1

    offset_msg_id = encode_offset_msg_id(record.store_host, record.commit_log_offset)
    by_id = explain(servicer, by_id=pb.QueryMessageByIdRequest(offset_msg_id=offset_msg_id))
    assert by_id.message_count == 1
    assert steps(by_id.shards[0]) == {"log.read": (1, 1)}
    assert by_id.shards[0].steps[0].message_bytes > len(record.body)
    assert not by_id.shards[0].lookups

    by_offset = explain(
        servicer,
        by_offset=pb.QueryMessageByOffsetRequest(
            topic=record.topic, queue_id=record.queue_id, queue_offset=record.queue_offset, max_messages=1
        ),
    )
    assert by_offset.message_count == 1
    assert steps(by_offset.shards[0])["queues.read"] == (1, 1)


def test_find_explains_each_topic_and_shows_those_with_candidates_first(servicer, records, monkeypatch):
    monkeypatch.setattr("gateway.reput.explain.LOOKUP_COUNT_MAX", 2)
    record = next(record for record in records if record.keys)
    key = record.keys[0]

    explained = explain(servicer, find=pb.FindMessageRequest(text=key, page_size=1000))

    topics = {each.topic for each in records}
    (shard,) = explained.shards
    assert len(shard.lookups) == 2
    assert shard.omitted_lookup_count == len(topics) - 2
    assert shard.lookups[0].candidate_count > 0
    expected = {r.commit_log_offset for r in records if key in r.keys or r.unique_key == key}
    assert explained.message_count == len(expected)


def test_a_query_that_fails_is_explained_with_its_error(servicer):
    explained = explain(servicer, by_key=pb.QueryMessageByKeyRequest(topic="no such topic", key="k"))
    assert "no such topic" in explained.error.message
    assert explained.message_count == 0
    (shard,) = explained.shards
    assert shard.lookups[0].candidate_count == 0
    assert steps(shard)["topics.list"][0] == 1


def test_a_shard_that_fails_is_named_and_the_others_are_explained(records, fan_out):
    alive, dead = ExplainedShard(records), ExplainedShard(records)
    dead.failures["search"] = ServiceUnavailableError("index does not answer")
    both = servicer_of(fan_out, s_0=alive, s_1=dead)
    request = pb.QueryMessageByKeyRequest(topic=TOPIC, key=KEY, page_size=1000)

    explained = explain(both, by_key=request)

    assert [(row.broker_name, row.error.message) for row in explained.shards] == [
        ("s-0", ""),
        ("s-1", "index does not answer"),
    ]
    assert explained.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert steps(explained.shards[1]) == {"index.search": (1, 0)}
    alive.failures["search"] = ServiceUnavailableError("nor this one")
    explained = explain(both, by_key=request)
    assert explained.error.message
    assert [row.error.message for row in explained.shards] == ["nor this one", "index does not answer"]


def test_what_is_no_query_is_refused(servicer):
    with pytest.raises(InvalidArgumentError, match="query is missing"):
        explain(servicer)
    with pytest.raises(InvalidArgumentError, match="key is empty"):
        explain(servicer, by_key=pb.QueryMessageByKeyRequest(topic=TOPIC))
    with pytest.raises(InvalidPageTokenError):
        explain(servicer, by_key=pb.QueryMessageByKeyRequest(topic=TOPIC, key=KEY, page_token="made up"))


def test_a_timer_on_the_querys_method_does_not_ask_other_shards(servicer):
    """Metrics put their own functions onto the servicer (gateway/reput/query_methods.py)."""
    calls = []
    original = servicer.QueryMessageByKey
    servicer.QueryMessageByKey = lambda request, context: calls.append(request) or original(request, context)
    explained = explain(servicer, by_key=pb.QueryMessageByKeyRequest(topic=TOPIC, key=KEY))
    assert explained.shards[0].lookups
    assert calls == []


def test_times_are_those_of_the_clock(records, fan_out, monkeypatch):
    now = [0.0]

    class Slow(ExplainedShard):
        def search(self, *arguments, **named):
            now[0] += 0.25
            return super().search(*arguments, **named)

    monkeypatch.setattr("gateway.reput.explain.explain_query.__defaults__", (lambda: now[0],))
    slow = servicer_of(fan_out, s_0=Slow(records))
    explained = explain(slow, by_key=pb.QueryMessageByKeyRequest(topic=TOPIC, key=KEY, page_size=1))
    (shard,) = explained.shards
    micros = {step.name: step.elapsed_micros for step in shard.steps}
    assert micros["index.search"] == 250_000 * shard.lookups[0].round_count
    assert micros["log.read"] == 0
    assert shard.elapsed_micros == explained.elapsed_micros == micros["index.search"]


@pytest.mark.parametrize("refusal", [PermissionDeniedError, UnauthenticatedError])
def test_a_refusal_is_a_refusal_and_no_explanation(fan_out, records, refusal):
    memory = ExplainedShard(records, failures={"get": refusal("not for you")})
    offset_msg_id = encode_offset_msg_id(records[0].store_host, records[0].commit_log_offset)

    with pytest.raises(refusal):
        explain(servicer_of(fan_out, broker_a=memory), by_id=pb.QueryMessageByIdRequest(offset_msg_id=offset_msg_id))
