"""Queues that are not built yet are no queues without messages: whoever asks for one is told, or gets what came meanwhile."""

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_queue_offset import query_by_queue_offset
from gateway.queries.find_message import find_message
from gateway.queries.page_token import PageTokens
from gateway.queries.search_offset import outcome_of, search_offset
from gateway.search.question import OffsetWindow, SearchQuestion
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from store.errors import TopicNotFoundError
from tests.gateway.memory_shard import MemoryShard, records_in, shown, with_keys, with_queues
from tests.gateway.search.searching import Searcher
from tests.gateway.shards.archived.archived_shard import OLD_TOPIC, ShortenedShard, archived_orders, shard_of

TOPIC, QUEUE_ID = "b_order", 1


class RebuiltShard(MemoryShard):
    """Its queues have no files until `has_files`; what its builders say of themselves is as ever."""

    has_files = False

    def _queue(self, topic, queue_id):
        if not self.has_files:
            raise TopicNotFoundError(f"no files of {topic}", topic=topic)
        return super()._queue(topic, queue_id)

    def list_queues(self, topic, deadline):
        queues = super().list_queues(topic, deadline) if self.has_files else []
        self._called("list_queues", deadline)
        return queues


@pytest.fixture(params=["catching up", "behind"])
def memory(records, request):
    memory = RebuiltShard(records, {TOPIC: 8}, catching_up=request.param == "catching up")
    if request.param == "behind":
        memory.built_offset = records[0].commit_log_offset
    return memory


def build_when_asked(memory: RebuiltShard) -> None:
    """The last of it is built while the first answer is on its way."""

    def on_wait(past_offset, wait_seconds):
        assert wait_seconds == 0.0
        memory.has_files = True
        memory.catching_up, memory.built_offset = False, None

    memory.on_wait = on_wait


@pytest.fixture
def by_offset(memory, fan_out, deadline):
    def ask():
        return query_by_queue_offset(
            Shards([memory.shard()], fan_out),
            TOPIC,
            QUEUE_ID,
            0,
            broker_name="",
            page_size_asked=1000,
            deadline=deadline,
        )

    return ask


@pytest.fixture
def at_time(memory, fan_out, deadline):
    def ask(boundary):
        shards = Shards([memory.shard()], fan_out)
        found = search_offset(shards, TOPIC, QUEUE_ID, 0, boundary=boundary, broker_name="", deadline=deadline)
        return found, outcome_of("broker-a", found, boundary)

    return ask


def test_a_query_by_offset_of_a_queue_that_is_not_built_was_complete_and_empty(by_offset, memory):
    answer = by_offset()

    assert (answer.entries, answer.min_offset, answer.max_offset) == ((), 0, 0)
    assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert (answer.outcome.complete, answer.outcome.progress) == (False, memory.progress_now)
    memory.catching_up, memory.built_offset = False, None
    assert by_offset().completeness == message_pb2.COMPLETENESS_COMPLETE


def test_a_queue_built_between_two_questions_is_not_taken_for_an_empty_one(by_offset, at_time, memory, records):
    build_when_asked(memory)
    answer = by_offset()

    expected = [r for r in records if (r.topic, r.queue_id) == (TOPIC, QUEUE_ID)]
    assert records_in(answer.entries) == list(map(shown, expected))
    assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE
    memory.has_files = False
    found, outcome = at_time(gateway_pb.BOUNDARY_LOWER)
    assert (found.answer.queue_offset, found.answer.max_offset, outcome.complete) == (0, len(expected), True)


@pytest.mark.parametrize("boundary", [gateway_pb.BOUNDARY_LOWER, gateway_pb.BOUNDARY_UPPER])
def test_a_position_in_a_queue_that_is_not_built_was_final(at_time, memory, boundary):
    found, outcome = at_time(boundary)

    assert (found.answer.queue_offset, found.answer.min_offset, found.answer.max_offset) == (0, 0, 0)
    assert (outcome.complete, outcome.progress) == (False, memory.progress_now)
    memory.catching_up, memory.built_offset = False, None
    assert at_time(boundary)[1].complete


def test_a_search_of_queues_that_are_not_built_was_complete_and_empty(memory, fan_out, sandbox):
    searcher = Searcher({"broker-a": memory}, fan_out, sandbox)
    built_millis = memory.progress_now.built_up_to_millis
    one = SearchQuestion(TOPIC, queue_id=QUEUE_ID)
    verdicts = {
        searcher.search(question).completeness
        for question in (
            one,
            SearchQuestion(TOPIC, times=TimeWindow(None, built_millis)),
            SearchQuestion(TOPIC, times=TimeWindow(None, built_millis - 1)),
            replace(one, offsets=OffsetWindow(0, 5)),
        )
    }
    assert verdicts == {message_pb2.COMPLETENESS_PARTIAL}
    memory.has_files = True
    assert searcher.search(replace(one, offsets=OffsetWindow(0, 5))).completeness == message_pb2.COMPLETENESS_COMPLETE
    assert (
        searcher.search(replace(one, queue_id=0, offsets=OffsetWindow(0, 1 << 40))).completeness
        == message_pb2.COMPLETENESS_PARTIAL
    )


@pytest.mark.parametrize("behind", ["queues", "keys"])
def test_a_find_before_any_topic_is_known_was_complete_and_empty(records, fan_out, deadline, behind):
    """A foreign store may have no table of topics: then its queues alone tell of them."""
    memory = RebuiltShard(records)
    done = MemoryShard(records)
    shard = memory.shard()
    memory.catching_up = True
    if behind == "keys":
        shard = with_queues(shard, RebuiltShard([]))
    else:
        shard = with_keys(shard, done)

    answer = find_message(
        Shards([shard], fan_out),
        PageTokens("secret"),
        "no such key",
        "",
        TimeWindow(),
        page_size_asked=0,
        deadline=deadline,
    )
    assert (answer.completeness, answer.topic_count) == (message_pb2.COMPLETENESS_PARTIAL, 0)
    assert answer.outcomes[0].progress == memory.progress_now
    memory.catching_up = False
    answer = find_message(
        Shards([shard], fan_out),
        PageTokens("secret"),
        "no such key",
        "",
        TimeWindow(),
        page_size_asked=0,
        deadline=deadline,
    )
    assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE


def test_an_archived_queue_whose_rest_is_not_built_was_complete(fan_out, deadline, tmp_path: Path):
    made = archived_orders(tmp_path)
    kept = []

    class Kept(ShortenedShard):
        def __post_init__(self):
            super().__post_init__()
            kept.append(self)

    shards = Shards([shard_of(made, kind=Kept)], fan_out)
    (queue_id,) = {record.queue_id for record in made.records if record.topic == OLD_TOPIC}

    def verdicts():
        by_place = query_by_queue_offset(
            shards, OLD_TOPIC, queue_id, 0, broker_name="", page_size_asked=100, deadline=deadline
        )
        assert len(by_place.entries) == 2
        late = made.records[-1].store_time_millis
        found = search_offset(
            shards, OLD_TOPIC, queue_id, late, boundary=gateway_pb.BOUNDARY_LOWER, broker_name="", deadline=deadline
        )
        assert found.answer.queue_offset == 2
        return by_place.completeness == message_pb2.COMPLETENESS_COMPLETE, outcome_of(
            "broker-a", found, gateway_pb.BOUNDARY_LOWER
        ).complete

    assert verdicts() == (True, True)
    kept[0].catching_up = True
    assert verdicts() == (False, False)
