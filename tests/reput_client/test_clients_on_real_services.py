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
    Producer,
    QueryClient,
    TopicNotFoundError,
)
from tests.support.stack import Stack, running_stack

COUNT = 150


@pytest.fixture(scope="module")
def stack(tmp_path_factory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("client") / "store") as running:
        born = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
        with Producer(running.addresses["gateway"]) as producer:
            for i in range(COUNT):
                producer.send("T", b"%d" % i, keys=["k"], queue_id=1, born_time=born, unique_key=f"u{i}", tags="A")
        running.wait_until_built()
        yield running


def test_pages_go_on_to_the_end_and_say_so(stack: Stack) -> None:
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
        assert {row.service for row in client.status()} == {"commitlog", "consumequeue", "index"}
        with pytest.raises(TopicNotFoundError):
            list(client.by_key("Nowhere", "k"))


def test_the_asyncio_clients_do_the_same(stack: Stack) -> None:
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

    asyncio.run(main())
