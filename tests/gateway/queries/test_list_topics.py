"""ListTopics beside the names themselves: all, one, or those that hold a text, page by page."""

import pytest

from gateway.ports.shards import Shards
from gateway.queries.completeness import Completeness
from gateway.queries.limits import PAGE_BYTES_MAX
from gateway.queries.list_topics import TopicChoice, list_topics
from gateway.queries.page_token import PageTokens
from store.errors import InvalidArgumentError, InvalidPageTokenError, PermissionDeniedError, ServiceUnavailableError
from tests.gateway.memory_shard import MemoryShard

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
    down = MemoryShard(records, failures={"queue_counts": ServiceUnavailableError("down")})
    sound = MemoryShard(records, topics=dict.fromkeys(NAMES, 1))

    answer = list_topics(
        Shards([sound.shard("broker-a"), down.shard("broker-b")], fan_out), PageTokens("s"), 0, "", deadline
    )

    assert answer.completeness is Completeness.PARTIAL
    assert [outcome.error is None for outcome in answer.outcomes] == [True, False]
    assert set(NAMES) <= {row.topic for row in answer.topics}
    with pytest.raises(ServiceUnavailableError):
        list_topics(Shards([down.shard()], fan_out), PageTokens("s"), 0, "", deadline)


def test_a_page_ends_before_its_bytes_are_too_many(fan_out, deadline) -> None:
    memory = MemoryShard([], topics={f"t{number:02d}": 30_000 for number in range(4)})
    shards = Shards([memory.shard()], fan_out)

    first = list_topics(shards, PageTokens("s"), 0, "", deadline)

    assert 0 < len(first.topics) < 4
    assert sum(row.size_bytes for row in first.topics) <= PAGE_BYTES_MAX
    assert names(shards, deadline, TopicChoice(), page_size=0) == sorted(memory.topics)
