"""The threads: each work has its place and gives it back."""

import asyncio
from concurrent.futures import Future

import pytest

from console.calls import CallContext
from console.web.page_threads import PageThreads


class AtOnce:
    """Threads that are done before one has looked."""

    def submit(self, make):
        done = Future()
        done.set_result(make())
        return done

    def shutdown(self, **_named) -> None:
        pass


@pytest.mark.parametrize("is_quicker_than_its_caller", [False, True])
def test_works_that_are_done_at_once_give_their_places_back(is_quicker_than_its_caller: bool) -> None:
    threads = PageThreads()
    if is_quicker_than_its_caller:
        threads._threads.shutdown()
        threads._threads = AtOnce()

    async def work() -> None:
        for number in range(200):
            assert await threads.work(lambda: number, CallContext()) == number  # noqa: B023 - called before the next
        await asyncio.sleep(0)  # one turn of the loop: it takes what threads have handed to it

    asyncio.run(work())
    threads.close()

    assert threads._count == 0
