"""Queries by queue offset, time and the list of topics, against brute force over the broker fixture's log.

Queues that are not built yet are no queues without messages: whoever asks for one is told, or gets what came meanwhile.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.ports.shard import BuildProgress
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries import by_queue_offset as by_queue_offset_module
from gateway.queries.by_queue_offset import outcome_of, query_by_queue_offset, queue_place, search_offset
from gateway.queries.completeness import ShardOutcome
from gateway.queries.find_message import find_message
from gateway.queries.list_topics import list_topics
from gateway.queries.page import PageTokens
from gateway.search.question import OffsetWindow, SearchQuestion
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from store.errors import (
    BrokerNotFoundError,
    InvalidArgumentError,
    OffsetOutOfRangeError,
    QueueNotFoundError,
    RecordCorruptedError,
    ServiceUnavailableError,
    StoreCorruptedError,
    TopicNotFoundError,
    UnsupportedStoreError,
)
from tests.gateway.memory_shard import MemoryShard, place_of, records_in, shown, with_keys, with_queues
from tests.gateway.search.searching import Searcher
from tests.gateway.shards.archived.archived_shard import OLD_TOPIC, ShortenedShard, archived_orders, shard_of


@pytest.fixture
def ask(fan_out, deadline):
    def ask(memory, topic="b_order", queue_id=1, queue_offset=0, broker_name="", page_size=0):
        return query_by_queue_offset(
            Shards([memory.shard()], fan_out),
            topic,
            queue_id,
            queue_offset,
            broker_name=broker_name,
            page_size_asked=page_size,
            deadline=deadline,
        )

    return ask


def queue(records, topic="b_order", queue_id=1):
    return [record for record in records if (record.topic, record.queue_id) == (topic, queue_id)]


def test_pages_follow_one_another_through_the_queue(ask, records):
    found, queue_offset = [], 0
    while True:
        answer = ask(MemoryShard(records), queue_offset=queue_offset, page_size=50)
        found += records_in(answer.entries)
        queue_offset = answer.next_queue_offset
        if queue_offset == answer.max_offset:
            break

    assert found == list(map(shown, queue(records)))
    assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE


def test_a_page_that_leaves_messages_of_its_queue_is_truncated_until_the_last(ask, records):
    """It said COMPLETE with 64 of 226 messages, so that a loop until COMPLETE stopped early."""
    memory, end, completeness = MemoryShard(records), len(queue(records)), []
    for begin in range(0, end, 50):
        answer = ask(memory, queue_offset=begin, page_size=50)
        completeness.append(answer.completeness)
        assert (answer.has_more, answer.next_queue_offset) == (begin + 50 < end, min(begin + 50, end))

    assert len(completeness) > 1
    assert completeness == [message_pb2.COMPLETENESS_TRUNCATED] * (len(completeness) - 1) + [
        message_pb2.COMPLETENESS_COMPLETE
    ]


def test_an_offset_out_of_range_is_empty_and_says_the_range(ask, records):
    kept = [record for record in records if record not in queue(records)[:10]]
    end = len(queue(records))
    behind = ((end, end, message_pb2.COMPLETENESS_COMPLETE), ((1 << 63) - 1, end, message_pb2.COMPLETENESS_COMPLETE))
    for queue_offset, goes_on_at, completeness in ((0, 10, message_pb2.COMPLETENESS_TRUNCATED), *behind):
        answer = ask(MemoryShard(kept), queue_offset=queue_offset)

        assert (answer.entries, answer.min_offset, answer.max_offset) == ((), 10, end)
        assert answer.next_queue_offset == goes_on_at
        assert answer.completeness is completeness


@pytest.mark.parametrize(("field", "number"), [("queue_id", -1), ("queue_offset", -1), ("page_size", -1)])
def test_negative_numbers_are_refused_by_field(ask, records, field, number):
    with pytest.raises(InvalidArgumentError) as refused:
        ask(MemoryShard(records), **{field: number})

    assert refused.value.metadata["field"] == field


def test_unknown_topics_queues_and_shards_are_told_apart(ask, records):
    memory = MemoryShard(records, topics={"b_order": 8, "configured": 2})

    with pytest.raises(TopicNotFoundError):
        ask(memory, topic="nosuch")
    with pytest.raises(QueueNotFoundError):
        ask(memory, queue_id=8)
    with pytest.raises(QueueNotFoundError):
        ask(memory, topic="b_log", queue_id=2**31 - 1)
    with pytest.raises(BrokerNotFoundError):
        ask(memory, broker_name="nosuch")
    unwritten = ask(memory, topic="configured")
    assert (unwritten.entries, unwritten.min_offset, unwritten.max_offset) == ((), 0, 0)


def test_a_page_full_by_bytes_says_where_to_go_on(ask, records):
    at, large = 0, []
    for record in queue(records)[:5]:
        size = record.store_size_bytes - len(record.body) + (1 << 20)
        large.append(replace(record, body=bytes(1 << 20), store_size_bytes=size, commit_log_offset=at))
        at += size
    memory = MemoryShard(large)

    first = ask(memory)
    rest = ask(memory, queue_offset=first.next_queue_offset)

    assert ([e.record.queue_offset for e in first.entries], first.next_queue_offset) == ([0, 1, 2], 3)
    assert first.completeness == message_pb2.COMPLETENESS_TRUNCATED
    assert ([e.record.queue_offset for e in rest.entries], rest.completeness) == (
        [3, 4],
        message_pb2.COMPLETENESS_COMPLETE,
    )
    assert not any(entry.body_omitted for entry in (*first.entries, *rest.entries))


def test_a_queue_still_being_built_is_partial_only_at_its_end(ask, records):
    memory = MemoryShard(records, catching_up=True)

    assert ask(memory, page_size=5).completeness == message_pb2.COMPLETENESS_TRUNCATED
    assert ask(memory, page_size=1000).completeness == message_pb2.COMPLETENESS_PARTIAL
    assert ask(memory, queue_offset=1 << 40).completeness == message_pb2.COMPLETENESS_PARTIAL


def test_a_unit_that_points_to_another_message_is_damage(ask, records):
    class Swapped(MemoryShard):
        def units(self, *arguments):
            found = super().units(*arguments)
            first, second, *_ = found.answer.units
            first.commit_log_offset = second.commit_log_offset
            return found

    with pytest.raises(StoreCorruptedError):
        ask(Swapped(records))


class LightQueue(MemoryShard):
    """The messages of another queue under the name of a light queue."""

    def units(self, topic, queue_id, *arguments):
        return super().units("b_order", 1, *arguments)


def in_light_queue(record, queue_offset):
    places = f"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x01{queue_offset},5\x02"
    return replace(record, properties_bytes=places.encode())


def test_a_message_of_a_light_queue_has_the_name_and_position_of_its_own_queue(ask, records):
    rows = [in_light_queue(record, number) for number, record in enumerate(queue(records)[:3])]

    answer = ask(LightQueue(rows), topic="%LMQ%a", queue_id=0)

    assert records_in(answer.entries) == list(map(shown, rows))
    assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE


@pytest.mark.parametrize(("topic", "positions"), [("%LMQ%a", [0, 2]), ("%LMQ%c", [0, 1])])
def test_a_light_queue_that_leads_to_a_message_that_does_not_name_it_is_damage(ask, records, topic, positions):
    rows = [in_light_queue(record, at) for record, at in zip(queue(records), positions, strict=False)]

    with pytest.raises(StoreCorruptedError):
        ask(LightQueue(rows), topic=topic, queue_id=0)


def retired(offset, first):
    return OffsetOutOfRangeError("gone", offset=offset, firstOffset=first, lastOffset=1 << 50)


def test_records_that_retention_took_since_are_passed_over_in_silence(ask, records):
    """The queue follows the log's front with a delay."""
    rows = queue(records)
    first = rows[7].commit_log_offset
    gone = {row.commit_log_offset: retired(row.commit_log_offset, first) for row in rows[:7]}

    answer = ask(MemoryShard(records, damaged=gone), page_size=10)

    assert records_in(answer.entries) == list(map(shown, rows[7:10]))
    assert (answer.next_queue_offset, answer.completeness) == (10, message_pb2.COMPLETENESS_TRUNCATED)


