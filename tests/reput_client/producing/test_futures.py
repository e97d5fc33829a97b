"""The light futures behave as the standard library's: under its own tools, and beside a plain one.

Many messages in one call: one future, taken as a whole, each with its own outcome.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reput.message.v1 import message_pb2
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
from reput_client.errors import ReputClientError, StoreReadOnlyError
from reput_client.producing.futures import DeliveryFuture, Settlement
from reput_client.producing.settings import MESSAGE_OVERHEAD_BYTES
from tests.reput_client.fake_gateway import BREAK, HANG, LOST, OK, FakeGateway, fake_gateway, refusal
from tests.reput_client.producing.test_producer import BUSY, FLUSH_FAILED, QUICK
from tests.support.waiting import WAIT_SECONDS_MAX

Making = tuple[list[Future], Callable[[], None]]


def result_of(slot: int) -> message_pb2.AppendResult:
    return message_pb2.AppendResult(queue_offset=slot, unique_key=str(slot))


def error_of(slot: int) -> ReputClientError:
    return InvalidMessageError(str(slot))


def light(count: int, failing: frozenset[int] = frozenset()) -> Making:
    settlement = Settlement()

    def settle() -> None:
        for slot in sorted(failing):
            settlement.fail({slot: error_of(slot)})
        settlement.settle([result_of(slot) for slot in range(count) if slot not in failing])

    return [DeliveryFuture(settlement, slot) for slot in range(count)], settle


def one_by_one(count: int, failing: frozenset[int] = frozenset()) -> Making:
    made = [light(1, frozenset({0} if slot in failing else ())) for slot in range(count)]
    return [futures[0] for futures, _ in made], lambda: [settle() for _, settle in made] and None


def plain(count: int, failing: frozenset[int] = frozenset()) -> Making:
    futures: list[Future] = [Future() for _ in range(count)]
    for future in futures:
        future.set_running_or_notify_cancel()

    def settle() -> None:
        for slot, future in enumerate(futures):
            if slot in failing:
                future.set_exception(error_of(slot))
            else:
                future.set_result(result_of(slot))

    return futures, settle


@pytest.fixture(params=[light, one_by_one, plain], ids=lambda make: make.__name__)
def make(request: Any) -> Callable[..., Making]:
    return request.param


def test_a_result_is_given_to_who_waits_and_to_who_comes_later(make) -> None:
    (_, future), settle = make(2)
    assert not future.done()
    assert future.running()
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(future.result(WAIT_SECONDS_MAX)))
    thread.start()
    settle()
    thread.join()
    assert got == [future.result()]
    assert future.done()
    assert not future.running()
    assert future.exception() is None


def test_an_error_is_raised(make) -> None:
    (future, other), settle = make(2, frozenset({0}))
    settle()
    assert isinstance(future.exception(), InvalidMessageError)
    with pytest.raises(InvalidMessageError):
        future.result()
    assert other.exception() is None


def test_waiting_has_an_end(make) -> None:
    (future,), _ = make(1)
    with pytest.raises(TimeoutError):
        future.result(0.001)
    with pytest.raises(TimeoutError):
        future.exception(0.001)


def test_it_cannot_be_cancelled_or_told_by_others(make) -> None:
    (future,), settle = make(1)
    assert not future.cancel()
    assert not future.cancelled()
    settle()
    assert not future.cancel()
    with pytest.raises(concurrent.futures.InvalidStateError):
        future.set_result(2)
    with pytest.raises(concurrent.futures.InvalidStateError):
        future.set_exception(KeyError())
    assert future.result().queue_offset == 0
    assert "0x" in repr(future)


def test_callbacks_are_called_once_each_before_and_after(make, caplog) -> None:
    (future,), settle = make(1)
    called: list[Any] = []
    future.add_done_callback(called.append)
    future.add_done_callback(lambda done: called.append(done.result().queue_offset))
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(called.append)
    assert called == []
    settle()
    assert called == [future, 0, future]
    future.add_done_callback(called.append)
    assert called == [future, 0, future, future]
    future.add_done_callback(lambda _: 1 / 0)
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError] * 2


@pytest.mark.timeout(60)
def test_wait_and_as_completed_take_them(make) -> None:
    failing = frozenset(range(0, 131, 10))
    made, settle = make(131, failing)
    watcher = concurrent.futures.ThreadPoolExecutor(2)
    completed = watcher.submit(lambda: list(concurrent.futures.as_completed(made, 30)))
    first = watcher.submit(concurrent.futures.wait, made, 30)
    settle()
    assert sorted(map(id, completed.result())) == sorted(map(id, made))
    assert first.result() == (set(made), set())
    failed = concurrent.futures.wait(made, 30, return_when=concurrent.futures.FIRST_EXCEPTION)
    assert made[0] in failed.done
    assert [slot for slot, future in enumerate(made) if future.exception()] == sorted(failing)
    watcher.shutdown()


def test_wait_has_an_end_and_what_comes_later_harms_nobody(make) -> None:
    made, settle = make(3)
    assert concurrent.futures.wait(made, 0.001) == (set(), set(made))
    with pytest.raises(TimeoutError):
        list(concurrent.futures.as_completed(made, 0.001))
    settle()
    assert concurrent.futures.wait(made, WAIT_SECONDS_MAX) == (set(made), set())


def test_wait_for_the_first_returns_at_the_first(make) -> None:
    settled, settle = make(1)
    others, _ = make(4)
    settle()
    waited = concurrent.futures.wait(settled + others, 30, return_when=concurrent.futures.FIRST_COMPLETED)
    assert waited == (set(settled), set(others))


def test_wait_for_the_first_failure_is_woken_by_one_slot() -> None:
    settlement = Settlement()
    made = [DeliveryFuture(settlement, slot) for slot in range(3)]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waited = pool.submit(concurrent.futures.wait, made, 30, concurrent.futures.FIRST_EXCEPTION)
        settlement.fail({1: error_of(1)})
        assert waited.result() == ({made[1]}, {made[0], made[2]})


def test_futures_can_be_awaited_by_asyncio(make) -> None:
    async def main() -> tuple[Any, Any]:
        (good, bad), settle = make(2, frozenset({1}))
        threading.Thread(target=settle).start()
        return tuple(await asyncio.gather(asyncio.wrap_future(good), asyncio.wrap_future(bad), return_exceptions=True))

    good, bad = asyncio.run(main())
    assert good.queue_offset == 0
    assert isinstance(bad, InvalidMessageError)


@given(count=st.integers(1, 12), data=st.data())
def test_each_slot_gets_its_own_whatever_failed_before(count: int, data: st.DataObject) -> None:
    """Slots fail alone, one after the other; the results of the rest come without them."""
    failing = data.draw(st.lists(st.sampled_from(range(count)), unique=True))
    settlement, heard = Settlement(), []
    made = [DeliveryFuture(settlement, slot) for slot in range(count)]
    for slot in range(count):
        settlement.listen(slot, lambda receipt, error, slot=slot: heard.append((slot, receipt, error)))
    for number, slot in enumerate(failing):
        settlement.fail({slot: error_of(slot)})
        assert [slot for slot, future in enumerate(made) if future.done()] == sorted(failing[: number + 1])
    settlement.settle([result_of(slot) for slot in range(count) if slot not in failing])
    assert sorted(slot for slot, _, _ in heard) == list(range(count)), "each hears once"
    for slot, receipt, error in heard:
        assert (error is None) == (slot not in failing)
        assert (error.message if error else receipt.unique_key) == str(slot)
        assert made[slot].exception() is error
        if error is None:
            assert made[slot].result() == receipt


@pytest.mark.timeout(60)
def test_a_callback_given_while_its_message_is_settled_is_called_once() -> None:
    for _ in range(200):
        (future,), settle = light(1)
        called: list[Any] = []
        both = threading.Barrier(2)

        def give(future=future, called=called, both=both) -> None:
            both.wait()
            for _ in range(20):
                future.add_done_callback(called.append)

        thread = threading.Thread(target=give)
        thread.start()
        both.wait()
        settle()
        thread.join()
        assert called == [future] * 20


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
            receipts = sender.send_batch(iter(batch)).result(WAIT_SECONDS_MAX)
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
            receipts = made.result(WAIT_SECONDS_MAX)
            assert before.result(WAIT_SECONDS_MAX).queue_offset == 0
            assert [receipt.queue_offset for receipt in receipts] == list(range(1, 32))
            assert after.result(WAIT_SECONDS_MAX).queue_offset == 32
        for request in gateway.requests:
            assert len(request.messages) <= 10
            assert len(request.messages) == 1 or request.ByteSize() <= 5000 + 16


def test_no_messages_are_no_trouble() -> None:
    with fake_gateway() as gateway, producer(gateway) as sender:
        assert list(sender.send_batch([]).result(0)) == []


def test_a_bad_message_fails_alone_and_the_error_says_which() -> None:
    with fake_gateway(*[refuse_bad] * 20) as gateway, producer(gateway, batch_count_max=8) as sender:
        made = sender.send_batch(messages(*[b"bad" if i in (3, 9, 19) else b"%d" % i for i in range(20)]))
        error = made.exception(WAIT_SECONDS_MAX)
        assert isinstance(error, BatchDeliveryError)
        assert sorted(error.errors) == [3, 9, 19]
        assert all(isinstance(each, InvalidMessageError) for each in error.errors.values())
        assert error.__cause__ is error.errors[3]
        assert error.metadata == {"index": "3", "failedCount": "3"}
        assert sorted(gateway.bodies()) == sorted(b"%d" % i for i in range(20) if i not in (3, 9, 19))


def test_a_refusal_of_the_whole_request_fails_its_messages_only() -> None:
    read_only = refusal(grpc.StatusCode.FAILED_PRECONDITION, "STORE_READ_ONLY")
    with fake_gateway(OK, read_only) as gateway, producer(gateway, batch_count_max=4) as sender:
        error = sender.send_batch(messages(*[b"%d" % i for i in range(12)])).exception(WAIT_SECONDS_MAX)
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
        sender = producer(
            gateway, buffer_bytes_max=200_000, block_seconds_max=WAIT_SECONDS_MAX, batch_count_max=2, linger_millis=0
        )
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
                other.result(WAIT_SECONDS_MAX)
        assert len(made.result(WAIT_SECONDS_MAX)) == 15
        assert passed_count <= 60, "it waits for what was there before, not for those who come later"
        sender.close()
