"""A query without a token finds what was acknowledged when it arrived, or says that it may lack it."""

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import pytest

from gateway.ports.chain import Concern
from gateway.ports.deadline import Deadline
from gateway.ports.shard import QUEUES_PROGRESS, BuildProgress, Built, queues_progress
from gateway.ports.shards import Shards
from gateway.queries.completeness import ShardOutcome
from gateway.queries.freshness import (
    CATCH_UP_BYTES_MAX,
    AtArrival,
    EndAtArrival,
    Freshness,
    FreshnessWaits,
    Part,
    at_arrival,
)
from gateway.reput import queries
from gateway.reput.queries import Call
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import ServiceUnavailableError, StoreError
from store.format.freshness_token import encode_freshness_token
from tests.gateway.memory_shard import MemoryShard, with_log_end
from tests.gateway.queries.test_freshness import BROKER, Clock
from tests.support.waiting import WAIT_SECONDS_MAX

COMPLETE, PARTIAL = message_pb2.COMPLETENESS_COMPLETE, message_pb2.COMPLETENESS_PARTIAL


class Building(MemoryShard):
    """Its builders have the log up to `built_offset`, and believe that it ends there."""

    @property
    def progress_now(self) -> BuildProgress:
        built = self._end if self.built_offset is None else self.built_offset
        return BuildProgress(built, built, self.catching_up, 1_700_000_000_000)

    def search(self, *arguments, **named) -> Built:
        found = super().search(*arguments, **named)
        offsets = found.answer.commit_log_offsets
        offsets[:] = [offset for offset in offsets if offset < self.progress_now.next_offset]
        return found

    def units(self, topic, queue_id, *arguments):
        found, end = super().units(topic, queue_id, *arguments), self.progress_now.next_offset
        units = [unit for unit in found.answer.units if unit.commit_log_offset < end]
        built = [record for record in self._queue(topic, queue_id) if record.commit_log_offset < end]
        del found.answer.units[len(units) :]
        found.answer.max_offset = found.answer.min_offset + len(built)
        return found


@dataclass
class LogEnd:
    """The end of a log; its files tell whether anything was written, unless they cannot be read here."""

    end: int
    has_files: bool
    error: StoreError | None = None
    calls: list[str] = field(default_factory=list)

    def is_written_at(self, commit_log_offset: int, deadline: Deadline) -> bool | None:
        return commit_log_offset < self.end if self.has_files else None

    def offset(self, request: log_pb.GetStatusRequest, deadline: Deadline) -> int | None:
        self.calls.append("offset")
        if self.error is not None:
            raise self.error
        return self.end


@pytest.fixture(params=["the files tell", "only the commitlog tells"])
def log(request, records):
    last = records[-1]
    return LogEnd(last.commit_log_offset + last.store_size_bytes, request.param == "the files tell")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def newest(records):
    """A message with a key, and the byte behind it."""
    record = next(record for record in reversed(records) if record.keys)
    return record, record.commit_log_offset + record.store_size_bytes


@pytest.fixture
def memory(records, clock):
    memory = Building(records)
    memory.on_wait = lambda past_offset, wait_seconds: clock.pause(wait_seconds)
    return memory


@pytest.fixture
def waits(clock):
    waits = FreshnessWaits(pause=clock.pause)
    yield waits
    waits.close()


@pytest.fixture
def ask(memory, log, newest, fan_out, tokens, waits, clock):
    """Asks for the newest message; the calls to builders since the last question."""

    def ask(waits=waits, **fields):
        memory.calls.clear()
        log.calls.clear()
        shards = Shards([with_log_end(memory.shard(), log)], fan_out)
        call = Call(shards, tokens, waits, Deadline.after(10.0, clock))
        record, _ = newest
        request = pb.QueryMessageByKeyRequest(topic=record.topic, key=record.keys[0], **fields)
        return queries.by_key(call, request)

    return ask


def offsets_of(answer):
    return [message.commit_log_offset for message in answer.messages]


