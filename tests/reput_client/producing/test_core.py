"""A gateway without a place for a stream: both producers send with unary calls and come back to a stream."""

import asyncio
import contextlib

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import AsyncProducer, DeliveryUnknownError, InvalidMessageError, Producer, ProducerClosedError
from reput_client.producing import core
from reput_client.producing.futures import Settlement
from reput_client.producing.settings import ProducerSettings
from reput_client.threads_and_loops import LoopSignal, run_blocking
from tests.reput_client.fake_gateway import BREAK, HANG, LOST, OK, FakeGateway, fake_gateway, refusal
from tests.reput_client.producing.test_producer import BUSY, FLUSH_FAILED, QUICK
from tests.support.waiting import wait_until

NO_PLACE = refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "RESOURCE_BUSY", retry_seconds=1)
BAD = refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE", {"field": "topic", "index": "3"})
OPTIONS = {"retry": QUICK, "linger_millis": 1}


def send_all(gateway: FakeGateway, bodies: list[bytes], **options: object) -> list[BaseException | None]:
    """With the producer of threads: the error of each message."""
    with Producer(gateway.address, **{**OPTIONS, **options}) as sender:
        made = [sender.send("T", body) for body in bodies]
        return [future.exception(60) for future in made]


def asend_all(gateway: FakeGateway, bodies: list[bytes], **options: object) -> list[BaseException | None]:
    """With the producer of asyncio."""

    async def main() -> list[BaseException | None]:
        async with AsyncProducer(gateway.address, **{**OPTIONS, **options}) as sender:
            made = [await sender.send("T", body) for body in bodies]
            outcomes = await asyncio.gather(*made, return_exceptions=True)
        return [outcome if isinstance(outcome, BaseException) else None for outcome in outcomes]

    return asyncio.run(main())


BOTH = pytest.mark.parametrize("send", [send_all, asend_all])


@BOTH
def test_the_65th_producer_sent_nothing(send) -> None:
    bodies = [b"%d" % number for number in range(100)]
    with fake_gateway() as gateway:
        gateway.stream_refusal = NO_PLACE
        assert send(gateway, bodies, batch_count_max=10) == [None] * 100
        assert gateway.bodies() == bodies
        assert gateway.unary_count >= 10
        assert gateway.streams == 1


def test_a_stream_is_tried_again_later(monkeypatch) -> None:
    monkeypatch.setattr(core, "UNARY_SECONDS", 0.05)
    with fake_gateway() as gateway:
        gateway.stream_refusal = NO_PLACE
        with Producer(gateway.address, **OPTIONS) as sender:
            sender.send_and_wait("T", b"first")
            assert gateway.unary_count == 1
            gateway.stream_refusal = None
            wait_until(lambda: sender.send_and_wait("T", b"next") and gateway.streams >= 2, "a stream was tried again")
            unary_count = gateway.unary_count
            for _ in range(5):
                sender.send_and_wait("T", b"on the stream")
            assert gateway.unary_count == unary_count


def test_a_stream_is_tried_again_later_with_asyncio(monkeypatch) -> None:
    monkeypatch.setattr(core, "UNARY_SECONDS", 0.05)

    async def main(gateway: FakeGateway) -> None:
        async with AsyncProducer(gateway.address, **OPTIONS) as sender:
            await sender.send_and_wait("T", b"first")
            assert gateway.unary_count == 1
            gateway.stream_refusal = None
            for _ in range(10_000):
                await sender.send_and_wait("T", b"next")
                if gateway.streams >= 2:
                    break
            unary_count = gateway.unary_count
            for _ in range(5):
                await sender.send_and_wait("T", b"on the stream")
            assert gateway.unary_count == unary_count

    with fake_gateway() as gateway:
        gateway.stream_refusal = NO_PLACE
        asyncio.run(main(gateway))


@BOTH
@pytest.mark.parametrize("trouble", [LOST, BREAK, BUSY, FLUSH_FAILED])
def test_trouble_of_unary_calls_is_tried_again_and_stored_once(send, trouble) -> None:
    bodies = [b"%d" % number for number in range(50)]
    with fake_gateway(OK, trouble, OK, trouble) as gateway:
        gateway.stream_refusal = NO_PLACE
        assert send(gateway, bodies, batch_count_max=5) == [None] * 50
        assert sorted(gateway.bodies()) == sorted(bodies)


