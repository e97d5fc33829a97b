"""Traces of a message over records in memory: which are found, what limits them, and that nothing is told as no trace."""

import random
import zlib
from dataclasses import replace

import pytest

from gateway.auth.access import Access, Role
from gateway.auth.caller_shards import SignIn, VisibleTopics
from gateway.groups import traces as traces_module
from gateway.groups.traces import TraceQuestion, read_traces
from gateway.ports.chain import Concern
from gateway.ports.shards import Shards
from gateway.queries.freshness import FreshnessWaits
from gateway.queries.page import PageTokens
from gateway.reput.groups import track
from gateway.reput.queries import Call
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import InvalidArgumentError, ServiceUnavailableError
from store.format.properties import encode_properties
from store.format.record import Record
from store.format.sys_flag import COMPRESSED
from store.format.topic import TRACE_TOPIC
from tests.gateway.groups.memory_groups import MemoryGroups
from tests.gateway.memory_shard import MemoryShard, shown

KEY = "7F0000010000000000000000000000AA"
OTHER = "7F0000010000000000000000000000BB"
ASKED = TraceQuestion(TRACE_TOPIC, KEY)


def send(unique_key: str = KEY, millis: int = 1_700_000_000_000) -> str:
    return f"Pub|{millis}|R|senders|Orders|{unique_key}|TagA|k1|10.0.0.1:10911|7|12|0|7F00|true"


def consumed(code: int | str, is_success: str, request: str = "req", millis: int = 1_700_000_000_100) -> str:
    before = f"SubBefore|{millis}|R|readers|{request}|{KEY}|2|k1"
    return f"{before}\x02SubAfter|{request}|{KEY}|30|{is_success}|k1|{code}|{millis + 30}|readers"


@pytest.fixture
def traced(records):
    """Makes trace messages behind one another."""
    model, made = records[0], []

    def record(*entries: str, keys: str = KEY, body: bytes | None = None, topic: str = TRACE_TOPIC, **fields) -> Record:
        at = made[-1].commit_log_offset + made[-1].store_size_bytes if made else 0
        text = "".join(entry.replace("|", "\x01") + "\x02" for entry in entries).encode()
        new = replace(
            model,
            topic=topic,
            queue_offset=len(made),
            commit_log_offset=at,
            body=text if body is None else body,
            properties_bytes=encode_properties({"UNIQ_KEY": f"{len(made):032X}", "KEYS": keys}),
            **fields,
        )
        made.append(new)
        return new

    record.made = made
    return record


def read(made, fan_out, deadline, question=ASKED) -> pb.MessageTraces:
    traces, outcomes = read_traces(Shards([MemoryShard(made).shard()], fan_out), question, deadline)
    assert all(outcome.complete for outcome in outcomes)
    return traces


def test_events_are_those_of_the_message_in_the_order_of_time(traced, fan_out, deadline):
    one = traced(consumed(0, "true"), send(OTHER), keys=f"{KEY} {OTHER} k1")
    traced(send(), send(OTHER), keys=f"{OTHER} {KEY}")
    traced(send(millis=1), topic="Orders")
    sent, consumption = read(traced.made, fan_out, deadline).events
    assert (sent.kind, sent.outcome, sent.group) == (pb.TRACE_KIND_SEND, pb.TRACE_OUTCOME_SUCCESS, "senders")
    assert (sent.begin_time.ToMilliseconds(), sent.cost.ToMilliseconds()) == (1_700_000_000_000, 12)
    assert not sent.HasField("end_time")
    assert (sent.store_host, sent.offset_msg_id, sent.client_host) == ("10.0.0.1:10911", "7F00", str(one.born_host))
    assert (consumption.kind, consumption.group, consumption.retry_count) == (pb.TRACE_KIND_CONSUME, "readers", 2)
    assert consumption.begin_time.ToMilliseconds() == 1_700_000_000_100
    assert consumption.end_time.ToMilliseconds() == 1_700_000_000_130
    assert consumption.cost.ToMilliseconds() == 30


@pytest.mark.parametrize(
    ("code", "is_success", "outcome"),
    [
        (0, "true", pb.TRACE_OUTCOME_SUCCESS),
        (1, "false", pb.TRACE_OUTCOME_TIMED_OUT),
        (2, "false", pb.TRACE_OUTCOME_EXCEPTION),
        (3, "false", pb.TRACE_OUTCOME_RETURNED_NULL),
        (4, "false", pb.TRACE_OUTCOME_FAILED),
        (99, "false", pb.TRACE_OUTCOME_FAILED),
        ("", "false", pb.TRACE_OUTCOME_FAILED),
    ],
)
def test_each_context_code_is_an_outcome(traced, fan_out, deadline, code, is_success, outcome):
    traced(consumed(code, is_success))
    assert [event.outcome for event in read(traced.made, fan_out, deadline).events] == [outcome]