def test_an_acknowledged_message_was_not_found_and_the_answer_was_complete(ask, memory, log, newest):
    """The index is some 15 ms behind, and knows no newer end of the log than its own."""
    record, behind = newest
    log.end = memory.built_offset = record.commit_log_offset
    before = ask()
    assert record.commit_log_offset not in offsets_of(before)
    assert before.completeness == COMPLETE

    log.end = behind

    def built(past_offset, wait_seconds):
        assert past_offset == behind - 1
        assert 0 < wait_seconds <= 0.05
        memory.built_offset = behind

    memory.on_wait = built
    answer = ask()

    assert record.commit_log_offset in offsets_of(answer)
    assert answer.completeness == COMPLETE
    assert memory.calls.count("progress") == 1
    assert memory.calls.count("search") == (1 if log.has_files else 2), "the files tell before the index is asked"


def test_when_nothing_is_behind_a_query_makes_no_further_call_where_the_files_tell(ask, memory, log):
    ask()
    ask()
    assert memory.calls.count("search") == 1
    assert "progress" not in memory.calls
    assert log.calls == ([] if log.has_files else ["offset"])


def test_an_index_that_does_not_come_is_waited_for_a_bounded_time_and_named(ask, memory, log, newest, clock):
    record, behind = newest
    memory.built_offset = record.commit_log_offset
    log.end = record.commit_log_offset
    ask()
    log.end, began = behind, clock.seconds

    answer = ask()

    assert 0.03 < clock.seconds - began <= 0.05
    assert answer.completeness == PARTIAL
    (shard,) = answer.shards
    assert (shard.indexed_up_to_offset, shard.log_end_offset) == (record.commit_log_offset, behind)
    expected = f"index of shard {BROKER} is built up to byte {record.commit_log_offset}, and its log had {behind} when"
    assert expected in shard.error.message


def test_with_a_constant_stream_of_appends_the_end_at_arrival_is_enough(ask, memory, log, newest):
    """The log grows by the time that the query waits; its next end is not waited for."""
    record, behind = newest
    log.end = memory.built_offset = record.commit_log_offset
    ask()
    log.end = behind

    def grow(past_offset, wait_seconds):
        memory.built_offset = past_offset + 1
        log.end += 1_000

    memory.on_wait = grow
    answer = ask()

    assert record.commit_log_offset in offsets_of(answer)
    assert (answer.completeness, memory.calls.count("progress")) == (COMPLETE, 1)


def test_a_builder_that_catches_up_with_much_after_a_start_is_not_waited_for(ask, memory, log, newest):
    record = newest[0]
    memory.built_offset, memory.catching_up = record.commit_log_offset, True
    log.end = record.commit_log_offset + CATCH_UP_BYTES_MAX + 1
    for _ in range(2):
        answer = ask()
        assert (answer.completeness, memory.calls.count("progress")) == (PARTIAL, 0)


def test_a_query_just_after_a_start_missed_what_had_been_appended_before_it(ask, memory, log, newest):
    """The builder was a few records behind, and catching up: on a busy machine for some hundred milliseconds."""
    record, behind = newest
    memory.built_offset, memory.catching_up, log.end = record.commit_log_offset, True, behind

    def catch_up(past_offset, wait_seconds):
        memory.built_offset, memory.catching_up = past_offset + 1, False

    memory.on_wait = catch_up
    answer = ask()
    assert record.commit_log_offset in offsets_of(answer)
    assert answer.completeness == COMPLETE


def test_a_setting_of_no_wait_says_partial_at_once(ask, memory, log, newest, clock):
    record, behind = newest
    memory.built_offset, log.end, began = record.commit_log_offset, behind, clock.seconds
    waits = FreshnessWaits(pause=clock.pause, builder_wait_seconds=0.0)
    for _ in range(2):
        assert ask(waits).completeness == PARTIAL
        assert "progress" not in memory.calls
    assert clock.seconds == began


def test_a_commitlog_that_does_not_say_its_end_makes_the_answer_partial_and_is_named(ask, memory, log, newest):
    log.has_files, log.error = False, ServiceUnavailableError("the commitlog is gone", service="commitlog")
    answer = ask()
    assert newest[0].commit_log_offset in offsets_of(answer)
    assert answer.completeness == PARTIAL
    assert answer.shards[0].error.message == "the commitlog is gone"


