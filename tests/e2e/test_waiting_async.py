"""Transactions, recalls, requests and replies of the asyncio producers, over a whole installation."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace

import pytest

from reput_client import (
    AsyncConsumer,
    AsyncProducer,
    AsyncQueryClient,
    AsyncTransactionProducer,
    NewMessage,
    ScheduledMessageNotFoundError,
    TransactionNotFoundError,
    TransactionResolution,
)
from reput_client.consuming.received_message import ReceivedMessage
from tests.support.stack import HostedStack, hosted_stack

SECONDS_MAX = 60  # the most that a request may wait for its reply
SETTINGS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(8 << 20),
    "REPUT_INDEX_HASH_SLOT_COUNT": "1000",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "4000",
    "REPUT_SCHEDULE_TRANSACTION_TIMEOUT_SECONDS": "0.5",
    "REPUT_SCHEDULE_TRANSACTION_CHECK_INTERVAL_SECONDS": "0.5",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("store"), settings=SETTINGS) as running:
        yield running


async def taken(stack: HostedStack, topic: str, count: int) -> list[ReceivedMessage]:
    """The first messages of a topic for a new group."""
    found: list[ReceivedMessage] = []
    async with AsyncConsumer(stack.addresses["gateway"], f"g-{topic}", {topic: "*"}) as consumer:
        while len(found) < count and (delivery := await consumer.take(SECONDS_MAX)) is not None:
            found.append(delivery.message)
            await delivery.ack()
    return found


def test_a_block_commits_at_its_end_and_a_checker_that_is_a_coroutine_settles_what_hangs(stack: HostedStack) -> None:
    async def check(message: ReceivedMessage) -> TransactionResolution:
        await asyncio.sleep(0)  # it is a coroutine
        return TransactionResolution.COMMIT if message.body == b"hangs" else TransactionResolution.ROLLBACK

    async def run() -> None:
        target = stack.addresses["gateway"]
        async with AsyncTransactionProducer(target, topics=["Async"], checker=check) as producer:
            async with producer.transaction(NewMessage("Async", b"block")):
                pass
            with pytest.raises(KeyError):
                async with producer.transaction(NewMessage("Async", b"failed")):
                    raise KeyError
            ended = await producer.send_half(NewMessage("Async", b"by hand"))
            assert (await ended.commit()) is not None
            with pytest.raises(TransactionNotFoundError):
                await ended.rollback()
            await producer.send_half(NewMessage("Async", b"hangs"))
            await producer.send_half(NewMessage("Async", b"refused"))
            received = await taken(stack, "Async", 3)
        assert sorted(message.body for message in received) == [b"block", b"by hand", b"hangs"]

    asyncio.run(run())


def test_an_async_producer_recalls_asks_and_replies(stack: HostedStack) -> None:
    async def serve(producer: AsyncProducer) -> None:
        async with AsyncConsumer(stack.addresses["gateway"], "helpers", {"AsyncQuestions": "*"}) as consumer:
            delivery = await consumer.take(SECONDS_MAX)
            assert delivery is not None
            await producer.reply(delivery.message, b"re: " + delivery.message.body, properties={"colour": "red"})
            await delivery.ack()

    async def run() -> None:
        async with AsyncProducer(stack.addresses["gateway"]) as producer:
            receipt = await producer.send_and_wait("AsyncLater", b"x", delay=timedelta(minutes=10))
            assert await producer.recall(receipt) == receipt.unique_key
            with pytest.raises(ScheduledMessageNotFoundError):
                await producer.recall(receipt.recall_handle)
            helper = asyncio.create_task(serve(producer))
            reply = await producer.request(NewMessage("AsyncQuestions", b"?"), timeout_seconds=SECONDS_MAX)
            assert (reply.body, reply.properties["colour"]) == (b"re: ?", "red")
            await helper
            with pytest.raises(ValueError, match="no request"):
                await producer.reply(SimpleNamespace(properties={}), b"x")

    asyncio.run(run())


def test_an_async_query_client_lists_and_ends_what_waits(stack: HostedStack) -> None:
    async def run() -> None:
        target = stack.addresses["gateway"]
        async with AsyncTransactionProducer(target) as producer:
            half = await producer.send_half(NewMessage("AsyncListed", b"x"), check_after_seconds=SECONDS_MAX)
        async with AsyncQueryClient(target) as queries:
            while not (listed := [each async for each in queries.pending_transactions("AsyncListed")]):
                await asyncio.sleep(0.02)  # the schedule service follows the log
            assert [each.transaction_id for each in listed] == [half.receipt.transaction_id]
            receipt = await queries.end_transaction(listed[0].transaction_id, TransactionResolution.COMMIT)
            assert receipt is not None
            assert [message.body async for message in queries.by_unique_key("AsyncListed", receipt.unique_key)] == [
                b"x"
            ]

    asyncio.run(run())