def test_records_behind_the_end_of_the_log_are_damage_and_never_silence(ask, records):
    rows = queue(records)
    last = rows[3].commit_log_offset
    beyond = OffsetOutOfRangeError("outside", offset=last, firstOffset=0, lastOffset=last)

    with pytest.raises(StoreCorruptedError):
        ask(MemoryShard(records, damaged={last: beyond}), page_size=10)


def test_a_time_is_found_from_both_sides(fan_out, deadline, records):
    shards = Shards([MemoryShard(records, topics={"configured": 1}).shard()], fan_out)
    stored = [record.store_time_millis for record in queue(records)]
    time_millis = stored[40]

    def found(boundary, topic="b_order", queue_id=1):
        arguments = {"boundary": boundary, "broker_name": "", "deadline": deadline}
        return search_offset(shards, topic, queue_id, time_millis, **arguments).answer.queue_offset

    assert found(gateway_pb.BOUNDARY_LOWER) == stored.index(time_millis)
    assert found(gateway_pb.BOUNDARY_UPPER) == len(stored) - 1 - stored[::-1].index(time_millis)
    assert found(gateway_pb.BOUNDARY_LOWER, "configured", 0) == 0
    with pytest.raises(TopicNotFoundError):
        found(gateway_pb.BOUNDARY_LOWER, "nosuch")