def test_a_query_with_a_token_waits_for_its_token_alone(ask, memory, log, newest):
    record, behind = newest
    memory.built_offset, log.end = behind, behind + 1_000
    answer = ask(freshness_tokens=[encode_freshness_token(BROKER, record.commit_log_offset)])
    assert (answer.completeness, log.calls) == (COMPLETE, [])


def test_a_shard_that_cannot_hold_a_match_is_not_waited_for(memory, log, fan_out, waits, clock):
    """Its window ended before the newest record that was indexed then (shards/summaries.py)."""
    final = BuildProgress(10, 10, catching_up=False, is_final=True)
    log.end = 1_000
    shard = with_log_end(memory.shard(), log)
    freshness = waits.wait(Shards([shard], fan_out), (), Part.INDEX, Deadline.after(10.0, clock))
    assert freshness.ends[BROKER].seen_in(final) == final
    assert freshness.ends[BROKER].seen_in(replace(final, is_final=False)).is_behind


def test_a_queue_waits_in_the_same_way_and_only_for_its_own_shard(memory, log, records, fan_out, tokens, waits, clock):
    record = records[-1]
    log.end = memory.built_offset = record.commit_log_offset
    other_log = LogEnd(0, has_files=False)
    other = with_log_end(Building(records).shard("broker-b"), other_log)
    shards = Shards([with_log_end(memory.shard(), log), other], fan_out)
    request = pb.QueryMessageByOffsetRequest(
        topic=record.topic, queue_id=record.queue_id, queue_offset=record.queue_offset, broker_name=BROKER
    )

    def ask():
        return queries.by_offset(Call(shards, tokens, waits, Deadline.after(10.0, clock)), request)

    assert (list(ask().messages), ask().completeness) == ([], COMPLETE)
    log.end += record.store_size_bytes
    memory.on_wait = lambda past_offset, wait_seconds: setattr(memory, "built_offset", past_offset + 1)
    answer = ask()
    assert [message.queue_offset for message in answer.messages] == [record.queue_offset]
    assert answer.completeness == COMPLETE
    assert other_log.calls == []


def test_a_page_of_a_queue_that_is_full_does_not_wait_for_what_lies_behind_it(
    memory, log, records, fan_out, tokens, waits, clock
):
    """A tail reads what it knows to be there; others append all the time."""
    record = next(record for record in records if record.topic == "b_order")
    log.end = memory.built_offset = records[-1].commit_log_offset
    call = Call(Shards([with_log_end(memory.shard(), log)], fan_out), tokens, waits, Deadline.after(10.0, clock))
    request = pb.QueryMessageByOffsetRequest(topic=record.topic, queue_id=record.queue_id, page_size=1)
    for _ in range(2):
        answer = queries.by_offset(call, request)
        log.end += 1_000
        assert (len(answer.messages), answer.completeness) == (1, message_pb2.COMPLETENESS_TRUNCATED)
    assert "progress" not in memory.calls


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_a_builder_that_moves_while_it_is_asked_is_judged_by_the_end_at_arrival(
    ask, memory, log, newest, records, is_rebuilt
):
    """It heard of newer records, which does not matter; or it began again, which does."""
    record, behind = newest
    log.end = memory.built_offset = behind
    ask()
    answering = memory.search
    log_end = behind + 1_000

    def moved(*arguments, **named):
        found = answering(*arguments, **named)
        next_offset = record.commit_log_offset if is_rebuilt else behind
        return replace(found, progress=BuildProgress(next_offset, log_end, catching_up=False))

    memory.search = moved
    answer = ask()

    assert answer.completeness == (PARTIAL if is_rebuilt else COMPLETE)
    assert answer.shards[0].HasField("error") == is_rebuilt


def find(shards, tokens, waits, clock, text):
    call = Call(shards, tokens, waits, Deadline.after(10.0, clock))
    return queries.find(call, pb.FindMessageRequest(text=text))