@BOTH
def test_a_bad_message_fails_alone_in_a_unary_call_too(send) -> None:
    with fake_gateway(BAD) as gateway:
        gateway.stream_refusal = NO_PLACE
        errors = send(gateway, [b"%d" % number for number in range(6)], linger_millis=200)
        assert [type(error) for error in errors] == [type(None)] * 3 + [InvalidMessageError] + [type(None)] * 2
        assert gateway.bodies() == [b"0", b"1", b"2", b"4", b"5"]


@BOTH
def test_a_unary_call_without_an_answer_ends_in_time(send) -> None:
    with fake_gateway(HANG, HANG, HANG, HANG) as gateway:
        gateway.stream_refusal = NO_PLACE
        errors = send(gateway, [b"x"], request_seconds_max=0.1, delivery_seconds_max=0.25)
        gateway.released.set()
    assert [type(error) for error in errors] == [DeliveryUnknownError]


@BOTH
def test_close_ends_a_unary_call_that_has_no_answer(send) -> None:
    with fake_gateway(HANG) as gateway:
        gateway.stream_refusal = NO_PLACE
        if send is send_all:
            sender = Producer(gateway.address, **OPTIONS)
            future = sender.send("T", b"x")
            gateway.wait_for(lambda: gateway.unary_count)
            sender.close(0.05)
            assert isinstance(future.exception(0), DeliveryUnknownError)
        else:

            async def main() -> None:
                sender = AsyncProducer(gateway.address, **OPTIONS)
                future = await sender.send("T", b"x")
                await asyncio.to_thread(gateway.wait_for, lambda: gateway.unary_count)
                await sender.close(0.05)
                assert isinstance(future.exception(), DeliveryUnknownError)

            asyncio.run(main())
        gateway.released.set()


class AnswersEachCall:
    """A transport whose unary calls are answered at once; notes which messages have a receipt when a call is made."""

    lock = contextlib.nullcontext()

    def __init__(self) -> None:
        self.settlements: list[Settlement] = []
        self.settled_at_calls: list[list[bool]] = []

    def signal(self) -> LoopSignal:
        return LoopSignal()

    async def append(self, _stream: core.Stream, _request: bytes, _seconds: float) -> pb.AppendMessageStreamResponse:
        self.settled_at_calls.append([each.is_settled(0) for each in self.settlements])
        return pb.AppendMessageStreamResponse(results=[message_pb2.AppendResult()])


def test_a_request_was_sent_before_the_refusal_of_the_one_before_it_was_read() -> None:
    transport = AnswersEachCall()
    producer = core.ProducerCore(transport, ProducerSettings(batch_count_max=1))
    transport.settlements = [producer.add(b"x", urgent=False)[0] for _ in range(3)]
    producer.begin_close()
    run_blocking(producer._exchange_unary, core.Stream(unary_until=float("inf")))
    assert transport.settled_at_calls == [[False, False, False], [True, False, False], [True, True, False]]


class OpensLate:
    """A transport on which a stream opens only when `close` has given up waiting; notes the requests that it then takes."""

    lock = contextlib.nullcontext()

    def __init__(self) -> None:
        self.producer: core.ProducerCore | None = None
        self.requests: list[bytes | None] = []

    def signal(self) -> LoopSignal:
        return LoopSignal()

    async def wait_for_end(self, _seconds: float | None) -> bool:
        return False

    async def exchange(self, stream: core.Stream) -> None:
        assert self.producer is not None
        await self.producer.close(0.0)
        self.requests.append(await self.producer.next_request(stream))

    async def close_channel(self) -> None:
        pass


def test_a_stream_that_opened_after_close_had_given_up_took_requests() -> None:
    transport = OpensLate()
    transport.producer = producer = core.ProducerCore(transport, ProducerSettings())
    settlement, slot = producer.add(b"x", urgent=True)
    run_blocking(producer.run)
    assert transport.requests == [None]
    assert isinstance(settlement.error(slot), ProducerClosedError), "it was not sent, so it is not stored"
