"""The light futures behave as the standard library's: under its own tools, and beside a plain one."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.message.v1 import message_pb2
from reput_client.errors import InvalidMessageError, ReputClientError
from reput_client.producing.futures import DeliveryFuture, Settlement

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
    thread = threading.Thread(target=lambda: got.append(future.result(30)))
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
    assert concurrent.futures.wait(made, 30) == (set(made), set())


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
