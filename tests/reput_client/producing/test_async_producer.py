"""The asyncio producer against a gateway that fails on purpose."""

import asyncio
import gc

import grpc
import pytest

from reput_client import (
    AsyncProducer,
    BufferFullError,
    DeliveryUnknownError,
    InvalidMessageError,
    ProducerClosedError,
)
from tests.reput_client.fake_gateway import BREAK, HANG, LOST, OK, FakeGateway, fake_gateway, refusal
from tests.reput_client.producing.test_producer import BUSY, FLUSH_FAILED, QUICK
from tests.support.waiting import WAIT_SECONDS_MAX


def producer(gateway: FakeGateway, **options: object) -> AsyncProducer:
    return AsyncProducer(gateway.address, **{"retry": QUICK, "linger_millis": 1, **options})


@pytest.mark.parametrize("trouble", [LOST, BREAK, BUSY, FLUSH_FAILED, HANG])
def test_trouble_is_tried_again_and_stored_once(trouble: object) -> None:
    async def main(gateway: FakeGateway) -> None:
        async with producer(gateway, batch_count_max=5, request_seconds_max=0.5) as sender:
            made = [await sender.send("T", b"%d" % i) for i in range(100)]
            receipts = [await future for future in made]
        assert sorted(gateway.bodies()) == sorted(b"%d" % i for i in range(100))
        assert len({receipt.queue_offset for receipt in receipts}) == 100

    with fake_gateway(OK, trouble, OK, trouble) as gateway:
        asyncio.run(main(gateway))


def test_the_buffer_is_bounded_and_close_says_what_became_of_each() -> None:
    async def main(gateway: FakeGateway) -> None:
        sender = producer(
            gateway, buffer_bytes_max=50_000, block_seconds_max=0.1, batch_count_max=1, in_flight_count_max=1
        )
        made = []
        with pytest.raises(BufferFullError):
            while True:
                made.append(await sender.send("T", b"x" * 10_000))
        await asyncio.to_thread(gateway.wait_for, lambda: gateway.requests)
        await sender.close(timeout_seconds=0.05)
        outcomes = [type(error) for error in await asyncio.gather(*made, return_exceptions=True)]
        assert outcomes == [DeliveryUnknownError] + [ProducerClosedError] * (len(made) - 1)
        with pytest.raises(ProducerClosedError):
            await sender.send("T", b"x")

    with fake_gateway(HANG) as gateway:
        asyncio.run(main(gateway))


def test_an_abandoned_future_does_not_call_the_message_back() -> None:
    async def main(gateway: FakeGateway) -> None:
        async with producer(gateway, linger_millis=20) as sender:
            (await sender.send("T", b"0")).cancel()
            assert (await (await sender.send("T", b"1"))).queue_offset == 1
        assert gateway.bodies() == [b"0", b"1"]

    with fake_gateway() as gateway:
        asyncio.run(main(gateway))


def test_oneway_messages_are_sent_and_nobody_complains_of_those_that_fail(caplog) -> None:
    async def main(gateway: FakeGateway) -> None:
        async with producer(gateway) as sender:
            for number in range(20):
                assert await sender.send_oneway("T", b"%d" % number) is None
        assert gateway.bodies() == [b"%d" % number for number in range(20)]
        hanging = producer(gateway)
        gateway.script.append(HANG)
        await hanging.send_oneway("T", b"lost")
        await hanging.close(timeout_seconds=0.05)
        gc.collect()

    with fake_gateway() as gateway, caplog.at_level("ERROR"):
        asyncio.run(main(gateway))
    assert not caplog.records


def test_an_idle_stream_is_closed_and_opened_again() -> None:
    async def main(gateway: FakeGateway) -> None:
        async with producer(gateway, idle_seconds_max=0.05) as sender:
            await sender.send_and_wait("T", b"0", timeout_seconds=WAIT_SECONDS_MAX)
            await asyncio.to_thread(gateway.wait_for, lambda: gateway.ended_streams == 1)
            await sender.send_and_wait("T", b"1", timeout_seconds=WAIT_SECONDS_MAX)
        assert gateway.bodies() == [b"0", b"1"]
        assert gateway.streams == 2

    with fake_gateway() as gateway:
        asyncio.run(main(gateway))


def test_callbacks_hear_of_both_outcomes_and_nobody_complains_of_what_they_heard(caplog) -> None:
    heard: list[object] = []
    bad = refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE", {"index": "1"})

    async def main(gateway: FakeGateway) -> None:
        async with producer(gateway, linger_millis=50) as sender:
            for i in range(3):
                await sender.send("T", b"%d" % i, on_delivery=lambda *outcome, i=i: heard.append((i, *outcome)))
        gc.collect()

    with fake_gateway(bad) as gateway:
        asyncio.run(main(gateway))
        assert gateway.bodies() == [b"0", b"2"]
    outcomes = {i: (receipt and receipt.queue_offset, type(error)) for i, receipt, error in heard}
    assert outcomes == {0: (0, type(None)), 1: (None, InvalidMessageError), 2: (1, type(None))}
    assert caplog.records == []