def test_a_place_to_go_on_at_is_refused_where_it_may_be_that_of_another_message(
    fan_out, deadline, records, monkeypatch
):
    memory = MemoryShard(records)
    asked = (Shards([memory.shard()], fan_out), "b_order", 1, queue(records)[40].store_time_millis)

    def place(**needs):
        return queue_place(*asked, broker_name="", deadline=deadline, **needs).queue_offset

    right = place(needs_end=True)
    assert right == [record.store_time_millis for record in queue(records)].index(asked[-1])
    memory.catching_up = True
    assert place() == right
    with pytest.raises(ServiceUnavailableError, match="still being built: ask again"):
        place(needs_end=True)
    found = place_of(right, 0, 226, BuildProgress(6, 6, catching_up=False))
    for problem, is_right in (
        (UnsupportedStoreError("held elsewhere"), True),
        (StoreCorruptedError("gone"), False),
    ):
        monkeypatch.setattr(
            by_queue_offset_module, "search_offset", lambda *_, problem=problem, **__: replace(found, problem=problem)
        )
        assert place(needs_place=False) == right
        if is_right:
            assert place() == right
        else:
            with pytest.raises(StoreCorruptedError):
                place()


@pytest.mark.parametrize(
    ("boundary", "queue_offset", "complete"),
    [
        (gateway_pb.BOUNDARY_LOWER, 8, True),
        (gateway_pb.BOUNDARY_LOWER, 9, True),
        (gateway_pb.BOUNDARY_LOWER, 10, False),
        (gateway_pb.BOUNDARY_UPPER, 8, False),
        (gateway_pb.BOUNDARY_UPPER, 9, False),
    ],
)
def test_a_position_is_final_when_no_message_that_is_still_to_be_built_can_take_its_place(
    boundary, queue_offset, complete
):
    """Ten messages; the eleventh may have any time."""
    for behind in (BuildProgress(5, 6, catching_up=False), BuildProgress(6, 6, catching_up=True)):
        found = place_of(queue_offset, 0, 10, behind)
        assert outcome_of("a", found, boundary) == ShardOutcome("a", None, replace(behind, is_final=complete), complete)
    at_end = BuildProgress(6, 6, catching_up=False)
    assert outcome_of("a", place_of(queue_offset, 0, 10, at_end), boundary).complete
    assert outcome_of("a", place_of(0, 0, 0, at_end), boundary).complete


def test_topics_come_by_name_with_every_shards_queues(fan_out, tokens, deadline, records):
    memories = {"a": MemoryShard(records, topics={"configured": 2}), "b": MemoryShard(records[:50])}
    shards = Shards([memory.shard(name) for name, memory in memories.items()], fan_out)
    topics, page_token = [], ""
    while True:
        answer = list_topics(shards, tokens, 3, page_token, deadline)
        topics += answer.topics
        page_token = answer.next_page_token
        if not page_token:
            break

    assert [row.topic for row in topics] == sorted({record.topic for record in records} | {"configured"})
    queues = {row.topic: [(name, q.queue_id, q.min_offset, q.max_offset) for name, q in row.queues] for row in topics}
    assert queues["configured"] == [("a", 0, 0, 0), ("a", 1, 0, 0)]
    assert ("a", 1, 0, len(queue(records))) in queues["b_order"]
    assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE


def test_a_damaged_record_of_the_queue_is_the_answer(ask, records):
    third = queue(records)[2]
    damaged = RecordCorruptedError("rotten", commitLogOffset=third.commit_log_offset)
    memory = MemoryShard(records, damaged={third.commit_log_offset: damaged})

    with pytest.raises(RecordCorruptedError):
        ask(memory)
    assert len(ask(memory, page_size=2).entries) == 2


def test_a_body_that_the_reader_left_out_is_read_again_when_the_page_has_room(ask, records):
    class OneBody(MemoryShard):
        """Gives the first body of each answer alone."""

        def get_many(self, commit_log_offsets, body_bytes_max, deadline):
            first, *others = super().get_many(commit_log_offsets, body_bytes_max, deadline)
            for other in others:
                other.ClearField("body")
                other.body_omitted = True
            return [first, *others]

    answer = ask(OneBody(records), page_size=5)

    assert records_in(answer.entries) == list(map(shown, queue(records)[:5]))
    assert not any(entry.body_omitted for entry in answer.entries)


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
