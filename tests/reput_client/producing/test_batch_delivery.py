"""Many messages in one call: one future, taken as a whole, each with its own outcome."""

import asyncio
import concurrent.futures
import threading

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reput_client import (
    AsyncProducer,
    BatchDeliveryError,
    BufferFullError,
    DeliveryUnknownError,
    InvalidMessageError,
    NewMessage,
    Producer,
    ProducerClosedError,
)
from reput_client.errors import StoreReadOnlyError
from reput_client.producing.settings import MESSAGE_OVERHEAD_BYTES
from tests.reput_client.fake_gateway import BREAK, HANG, LOST, OK, FakeGateway, fake_gateway, refusal
from tests.reput_client.producing.test_producer import BUSY, FLUSH_FAILED, QUICK


def producer(gateway: FakeGateway, **options: object) -> Producer:
    return Producer(gateway.address, **{"retry": QUICK, "linger_millis": 1, **options})


def messages(*bodies: bytes) -> list[NewMessage]:
    return [NewMessage("T", body) for body in bodies]


def refuse_bad(request):
    bad = [i for i, message in enumerate(request.messages) if message.body.startswith(b"bad")]
    if not bad:
        return OK
    return refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE", {"index": str(bad[0]), "field": "keys"})


def test_a_batch_travels_in_one_request_with_all_its_fields() -> None:
    batch = [NewMessage("T", b"%d" % i, [f"k{i}", "all"], "A", {"p": "v"}, 2, None, None, 5) for i in range(100)]
    with fake_gateway() as gateway:
        with producer(gateway) as sender:
            receipts = sender.send_batch(iter(batch)).result(30)
        assert [len(request.messages) for request in gateway.requests] == [100]
        assert gateway.bodies() == [b"%d" % i for i in range(100)]
        first = gateway.stored[7]
        assert (list(first.keys), first.tags, dict(first.properties)) == (["k7", "all"], "A", {"p": "v"})
        assert (first.queue_id, first.flag, first.HasField("born_time")) == (2, 5, False)
        assert len(receipts) == 100
        assert [receipt.queue_offset for receipt in receipts] == list(range(100))
        assert receipts[99] == receipts[-1] == list(receipts)[99]
        assert [receipt.queue_offset for receipt in receipts[10:13]] == [10, 11, 12]
        assert len({receipt.unique_key for receipt in receipts}) == 100
        for index in (100, -101):
            with pytest.raises(IndexError):
                receipts[index]


def test_a_batch_larger_than_a_request_takes_several_and_keeps_its_order_among_others() -> None:
    with fake_gateway() as gateway:
        with producer(gateway, batch_count_max=10, batch_bytes_max=5000, linger_millis=50) as sender:
            before = sender.send("T", b"before")
            made = sender.send_batch(messages(*[b"%02d" % i for i in range(25)], b"x" * 6000, *[b"y" * 1500] * 5))
            after = sender.send("T", b"after")
            receipts = made.result(30)
            assert before.result(30).queue_offset == 0
            assert [receipt.queue_offset for receipt in receipts] == list(range(1, 32))
            assert after.result(30).queue_offset == 32
        for request in gateway.requests:
            assert len(request.messages) <= 10
            assert len(request.messages) == 1 or request.ByteSize() <= 5000 + 16


def test_no_messages_are_no_trouble() -> None:
    with fake_gateway() as gateway, producer(gateway) as sender:
        assert list(sender.send_batch([]).result(0)) == []


def test_a_bad_message_fails_alone_and_the_error_says_which() -> None:
    with fake_gateway(*[refuse_bad] * 20) as gateway, producer(gateway, batch_count_max=8) as sender:
        made = sender.send_batch(messages(*[b"bad" if i in (3, 9, 19) else b"%d" % i for i in range(20)]))
        error = made.exception(30)
        assert isinstance(error, BatchDeliveryError)
        assert sorted(error.errors) == [3, 9, 19]
        assert all(isinstance(each, InvalidMessageError) for each in error.errors.values())
        assert error.__cause__ is error.errors[3]
        assert error.metadata == {"index": "3", "failedCount": "3"}
        assert sorted(gateway.bodies()) == sorted(b"%d" % i for i in range(20) if i not in (3, 9, 19))


def test_a_refusal_of_the_whole_request_fails_its_messages_only() -> None:
    read_only = refusal(grpc.StatusCode.FAILED_PRECONDITION, "STORE_READ_ONLY")
    with fake_gateway(OK, read_only) as gateway, producer(gateway, batch_count_max=4) as sender:
        error = sender.send_batch(messages(*[b"%d" % i for i in range(12)])).exception(30)
        assert isinstance(error, BatchDeliveryError)
        assert {index: type(each) for index, each in error.errors.items()} == dict.fromkeys(
            range(4, 8), StoreReadOnlyError
        )
        assert gateway.bodies() == [b"%d" % i for i in (*range(4), *range(8, 12))]


