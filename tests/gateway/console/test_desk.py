"""The desk: each work has its place and gives it back."""

import asyncio
from concurrent.futures import Future

import pytest

from gateway.console.calls import CallContext
from gateway.console.desk import Desk


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
    desk = Desk()
    if is_quicker_than_its_caller:
        desk._threads.shutdown()
        desk._threads = AtOnce()

    async def work() -> None:
        for number in range(200):
            assert await desk.work(lambda: number, CallContext()) == number  # noqa: B023 - called before the next
        await asyncio.sleep(0)  # what threads have handed to the loop

    asyncio.run(work())
    desk.close()

    assert desk._count == 0
