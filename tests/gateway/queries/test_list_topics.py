"""ListTopics beside the names themselves: all, one, or those that hold a text, page by page."""

import tracemalloc

import pytest

from gateway.ports.shards import Shards
from gateway.queries import list_topics as list_topics_module
from gateway.queries.list_topics import TopicChoice, list_topics
from gateway.queries.page import PAGE_BYTES_MAX, PageTokens
from reput.message.v1 import message_pb2
from store.errors import (
    InvalidArgumentError,
    InvalidPageTokenError,
    PermissionDeniedError,
    ServiceUnavailableError,
    UnsupportedStoreError,
)
from tests.gateway.memory_shard import MemoryShard, queue_of

NAMES = ["Orders", "orders-eu", "ORDERS_us", "Payments", "订单", "%RETRY%orders"]


@pytest.fixture
def shards(records, fan_out) -> Shards:
    return Shards([MemoryShard(records, topics=dict.fromkeys(NAMES, 4)).shard()], fan_out)


def names(shards, deadline, choice: TopicChoice, page_size: int = 2) -> list[str]:
    seen, token = [], ""
    while True:
        answer = list_topics(shards, PageTokens("s"), page_size, token, deadline, choice)
        seen += [row.topic for row in answer.topics]
        token = answer.next_page_token
        if not token:
            return seen


@pytest.mark.parametrize("text", ["", "orders", "ORD", "%", "b_", "订", "nobody"])
def test_a_text_narrows_the_list_on_every_page(shards, records, deadline, text) -> None:
    everything = sorted({record.topic for record in records} | set(NAMES))
    assert names(shards, deadline, TopicChoice(name_contains=text)) == [
        name for name in everything if text.lower() in name.lower()
    ]


@pytest.mark.parametrize("topic", ["Orders", "b_log", "orders", "nobody"])
def test_one_topic_by_its_whole_name(shards, records, deadline, topic) -> None:
    there = {record.topic for record in records} | set(NAMES)
    assert names(shards, deadline, TopicChoice(topic)) == [topic] * (topic in there)


def test_one_topic_has_all_its_queues(shards, records, deadline) -> None:
    (row,) = list_topics(shards, PageTokens("s"), 0, "", deadline, TopicChoice("b_log")).topics
    queues = {queue.queue_id: (queue.min_offset, queue.max_offset) for _, queue in row.queues}
    wanted: dict[int, list[int]] = {}
    for record in records:
        if record.topic == "b_log":
            wanted.setdefault(record.queue_id, []).append(record.queue_offset)
    assert queues == {queue_id: (min(offsets), max(offsets) + 1) for queue_id, offsets in wanted.items()}


def test_a_token_is_of_one_filter(shards, deadline) -> None:
    token = list_topics(shards, PageTokens("s"), 1, "", deadline, TopicChoice(name_contains="o")).next_page_token
    assert list_topics(shards, PageTokens("s"), 1, token, deadline, TopicChoice(name_contains="o")).topics
    with pytest.raises(InvalidPageTokenError):
        list_topics(shards, PageTokens("s"), 1, token, deadline)


def test_a_topic_that_may_not_be_seen_is_none(records, fan_out, deadline) -> None:
    memory = MemoryShard(records, failures={"list_queues": PermissionDeniedError("not yours")})
    assert names(Shards([memory.shard()], fan_out), deadline, TopicChoice("b_log")) == []


def test_what_can_be_no_name(deadline) -> None:
    with pytest.raises(InvalidArgumentError):
        TopicChoice("a/b")


def test_a_shard_that_does_not_answer_makes_the_list_partial_and_all_of_them_an_error(
    records, fan_out, deadline
) -> None:
    down = MemoryShard(records, failures={"list_topics": ServiceUnavailableError("down")})
    sound = MemoryShard(records, topics=dict.fromkeys(NAMES, 1))

    answer = list_topics(
        Shards([sound.shard("broker-a"), down.shard("broker-b")], fan_out), PageTokens("s"), 0, "", deadline
    )

    assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert [outcome.error is None for outcome in answer.outcomes] == [True, False]
    assert set(NAMES) <= {row.topic for row in answer.topics}
    with pytest.raises(ServiceUnavailableError):
        list_topics(Shards([down.shard()], fan_out), PageTokens("s"), 0, "", deadline)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> int:
    """Pages have fewer bytes than they may have, so that few queues fill many of them."""
    bytes_max = PAGE_BYTES_MAX // 16
    monkeypatch.setattr(list_topics_module, "PAGE_BYTES_MAX", bytes_max)
    return bytes_max