def test_the_buffer_takes_all_of_a_batch_or_none() -> None:
    limits = {"buffer_bytes_max": 50_000, "block_seconds_max": 0.05, "batch_count_max": 2}
    with fake_gateway(HANG) as gateway:
        sender = producer(gateway, **limits)
        first = sender.send_batch(messages(*[b"x" * 10_000] * 3))
        with pytest.raises(BufferFullError):
            sender.send_batch(messages(*[b"y" * 10_000] * 3))
        with pytest.raises(BufferFullError, match="send fewer at once"):
            sender.send_batch(messages(*[b"z" * 10_000] * 6))
        gateway.wait_for(lambda: gateway.requests)
        sender.close(timeout_seconds=0.05)
        error = first.exception(0)
        assert isinstance(error, BatchDeliveryError)
        assert sorted(error.errors) == [0, 1, 2]
        assert isinstance(error.errors[0], DeliveryUnknownError)
        with pytest.raises(ProducerClosedError):
            sender.send_batch(messages(b"x"))
        sent = [message.body[:1] for request in gateway.requests for message in request.messages]
        assert set(sent) == {b"x"}


def test_a_wrong_message_keeps_the_whole_batch_at_home() -> None:
    with fake_gateway() as gateway:
        with producer(gateway) as sender:
            with pytest.raises(InvalidMessageError):
                sender.send_batch(messages(b"good", b"x" * (5 << 20)))
            for wrong in ([NewMessage("T", "text")], ["text"], "text", [("T", b"x")], 5):
                with pytest.raises(TypeError):
                    sender.send_batch(wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="NewMessage, not str"):
                sender.send_batch(["text"])  # type: ignore[list-item]
        assert gateway.stored == []


@settings(max_examples=25, deadline=None)
@given(
    script=st.lists(st.sampled_from([OK, OK, LOST, BREAK, BUSY, FLUSH_FAILED, refuse_bad]), max_size=12),
    batches=st.lists(st.lists(st.integers(1, 3000), max_size=20), min_size=1, max_size=8),
)
def test_whatever_happens_each_message_of_each_batch_is_stored_exactly_once(script: list, batches: list) -> None:
    bodies = [[b"%d/%d:" % (i, j) + b"x" * size for j, size in enumerate(sizes)] for i, sizes in enumerate(batches)]
    with fake_gateway(*script) as gateway:
        with producer(gateway, batch_count_max=7, batch_bytes_max=8000) as sender:
            made = [sender.send_batch(messages(*each)) for each in bodies]
            receipts = [future.result(60) for future in made]
        assert sorted(gateway.bodies()) == sorted(body for each in bodies for body in each)
        for of_batch, each in zip(receipts, bodies, strict=True):
            assert [gateway.stored[receipt.queue_offset].body for receipt in of_batch] == each


@pytest.mark.parametrize("trouble", [LOST, BUSY])
def test_asyncio_has_it_too(trouble: object) -> None:
    async def main(gateway: FakeGateway) -> None:
        async with AsyncProducer(gateway.address, retry=QUICK, linger_millis=1, batch_count_max=8) as sender:
            good = await sender.send_batch(messages(*[b"%d" % i for i in range(20)]))
            receipts = await good
            assert [gateway.stored[receipt.queue_offset].body for receipt in receipts] == [b"%d" % i for i in range(20)]
            assert list(await (await sender.send_batch([]))) == []
            gateway.script.extend([refuse_bad] * 8)
            with pytest.raises(BatchDeliveryError) as raised:
                await (await sender.send_batch(messages(b"a", b"bad", b"c")))
            assert sorted(raised.value.errors) == [1]
        with pytest.raises(ProducerClosedError):
            await sender.send_batch(messages(b"late"))
        assert gateway.bodies().count(b"c") == 1

    with fake_gateway(OK, trouble, OK) as gateway:
        asyncio.run(main(gateway))


def test_a_large_batch_gets_its_turn_although_small_messages_keep_coming() -> None:
    """The buffer holds 20; the batch needs 15 of them, and three threads send one by one, again and again."""
    size_bytes = 10_000 - MESSAGE_OVERHEAD_BYTES
    over = threading.Event()

    def slow(_request: object) -> str:
        over.wait(0.005)
        return OK

    with fake_gateway(*[slow] * 3000) as gateway:
        sender = producer(gateway, buffer_bytes_max=200_000, block_seconds_max=20, batch_count_max=2, linger_millis=0)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            body = b"x" * (size_bytes - 100)

            def send_on() -> None:
                while not over.is_set():
                    sender.send("T", body)

            others = [pool.submit(send_on) for _ in range(3)]
            try:
                gateway.wait_for(lambda: len(gateway.stored) >= 40)
                before = len(gateway.stored)
                made = sender.send_batch(messages(*[body] * 15))
                passed_count = len(gateway.stored) - before
            finally:
                over.set()
            for other in others:
                other.result(30)
        assert len(made.result(30)) == 15
        assert passed_count <= 60, "it waits for what was there before, not for those who come later"
        sender.close()
