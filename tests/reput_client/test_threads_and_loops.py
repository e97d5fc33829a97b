"""Coroutines that block instead of being suspended, and the signals of threads and of event loops."""

import asyncio
import threading
from collections.abc import Generator

import pytest

from reput_client.threads_and_loops import LoopSignal, ThreadSignal, run_blocking
from tests.support.waiting import WAIT_SECONDS_MAX


def test_a_coroutine_that_is_never_suspended_runs_to_its_result() -> None:
    async def lowest() -> int:
        return 7

    async def above() -> int:
        return await lowest() + 1

    assert run_blocking(above) == 8


def test_an_error_of_a_coroutine_reaches_the_caller() -> None:
    async def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_blocking(fails)


def test_a_coroutine_that_waits_for_an_event_loop_is_ended_and_refused() -> None:
    ended = []

    class Suspends:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def suspended() -> None:
        try:
            await Suspends()
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match="was suspended"):
        run_blocking(suspended)
    assert ended == [True]


def test_a_signal_wakes_a_thread_and_frees_the_lock_meanwhile() -> None:
    lock = threading.Lock()
    signal = ThreadSignal(lock)
    state = {"is_ready": False}

    def wait() -> None:
        with lock:
            while not state["is_ready"]:
                run_blocking(signal.wait, float("inf"))

    waiting = threading.Thread(target=wait)
    waiting.start()
    with lock:
        state["is_ready"] = True
        signal.send()
    waiting.join(WAIT_SECONDS_MAX)
    assert not waiting.is_alive()


def test_a_signal_wakes_all_tasks_and_a_wait_ends_with_its_time() -> None:
    async def main() -> None:
        signal = LoopSignal()
        await signal.wait(0.001)
        waiting = [asyncio.create_task(signal.wait(seconds)) for seconds in (None, 30.0, float("inf"))]
        await asyncio.sleep(0)  # each task begins to wait
        signal.send()
        await asyncio.wait_for(asyncio.gather(*waiting), 10)

    asyncio.run(main())