def test_a_page_ends_before_its_bytes_are_too_many(small_pages, fan_out, deadline) -> None:
    memory = MemoryShard([], topics={f"t{number:02d}": 100 for number in range(90)})
    shards = Shards([memory.shard()], fan_out)

    first = list_topics(shards, PageTokens("s"), 1000, "", deadline)

    assert 0 < len(first.topics) < 90
    assert sum(row.size_bytes for row in first.topics) <= small_pages
    assert names(shards, deadline, TopicChoice(), page_size=1000) == sorted(memory.topics)


class ManyQueues(MemoryShard):
    """A shard whose topic `many` has 5,000 queues with files."""

    def list_queues(self, topic, deadline):
        return [queue_of("many", queue_id, 0, 1) for queue_id in range(5_000)]


def test_a_configured_queue_count_is_a_number_and_costs_no_memory(records, fan_out, deadline) -> None:
    """A foreign record, or a foreign topics.json, may state any number of 32 bits."""
    topics = {"hostile": (1 << 31) - 1, "large": 10**9, "sound": 3}
    shards = Shards([MemoryShard(records, topics=topics).shard()], fan_out)
    tracemalloc.start()
    try:
        answer = list_topics(shards, PageTokens("s"), 0, "", deadline)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    rows = {row.topic: row for row in answer.topics}
    assert {name: rows[name].queue_count for name in topics} == topics
    assert {name: len(rows[name].queues) for name in topics} == {"hostile": 1024, "large": 1024, "sound": 3}
    assert {record.topic for record in records} <= rows.keys()
    assert peak_bytes < 4 << 20


def test_a_topic_with_more_queues_than_fit_a_page_goes_on_with_the_next(small_pages, fan_out, deadline) -> None:
    memory = ManyQueues([], topics={"many": 5, "zz": 1})
    shards = Shards([memory.shard("broker-a"), memory.shard("broker-b")], fan_out)
    seen: list[tuple[str, str, int]] = []
    token, page_count = "", 0
    while True:
        answer = list_topics(shards, PageTokens("s"), 0, token, deadline)
        assert sum(row.size_bytes for row in answer.topics) <= small_pages
        assert answer.topics[0].queue_count == 10_000 or answer.topics[0].topic == "zz"
        seen += [(row.topic, name, queue.queue_id) for row in answer.topics for name, queue in row.queues]
        page_count += 1
        token = answer.next_page_token
        if not token:
            break

    assert page_count > 2
    names = ("broker-a", "broker-b")
    expected = [("many", name, queue_id) for name in names for queue_id in range(5_000)]
    assert seen == [*expected, *(("zz", name, 0) for name in names)]


def test_many_topics_with_huge_counts_cost_a_page_of_queues(fan_out, deadline) -> None:
    topics = {f"t{number:04d}": (1 << 31) - 1 for number in range(1_000)}
    shards = Shards([MemoryShard([], topics=topics).shard()], fan_out)
    tracemalloc.start()
    try:
        answer = list_topics(shards, PageTokens("s"), 1000, "", deadline)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert 0 < len(answer.topics) < 100
    assert answer.next_page_token
    assert peak_bytes < 32 << 20


def test_a_token_inside_a_topic_that_is_gone_cuts_no_other_topic(small_pages, fan_out, deadline) -> None:
    many = ManyQueues([], topics={"many": 5, "zz": 5_000})
    shards = Shards([many.shard("broker-a")], fan_out)
    token = list_topics(shards, PageTokens("s"), 1, "", deadline).next_page_token
    later = Shards([MemoryShard([], topics={"zz": 3}).shard("broker-a")], fan_out)

    (row,) = list_topics(later, PageTokens("s"), 1, token, deadline).topics

    assert (row.topic, [queue.queue_id for _, queue in row.queues]) == ("zz", [0, 1, 2])