def test_a_consumption_without_an_end_has_no_outcome_and_one_without_a_beginning_no_begin_time(
    traced, fan_out, deadline
):
    before, _, after = consumed(0, "true").partition("\x02")
    traced(before)
    traced(after.replace("req", "other"))
    begun, ended = read(traced.made, fan_out, deadline).events
    assert (begun.outcome, begun.HasField("end_time")) == (pb.TRACE_OUTCOME_UNSPECIFIED, False)
    assert (ended.outcome, ended.HasField("begin_time")) == (pb.TRACE_OUTCOME_SUCCESS, False)
    assert ended.HasField("end_time")


def test_a_message_without_traces_has_none_and_no_problem(traced, fan_out, deadline):
    traced(send(OTHER), keys=OTHER)
    assert read(traced.made, fan_out, deadline) == pb.MessageTraces(topic=TRACE_TOPIC)
    assert read(traced.made, fan_out, deadline, TraceQuestion("Absent", KEY)) == pb.MessageTraces(topic="Absent")


def test_a_topic_that_the_caller_names_is_read_instead(traced, fan_out, deadline):
    traced(send(), topic="OwnTraces")
    assert read(traced.made, fan_out, deadline).events == []
    assert len(read(traced.made, fan_out, deadline, TraceQuestion("OwnTraces", KEY)).events) == 1


def test_a_compressed_body_is_read_and_one_that_cannot_be_unpacked_is_counted(traced, fan_out, deadline):
    text = send().replace("|", "\x01").encode() + b"\x02"
    traced(body=zlib.compress(text), sys_flag=COMPRESSED)
    traced(body=b"no zlib", sys_flag=COMPRESSED)
    found = read(traced.made, fan_out, deadline)
    assert (len(found.events), found.damaged_count) == (1, 1)


def test_damaged_entries_are_counted_over_all_trace_messages(traced, fan_out, deadline):
    traced(f"Pub|soon|R|g|Orders|{KEY}", send())
    traced(f"Later|{KEY}")
    found = read(traced.made, fan_out, deadline)
    assert (len(found.events), found.damaged_count, found.has_more) == (1, 2, False)


def test_limits_of_entries_messages_and_bytes_are_told(traced, fan_out, deadline, monkeypatch):
    for number in range(10):
        traced(send(millis=number), send(millis=100 + number))
    monkeypatch.setattr(traces_module, "ENTRY_COUNT_MAX", 3)
    found = read(traced.made, fan_out, deadline)
    assert (len(found.events), found.has_more) == (3, True)
    monkeypatch.undo()
    monkeypatch.setattr(traces_module, "TRACE_MESSAGE_COUNT_MAX", 4)
    found = read(traced.made, fan_out, deadline)
    assert (len(found.events), found.has_more) == (8, True)
    assert min(event.begin_time.ToMilliseconds() for event in found.events) == 6, "the newest trace messages are read"
    monkeypatch.undo()
    monkeypatch.setattr(traces_module, "ALL_BODIES_BYTES_MAX", 3 * len(traced.made[0].body))
    found = read(traced.made, fan_out, deadline)
    assert (len(found.events), found.has_more) == (6, True)


def test_a_message_without_a_unique_key_says_why_it_has_no_traces(traced, fan_out, deadline):
    traced(send())
    found = read(traced.made, fan_out, deadline, TraceQuestion(TRACE_TOPIC, ""))
    assert "no unique key" in found.problem


def test_traces_of_all_shards_are_joined_and_a_shard_that_fails_makes_them_partial(traced, fan_out, deadline):
    before, _, after = consumed(0, "true").partition("\x02")
    first, second = traced(before), traced(after)
    sound = MemoryShard([first])
    other = MemoryShard([replace(second, commit_log_offset=0)])
    both = Shards([sound.shard("a"), other.shard("b")], fan_out)
    (event,) = read_traces(both, ASKED, deadline)[0].events
    assert event.outcome == pb.TRACE_OUTCOME_SUCCESS
    other.failures["search"] = ServiceUnavailableError("away")
    found, outcomes = read_traces(both, ASKED, deadline)
    assert [event.outcome for event in found.events] == [pb.TRACE_OUTCOME_UNSPECIFIED]
    assert [outcome.complete for outcome in outcomes] == [True, False]
    assert [outcome.error is not None for outcome in outcomes] == [False, True]
    sound.failures["search"] = ServiceUnavailableError("away")
    with pytest.raises(ServiceUnavailableError):
        read_traces(both, ASKED, deadline)


