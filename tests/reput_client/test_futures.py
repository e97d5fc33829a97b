"""The light futures behave as the standard library's: under its own tools, and beside a plain one."""

import asyncio
import concurrent.futures
import threading

import pytest

from reput_client.futures import SHARED_COUNT, FutureMaker


@pytest.fixture(params=["light", "plain"])
def create(request):
    if request.param == "light":
        return FutureMaker().create

    def plain():
        future = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        return future

    return plain


def test_a_result_is_given_to_who_waits_and_to_who_comes_later(create) -> None:
    future = create()
    assert not future.done()
    assert future.running()
    got = []
    thread = threading.Thread(target=lambda: got.append(future.result(30)))
    thread.start()
    future.set_result("receipt")
    thread.join()
    assert got == ["receipt"]
    assert future.done()
    assert future.result() == "receipt"
    assert future.exception() is None


def test_an_error_is_raised(create) -> None:
    future = create()
    future.set_exception(KeyError("x"))
    assert isinstance(future.exception(), KeyError)
    with pytest.raises(KeyError):
        future.result()


def test_waiting_has_an_end_also_while_neighbours_are_told(create) -> None:
    future, neighbour = create(), create()
    with pytest.raises(TimeoutError):
        future.result(0.001)
    neighbour.set_result(1)
    with pytest.raises(TimeoutError):
        future.exception(0.001)


def test_it_cannot_be_cancelled_or_told_twice(create) -> None:
    future = create()
    assert not future.cancel()
    assert not future.cancelled()
    future.set_result(1)
    with pytest.raises(concurrent.futures.InvalidStateError):
        future.set_result(2)
    with pytest.raises(concurrent.futures.InvalidStateError):
        future.set_exception(KeyError())
    assert future.result() == 1


def test_callbacks_are_called_once_each_before_and_after(create) -> None:
    future, called = create(), []
    future.add_done_callback(called.append)
    future.add_done_callback(lambda done: called.append(done.result()))
    assert called == []
    future.set_result(7)
    assert called == [future, 7]
    future.add_done_callback(called.append)
    assert called == [future, 7, future]


@pytest.mark.timeout(60)
def test_wait_and_as_completed_take_them(create) -> None:
    made = [create() for _ in range(SHARED_COUNT * 2 + 3)]
    teller = threading.Thread(
        target=lambda: [f.set_exception(KeyError(i)) if i % 10 == 0 else f.set_result(i) for i, f in enumerate(made)]
    )
    watcher = concurrent.futures.ThreadPoolExecutor(1)
    completed = watcher.submit(lambda: list(concurrent.futures.as_completed(made, 30)))
    first = watcher.submit(concurrent.futures.wait, made, 30)
    teller.start()
    assert set(completed.result()) == set(made)
    assert first.result() == (set(made), set())
    failed = concurrent.futures.wait(made, 30, return_when=concurrent.futures.FIRST_EXCEPTION)
    assert made[0] in failed.done
    teller.join()
    watcher.shutdown()


def test_wait_for_the_first_returns_at_the_first(create) -> None:
    made = [create() for _ in range(5)]
    made[3].set_result(1)
    done, rest = concurrent.futures.wait(made, 30, return_when=concurrent.futures.FIRST_COMPLETED)
    assert done == {made[3]}
    assert len(rest) == 4


def test_asyncio_wraps_them(create) -> None:
    async def main() -> object:
        future = create()
        threading.Thread(target=future.set_result, args=(9,)).start()
        return await asyncio.wrap_future(future)

    assert asyncio.run(main()) == 9