def test_a_token_inside_a_shard_that_is_gone_cuts_no_other_shard(small_pages, fan_out, deadline) -> None:
    many = ManyQueues([], topics={"many": 5})
    token = list_topics(Shards([many.shard("broker-a")], fan_out), PageTokens("s"), 1, "", deadline).next_page_token
    later = Shards([MemoryShard([], topics={"many": 3}).shard("broker-b")], fan_out)

    (row,) = list_topics(later, PageTokens("s"), 1, token, deadline).topics

    assert [(name, queue.queue_id) for name, queue in row.queues] == [("broker-b", queue_id) for queue_id in range(3)]


def test_a_shard_that_knows_how_topics_are_configured_lists_those(records, fan_out, deadline) -> None:
    shard = MemoryShard(records, {"Fresh": 2}).shard()
    answer = list_topics(Shards([shard], fan_out), PageTokens("s"), 0, "", deadline, TopicChoice("Fresh"))
    assert [(row.topic, len(row.queues)) for row in answer.topics] == [("Fresh", 2)]


def test_queues_that_were_being_built_made_a_list_that_called_itself_complete(records, fan_out, deadline) -> None:
    """A Spark batch up to `latest` ended where they were, and reported success."""
    memory = MemoryShard(records, {"Orders": 4}, catching_up=True, built_offset=0)
    answer = list_topics(Shards([memory.shard()], fan_out), PageTokens("s"), 100, "", deadline)
    assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
    (outcome,) = answer.outcomes
    assert outcome.progress is not None
    assert (outcome.complete, outcome.progress.catching_up) == (False, True)
    memory.catching_up = False
    answer = list_topics(Shards([memory.shard()], fan_out), PageTokens("s"), 100, "", deadline)
    assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE


def test_queues_that_are_not_served_were_listed_with_wrong_ends_and_complete(records, fan_out, deadline) -> None:
    class Hiding(MemoryShard):
        def list_queues(self, topic, deadline):
            if topic == "batch":
                raise UnsupportedStoreError("batch is in batch queues")
            return [*super().list_queues(topic, deadline), queue_of("batch", 1, 2, 5, "batch is in batch queues")]

    shards = Shards([Hiding(records, topics={"batch": 4, "plain": 2}).shard()], fan_out)
    answer = list_topics(shards, PageTokens("s"), 0, "", deadline)
    assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
    (outcome,) = answer.outcomes
    assert isinstance(outcome.error, UnsupportedStoreError)
    assert "batch queues" in outcome.error.message
    queues = {row.topic: [(queue.min_offset, queue.max_offset) for _, queue in row.queues] for row in answer.topics}
    assert queues["batch"] == [(0, 0), (2, 5), (0, 0), (0, 0)]
    assert len(queues["plain"]) == 2
    alone = list_topics(shards, PageTokens("s"), 0, "", deadline, TopicChoice(topic="batch"))
    assert alone.topics == tuple(row for row in answer.topics if row.topic == "batch")
    assert alone.completeness == message_pb2.COMPLETENESS_PARTIAL
    assert [str(each.error) for each in alone.outcomes] == [str(outcome.error)]
    narrow = list_topics(shards, PageTokens("s"), 0, "", deadline, TopicChoice(name_contains="plain"))
    assert narrow.completeness == message_pb2.COMPLETENESS_COMPLETE


def test_a_topic_whose_shard_serves_no_queues_and_gives_no_ranges_says_why(records, deadline, fan_out) -> None:
    class Refusing(MemoryShard):
        def list_queues(self, topic, deadline):
            if topic == "batch":
                raise UnsupportedStoreError("batch is in batch queues")
            return super().list_queues(topic, deadline)

    shards = Shards([Refusing(records, topics={"batch": 4}).shard()], fan_out)
    with pytest.raises(UnsupportedStoreError, match="batch queues"):
        list_topics(shards, PageTokens("s"), 0, "", deadline, TopicChoice(topic="batch"))
