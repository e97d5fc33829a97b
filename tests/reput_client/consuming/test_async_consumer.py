"""`AsyncConsumer` against `reput serve`: what is its own; the rules are shared with `Consumer`."""

import asyncio
import collections

import pytest

from reput_client import AsyncConsumer, ConsumerClosedError, ConsumerSettings, IllegalFilterError, ReceivedMessage, Sql
from tests.reput_client.consuming.support import WAIT_SECONDS, bodies_of, fresh, in_flight_count, make_group, send
from tests.support.stack import Stack
from tests.support.waiting import wait_until


def test_async_for_gives_each_message_once(stack: Stack) -> None:
    topic, group = fresh("AsyncOnce"), fresh("async-once")
    bodies = [b"%d" % i for i in range(200)]
    send(stack, topic, bodies)
    seen: list[bytes] = []

    async def consume() -> None:
        async with AsyncConsumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
            async for delivery in consumer:
                seen.append(delivery.message.body)
                acknowledged = delivery.ack()
                if len(seen) == len(bodies):
                    await acknowledged
                    break

    asyncio.run(asyncio.wait_for(consume(), WAIT_SECONDS))
    assert collections.Counter(seen) == collections.Counter(bodies)
    assert in_flight_count(stack, group) == 0


@pytest.mark.parametrize("error", [RuntimeError("not now"), asyncio.CancelledError("what it awaited was cancelled")])
def test_a_coroutine_that_raises_gets_the_message_again_and_run_ends_with_the_consumer(
    stack: Stack, error: BaseException
) -> None:
    topic, group = fresh("AsyncAgain"), fresh("async-again")
    send(stack, topic, [b"a", b"b"])
    attempts: list[tuple[bytes, int]] = []

    async def consume() -> None:
        consumer = AsyncConsumer(
            stack.addresses["gateway"], group, {topic: "*"}, settings=ConsumerSettings(backoff_seconds=(0.1,))
        )

        async def handle(message: ReceivedMessage) -> None:
            attempts.append((message.body, message.delivery_attempt))
            if message.body == b"a" and message.delivery_attempt == 1:
                raise error
            if len(attempts) == 3:
                await consumer.close()

        async with consumer:
            await consumer.run(handle, concurrency=4)

    asyncio.run(asyncio.wait_for(consume(), WAIT_SECONDS))
    assert sorted(attempts) == [(b"a", 1), (b"a", 2), (b"b", 1)]
    assert in_flight_count(stack, group) == 0


def test_a_fifo_group_is_consumed_in_order_under_asyncio(stack: Stack) -> None:
    topic, group = fresh("AsyncFifo"), fresh("async-fifo")
    make_group(stack, group, ordered=True, delivery_attempts_max=2)
    send(stack, topic, [b"%d" % i for i in range(10)], message_group="g")
    calls: list[bytes] = []

    async def consume() -> None:
        settings = ConsumerSettings(backoff_seconds=(0.05,))
        async with AsyncConsumer(stack.addresses["gateway"], group, {topic: "*"}, settings=settings) as consumer:

            async def handle(message: ReceivedMessage) -> None:
                calls.append(message.body)
                await asyncio.sleep(0)  # gives the others a chance to overtake
                if message.body == b"4":
                    raise RuntimeError("always")
                if message.body == b"9":
                    await consumer.close()

            await consumer.run(handle, concurrency=8)

    asyncio.run(asyncio.wait_for(consume(), WAIT_SECONDS))
    assert calls == [b"0", b"1", b"2", b"3", b"4", b"4", b"5", b"6", b"7", b"8", b"9"]
    wait_until(lambda: bodies_of(stack, f"%DLQ%{group}") == [b"4"], "the dead letter")


def test_no_more_messages_are_held_than_the_settings_say_under_asyncio(stack: Stack) -> None:
    topic, group = fresh("AsyncFew"), fresh("async-few")
    send(stack, topic, [b"%d" % i for i in range(30)])

    async def consume() -> None:
        settings = ConsumerSettings(cache_count_max=7)
        async with AsyncConsumer(stack.addresses["gateway"], group, {topic: "*"}, settings=settings) as consumer:
            held = [await consumer.take(WAIT_SECONDS) for _ in range(7)]
            assert await consumer.take(0.3) is None
            assert in_flight_count(stack, group) == 7
            assert held[0] is not None
            await held[0].ack()
            assert await consumer.take(WAIT_SECONDS) is not None

    asyncio.run(asyncio.wait_for(consume(), WAIT_SECONDS))


def test_errors_and_the_end_are_those_of_the_other_consumer(stack: Stack) -> None:
    async def consume() -> None:
        bad = AsyncConsumer(stack.addresses["gateway"], fresh("bad"), {fresh("Bad"): Sql("a = ")})
        with pytest.raises(IllegalFilterError):
            await bad.take(WAIT_SECONDS)
        await bad.close()
        consumer = AsyncConsumer(stack.addresses["gateway"], fresh("g"), {fresh("T"): "*"})
        waiting = asyncio.create_task(consumer.take())
        assert await consumer.take(0.1) is None
        await consumer.close()
        assert await waiting is None, "the end wakes those that wait"
        with pytest.raises(ConsumerClosedError):
            await consumer.take()

    asyncio.run(asyncio.wait_for(consume(), WAIT_SECONDS))