def test_a_topic_that_was_looked_in_too_early_made_a_find_partial_without_a_reason(
    memory, log, newest, fan_out, tokens, waits, clock
):
    """The index came while the topics were looked in one after the other: the last one alone said that nothing is missing."""
    record, behind = newest
    shards = Shards([with_log_end(memory.shard(), log)], fan_out)
    log.end = memory.built_offset = record.commit_log_offset
    find(shards, tokens, waits, clock, record.keys[0])
    log.has_files, log.end, answering = False, behind, memory.search
    looked_in = []

    def coming(topic, *arguments, **named):
        looked_in.append(topic)
        memory.built_offset = behind if len(looked_in) > 1 else record.commit_log_offset
        return answering(topic, *arguments, **named)

    memory.search = coming
    answer = find(shards, tokens, waits, clock, record.keys[0])

    assert len(looked_in) > 1
    assert answer.completeness == COMPLETE, answer.shards
    assert looked_in.count(looked_in[0]) == 2, "it was waited for, and asked once more"


def test_records_that_were_appended_after_a_find_arrived_made_it_partial(
    memory, log, newest, fan_out, tokens, waits, clock
):
    """The index hears of newer records while its first topic is looked in, and has them when the next one is."""
    record, behind = newest
    log.end, log.has_files = behind, True
    memory.built_offset = behind
    shards = Shards([with_log_end(memory.shard(), log)], fan_out)
    find(shards, tokens, waits, clock, record.keys[0])
    answering, asked = memory.search, []

    def hearing(*arguments, **named):
        asked.append(arguments)
        next_offset = behind if len(asked) == 1 else behind + 1_000
        progress = BuildProgress(next_offset, behind + 1_000, catching_up=False)
        return replace(answering(*arguments, **named), progress=progress)

    memory.search = hearing
    answer = find(shards, tokens, waits, clock, record.keys[0])

    assert answer.completeness == COMPLETE, answer.shards


def test_a_page_that_ended_before_the_end_of_its_queue_was_partial_because_of_the_logs_end(
    memory, log, records, fan_out, tokens, waits, clock
):
    """Where the log ends cannot change such a page."""
    log.has_files, log.error = False, ServiceUnavailableError("the commitlog is slow", service="commitlog")
    record = next(record for record in records if record.topic == "b_order")
    call = Call(Shards([with_log_end(memory.shard(), log)], fan_out), tokens, waits, Deadline.after(10.0, clock))
    request = pb.QueryMessageByOffsetRequest(topic=record.topic, queue_id=record.queue_id, page_size=1)

    answer = queries.by_offset(call, request)
    assert (len(answer.messages), answer.completeness) == (1, message_pb2.COMPLETENESS_TRUNCATED)
    request.page_size = 1_000
    assert queries.by_offset(call, request).completeness == PARTIAL, "this one reaches the end"
    at = pb.SearchOffsetRequest(topic=record.topic, queue_id=record.queue_id)
    for millis, expected in ((0, COMPLETE), (4_000_000_000_000, PARTIAL)):
        at.time.FromMilliseconds(millis)
        assert queries.offset_at_time(call, at).completeness == expected


def test_a_commitlog_that_hangs_held_a_waiting_query_for_a_second(memory, log, newest, fan_out, clock):
    """The wait is for the index, 50 ms at most: while the end is not known, there is nothing to wait for."""
    release, asked = threading.Event(), threading.Event()

    def hang(request, deadline):
        asked.set()
        assert release.wait(WAIT_SECONDS_MAX)
        return newest[1]

    log.offset, log.has_files = hang, False
    waits = FreshnessWaits(pause=clock.pause, builder_wait_seconds=0.01)
    shards = Shards([with_log_end(memory.shard(), log)], fan_out)
    try:
        freshness = waits.wait(shards, (), Part.QUEUES, Deadline.after(10.0, clock), before=True)
        assert asked.wait(WAIT_SECONDS_MAX)
        end = freshness.ends[BROKER]
        assert end.error is None, "it may come yet"
        assert "progress" not in memory.calls
    finally:
        release.set()
        waits.close()
    assert end.offset() == newest[1]