def test_a_random_set_of_traces_equals_what_each_entry_says(traced, fan_out, deadline):
    chance = random.Random(random.randrange(1 << 32))
    wanted = []
    for _ in range(40):
        keys, entries = set(), []
        for _ in range(chance.randrange(1, 6)):
            key, millis = chance.choice((KEY, OTHER)), chance.randrange(1, 1 << 40)
            keys.add(key)
            entries.append(send(key, millis))
            wanted += [millis] if key == KEY else []
        traced(*entries, keys=" ".join(keys))
    found = [event.begin_time.ToMilliseconds() for event in read(traced.made, fan_out, deadline).events]
    assert found == sorted(set(wanted))


def tracked(
    shards: Shards, offset_msg_id: str, deadline, topic_default: str = TRACE_TOPIC, **asked: object
) -> pb.TrackMessageResponse:
    request = pb.TrackMessageRequest(offset_msg_id=offset_msg_id, with_traces=True, **asked)
    call = Call(shards, PageTokens("secret"), FreshnessWaits(builder_wait_seconds=0), deadline)
    return track(call, request, topic_default)


@pytest.fixture
def message(traced):
    """A message of which a client told, its shard, and its groups."""
    one = traced(topic="Orders", keys="k1", body=b"hello")
    one = replace(one, properties_bytes=encode_properties({"UNIQ_KEY": KEY}))
    traced.made[0] = one
    traced(send())
    memory = MemoryShard(traced.made)
    groups = MemoryGroups(memory)
    done = consumer_pb.TrackMessageResponse.Track(consumer_group="g", state=pb.TRACK_STATE_CONSUMED)
    groups.tracks = {0: [done, consumer_pb.TrackMessageResponse.Track(consumer_group="h", state=done.state)]}
    return shown(one).offset_msg_id, memory, groups


def test_a_track_has_traces_on_its_first_page(message, fan_out, deadline):
    offset_msg_id, _, groups = message
    shards = Shards([groups.shard("broker-a")], fan_out)
    first = tracked(shards, offset_msg_id, deadline, page_size=1)
    assert ([each.consumer_group for each in first.tracks], len(first.traces.events)) == (["g"], 1)
    second = tracked(shards, offset_msg_id, deadline, page_size=1, page_token=first.next_page_token)
    assert ([each.consumer_group for each in second.tracks], second.HasField("traces")) == (["h"], False)


def test_the_gateways_trace_topic_is_read_unless_the_request_names_one(message, traced, fan_out, deadline):
    offset_msg_id, _, groups = message
    traced(send(millis=1), send(millis=2), topic="OwnTraces")
    groups = MemoryGroups(MemoryShard(traced.made))
    shards = Shards([groups.shard("broker-a")], fan_out)
    found = tracked(shards, offset_msg_id, deadline, "OwnTraces").traces
    assert (found.topic, len(found.events)) == ("OwnTraces", 2)
    found = tracked(shards, offset_msg_id, deadline, "OwnTraces", trace_topic=TRACE_TOPIC).traces
    assert (found.topic, len(found.events)) == (TRACE_TOPIC, 1)


def test_a_caller_that_may_not_see_the_trace_topic_gets_its_track_and_the_reason(message, fan_out, deadline):
    offset_msg_id, _, groups = message
    visible = VisibleTopics(Access("reader", {Role.READ: ["Orders"]}, ("*",)), frozenset({Role.READ}))
    shards = Shards([groups.shard("broker-a").with_link(Concern.SIGN_IN, SignIn(visible))], fan_out)
    found = tracked(shards, offset_msg_id, deadline)
    assert [each.consumer_group for each in found.tracks] == ["g", "h"]
    assert found.traces.events == []
    assert "may not read topic 'RMQ_SYS_TRACE_TOPIC'" in found.traces.problem


def test_an_index_that_fails_or_is_behind_is_told_as_a_problem_and_not_as_no_trace(message, fan_out, deadline):
    offset_msg_id, memory, groups = message
    memory.built_offset = 0
    found = tracked(Shards([groups.shard("broker-a")], fan_out), offset_msg_id, deadline)
    assert found.traces.problem == "traces may be missing: the index is behind the log: ask again"
    memory.built_offset = None
    memory.failures["search"] = ServiceUnavailableError("away")
    found = tracked(Shards([groups.shard("broker-a")], fan_out), offset_msg_id, deadline)
    assert found.traces.problem == "traces cannot be read: away"
    assert len(found.tracks) == 2


def test_a_trace_topic_that_can_be_no_topic_is_refused(message, fan_out, deadline):
    offset_msg_id, _, groups = message
    with pytest.raises(InvalidArgumentError) as caught:
        tracked(Shards([groups.shard("broker-a")], fan_out), offset_msg_id, deadline, trace_topic="a/b")
    assert caught.value.metadata["field"] == "trace_topic"
