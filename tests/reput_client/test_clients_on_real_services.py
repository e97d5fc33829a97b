"""Queries and the asyncio clients against the real services."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from reput_client import (
    AsyncProducer,
    AsyncQueryClient,
    Boundary,
    Completeness,
    InvalidMessageError,
    MatchedBy,
    Producer,
    QueryClient,
    SearchStop,
    TopicNotFoundError,
)
from reput_client.querying import queries
from tests.support.stack import HostedStack, hosted_stack

COUNT = 150


@pytest.fixture(scope="module")
def stack(tmp_path_factory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("client") / "store") as running:
        born = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
        with Producer(running.addresses["gateway"]) as producer:
            for i in range(COUNT):
                producer.send("T", b"%d" % i, keys=["k"], queue_id=1, born_time=born, unique_key=f"u{i}", tags="A")
        running.wait_until_built()
        yield running


def test_pages_go_on_to_the_end_and_say_so(stack: HostedStack) -> None:
    with QueryClient(stack.addresses["gateway"], require_complete=True) as client:
        found = client.by_key("T", "k", page_size=40)
        assert found.completeness is Completeness.TRUNCATED
        messages = list(found)
        assert [message.body for message in messages] == [b"%d" % i for i in reversed(range(COUNT))]
        assert found.completeness is Completeness.COMPLETE
        assert max(len(page.items) for page in client.by_key("T", "k", page_size=40).pages()) == 40
        first = messages[-1]
        assert (first.topic, first.queue_id, first.queue_offset, first.tags) == ("T", 1, 0, "A")
        assert (first.keys, first.unique_key) == (("k",), "u0")
        assert first.born_time == datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
        later = first.store_time + timedelta(days=1)
        assert list(client.by_key("T", "k", begin=later)) == []
        assert client.by_id(first.offset_msg_id) == first
        assert list(client.by_unique_key("T", "u0")) == [first]
        assert client.download_body(first) == b"0"
        assert [message.body for message in client.by_offset("T", 1, 140)] == [b"%d" % i for i in range(140, COUNT)]
        few = client.by_offset("T", 1, 5, max_messages=50, page_size=20)
        assert [message.queue_offset for message in few] == list(range(5, 55))
        assert few.completeness is Completeness.TRUNCATED
        assert client.search_offset("T", 1, later, Boundary.LOWER).queue_offset == COUNT
        (topic,) = client.topics()
        assert [(queue.queue_id, queue.max_offset) for queue in topic.queues if queue.max_offset] == [(1, COUNT)]
        assert {row.service for row in client.status()} == {
            "commitlog",
            "consumequeue",
            "index",
            "consumer",
            "schedule",
        }
        with pytest.raises(TopicNotFoundError):
            list(client.by_key("Nowhere", "k"))


def test_what_no_index_knows_is_searched_for_page_after_page(stack: HostedStack) -> None:
    bodies = [b"%d" % i for i in range(COUNT)]
    with QueryClient(stack.addresses["gateway"], require_complete=True) as client:
        found = client.search("T", body="7", tags=["A", "B"], page_size=10)
        assert [message.body for message in found] == [body for body in bodies if b"7" in body]
        assert found.completeness is Completeness.COMPLETE
        assert [message.body for message in client.search("T", body=b"14", newest_first=True, queue_id=1)] == [
            body for body in reversed(bodies) if b"14" in body
        ]
        assert [m.body for m in client.search("T", cel='message.unique_key == "u33"')] == [b"33"]
        assert list(client.search("T", tags=["B"])) == []
        counted = client.search("T", queue_id=1, end_queue_offset=100, page_size=1000, max_records=30, count_total=True)
        pages = list(counted.pages())
        assert {page.scan.total_record_count for page in pages} == {COUNT}
        outside = COUNT - 100
        assert [page.scan.passed_record_count - outside for page in pages] == [30, 60, 90, 100]
        assert [page.scan.stop for page in pages] == [SearchStop.RECORDS] * 3 + [SearchStop.END]
        ranges = [each for page in pages for each in page.scan.ranges]
        assert [(each.begin_offset, each.end_offset) for each in ranges] == [(0, 30), (30, 60), (60, 90), (90, 100)]
        assert [message.body for page in pages for message in page.items] == bodies[:100]


def test_a_text_of_any_kind_is_found_and_how_is_explained(stack: HostedStack) -> None:
    with QueryClient(stack.addresses["gateway"], require_complete=True) as client:
        (first,) = client.by_unique_key("T", "u0")
        (match,) = client.find(first.offset_msg_id)
        assert (match.message, match.matched_by) == (first, MatchedBy.OFFSET_MSG_ID)
        (match,) = client.find("u0")
        assert (match.message, match.matched_by) == (first, MatchedBy.UNIQUE_KEY)
        by_key = client.find("k", "T", page_size=40)
        assert [match.message.body for match in by_key] == [b"%d" % i for i in reversed(range(COUNT))]
        assert by_key.completeness is Completeness.COMPLETE
        assert list(client.find("nobody")) == []
        assert list(client.find("u0", end=first.store_time - timedelta(days=1))) == []

        explained = client.explain(queries.by_key("T", "k", page_size=40))
        assert (explained.message_count, explained.completeness) == (40, Completeness.TRUNCATED)
        (shard,) = explained.shards
        assert shard.error is None
        assert [(lookup.topic, lookup.key) for lookup in shard.lookups] == [("T", "k")]
        assert {step.name for step in shard.steps} >= {"index.search", "log.read"}
        assert client.explain(queries.by_id(first.offset_msg_id)).message_count == 1
        missing = client.explain(queries.by_key("Nowhere", "k"))
        assert (type(missing.error), missing.completeness) == (TopicNotFoundError, None)


def test_the_asyncio_clients_do_the_same(stack: HostedStack) -> None:
    async def main() -> None:
        async with AsyncProducer(stack.addresses["gateway"]) as producer:
            made = [await producer.send("A", b"%d" % i, keys=["k"], queue_id=0) for i in range(300)]
            assert await producer.flush(60)
            assert [future.result().queue_offset for future in made] == list(range(300))
            bad, good = await producer.send("A", b"x", keys=["a b"]), await producer.send("A", b"y")
            with pytest.raises(InvalidMessageError):
                await bad
            assert (await good).unique_key
        await asyncio.to_thread(stack.wait_until_built)
        async with AsyncQueryClient(stack.addresses["gateway"]) as client:
            found = client.by_key("A", "k", page_size=64)
            assert [message.body async for message in found] == [b"%d" % i for i in reversed(range(300))]
            assert found.completeness is Completeness.COMPLETE
            message = await client.by_id(made[3].result().offset_msg_id)
            assert await client.download_body(message) == message.body == b"3"
            assert [match.message async for match in client.find(message.unique_key)] == [message]
            assert [each async for each in client.search("A", body=b"3", end_queue_offset=4, queue_id=0)] == [message]
            assert (await client.explain(queries.by_unique_key("A", message.unique_key))).message_count == 1

    asyncio.run(main())