def test_a_search_waited_for_builders_that_catch_up(memory, log, newest, fan_out, waits, clock):
    """They take longer than the wait: every page paid it, and was PARTIAL all the same."""
    record = newest[0]
    memory.built_offset, memory.catching_up = record.commit_log_offset, True
    log.end = record.commit_log_offset + CATCH_UP_BYTES_MAX + 1
    waited = []
    memory.on_wait = lambda past_offset, wait_seconds: waited.append(wait_seconds)
    shards = Shards([with_log_end(memory.shard(), log)], fan_out)
    deadline = Deadline.after(10.0, clock)

    def page():
        return waits.wait(shards, (), Part.QUEUES, deadline, before=True).shards

    queues_progress(next(iter(page())), deadline)
    waited.clear()
    page()
    assert waited == [0.0], "only how far they are is asked"
    memory.catching_up = False
    page()
    assert waited[-1] > 0, "they only follow now"


def test_a_token_of_a_queue_goes_on_at_its_own_position(memory, records, fan_out, tokens, waits, clock):
    """A client sends the position of the page beside it, for gateways that know no tokens."""
    record = next(record for record in records if record.topic == "b_order")
    call = Call(Shards([memory.shard()], fan_out), tokens, waits, Deadline.after(10.0, clock))
    request = pb.QueryMessageByOffsetRequest(topic=record.topic, queue_id=record.queue_id, page_size=1)
    first = queries.by_offset(call, request)
    request.page_token = first.next_page_token
    for queue_offset in (0, first.next_queue_offset):
        request.queue_offset = queue_offset
        assert queries.by_offset(call, request).messages[0].queue_offset == first.next_queue_offset


def test_a_commitlog_that_says_its_end_too_late_is_named(clock):
    end = EndAtArrival(BROKER, None, Future(), Deadline.after(0.0, clock))

    assert end.offset() is None
    assert isinstance(end.error, ServiceUnavailableError)
    assert f"The commitlog of shard {BROKER} did not say how far its log is" in str(end.error)


def test_a_shard_whose_end_is_not_asked_for_stays_as_it_is(memory, fan_out):
    shards = Shards([memory.shard("broker-a"), memory.shard("broker-b")], fan_out)

    first, second = at_arrival(shards, {"broker-a": EndAtArrival("broker-a", 10)}, lambda *_: None)

    assert isinstance(first.links[Concern.ARRIVAL], AtArrival)
    assert second is list(shards)[1]
    assert at_arrival(shards, {}, lambda *_: None) is shards


def test_a_progress_that_no_later_end_can_change_is_passed_on(clock):
    final = BuildProgress(10, 10, False, 0, is_final=True)
    noted = []

    link = AtArrival(EndAtArrival(BROKER, 1_000), lambda part, progress: noted.append(progress))
    shard = MemoryShard([]).shard().with_link(Concern.ARRIVAL, link)
    shard = shard.serving(QUEUES_PROGRESS, lambda request, deadline: Built(queue_pb.GetStatusResponse(), final))

    assert queues_progress(shard, Deadline.after(1.0, clock)) is final
    assert not noted


def test_a_query_that_finds_no_place_to_wait_answers_at_once_and_partial(ask, memory, log, newest, clock):
    waits = FreshnessWaits(waiting_count_max=1, pause=clock.pause)
    record, behind = newest
    log.end = memory.built_offset = record.commit_log_offset
    ask(waits)
    log.end = behind
    inner = []

    def on_wait(past_offset, wait_seconds):
        clock.pause(wait_seconds)
        if not inner:
            inner.append(None)
            inner[0] = ask(waits)

    memory.on_wait = on_wait
    ask(waits)
    waits.close()

    assert inner[0].completeness == PARTIAL


def test_outcomes_without_a_word_on_the_end_do_not_repeat_a_query(memory, fan_out, waits):
    """A shard that did not answer, one whose end is not known, and an answer that no later end can change."""
    shards = Shards([memory.shard()], fan_out)
    freshness = Freshness(Part.QUEUES, shards, known_ends={BROKER: 1_000})
    behind, final = BuildProgress(10, 10, False, 0), BuildProgress(10, 10, False, 0, is_final=True)
    outcomes = [ShardOutcome(BROKER), ShardOutcome("broker-x", progress=behind), ShardOutcome(BROKER, progress=final)]

    assert waits.again(freshness, outcomes) is None
    assert waits.again(freshness, [ShardOutcome(BROKER, progress=behind)]) is not None
