"""What consumers of `reput_client` attempt: what their programs got, whatever they had fetched ahead."""

import asyncio

import pytest

from reput_client import AsyncConsumer, Consumer, ConsumerSettings
from tests.reput_client.consuming.support import WAIT_SECONDS, bodies_of, fresh, in_flight_count, make_group, send
from tests.support.stack import Stack
from tests.support.waiting import wait_until

COUNT = 8
HELD = pytest.mark.parametrize("invisible_seconds", [None, 30], ids=["renewed", "timed"])


def in_order(first: int, attempt: int = 1) -> list[tuple[bytes, int]]:
    return [(b"%d" % number, attempt) for number in range(first, COUNT)]


@HELD
def test_programs_that_took_one_message_and_closed_made_dead_letters_that_no_handler_saw(
    stack: Stack, invisible_seconds: float | None
) -> None:
    topic, group = fresh("Closes"), fresh("closes")
    make_group(stack, group, delivery_attempts_max=3)
    send(stack, topic, [b"%d" % number for number in range(COUNT)], message_group="same")
    settings = ConsumerSettings(invisible_seconds=invisible_seconds)
    handled = []
    for _ in range(COUNT):
        with Consumer(stack.addresses["gateway"], group, {topic: "*"}, settings=settings) as consumer:
            delivery = consumer.take(WAIT_SECONDS)
            assert delivery is not None
            handled.append((delivery.message.body, delivery.delivery_attempt))
            delivery.ack().result(WAIT_SECONDS)
    assert handled == in_order(0)
    assert bodies_of(stack, f"%DLQ%{group}") == []


@HELD
def test_asyncio_programs_that_took_one_message_and_closed_left_the_others_at_their_first_attempt(
    stack: Stack, invisible_seconds: float | None
) -> None:
    topic, group = fresh("AsyncCloses"), fresh("async-closes")
    make_group(stack, group, delivery_attempts_max=3)
    send(stack, topic, [b"%d" % number for number in range(COUNT)], message_group="same")
    settings = ConsumerSettings(invisible_seconds=invisible_seconds)
    handled = []

    async def take_one() -> None:
        async with AsyncConsumer(stack.addresses["gateway"], group, {topic: "*"}, settings=settings) as consumer:
            delivery = await consumer.take(WAIT_SECONDS)
            assert delivery is not None
            handled.append((delivery.message.body, delivery.delivery_attempt))
            await delivery.ack()

    for _ in range(COUNT):
        asyncio.run(take_one())
    assert handled == in_order(0)
    assert bodies_of(stack, f"%DLQ%{group}") == []


@HELD
def test_a_program_that_died_over_its_first_messages_had_attempted_all_that_it_had_fetched(
    stack: Stack, invisible_seconds: float | None
) -> None:
    topic, group = fresh("Dies"), fresh("dies")
    send(stack, topic, [b"%d" % number for number in range(COUNT)], message_group="same")
    settings = ConsumerSettings(invisible_seconds=invisible_seconds)
    with Consumer(stack.addresses["gateway"], group, {topic: "*"}, settings=settings) as consumer:
        first, second = (consumer.take(WAIT_SECONDS) for _ in range(2))
        assert first is not None
        assert second is not None
        first.ack().result(WAIT_SECONDS)
        # What is in flight when the process dies counts: the message that it has, and none that was fetched ahead.
        assert in_flight_count(stack, group) == 1


def test_what_a_program_took_and_did_not_settle_counts_when_it_closes(stack: Stack) -> None:
    topic, group = fresh("Unsettled"), fresh("unsettled")
    make_group(stack, group, delivery_attempts_max=3)
    send(stack, topic, [b"0"])
    attempts = []
    for _ in range(3):
        with Consumer(stack.addresses["gateway"], group, {topic: "*"}) as consumer:
            delivery = consumer.take(WAIT_SECONDS)
            assert delivery is not None
            attempts.append(delivery.delivery_attempt)
    assert attempts == [1, 2, 3]
    wait_until(lambda: bodies_of(stack, f"%DLQ%{group}") == [b"0"], "the dead letter")
