"""The desk: a few threads that make pages, and how many may wait for one.

A page is made by a thread of its own kind, so that a slow one holds up neither the web server nor gRPC's lanes. When all
are busy and enough wait, a further browser is told so at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from gateway.console.calls import CallContext
from store.errors import ResourceBusyError

PLACE_COUNT = 4
WAITING_COUNT_MAX = 32

Result = TypeVar("Result")


class Desk:
    """Threads for pages; used from one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(PLACE_COUNT, thread_name_prefix="console-page")
        self._count = 0

    async def work(
        self, make: Callable[[], Result], context: CallContext, gone: Callable[[], Awaitable[object]] | None = None
    ) -> Result:
        """What `make` returns; its calls are cancelled when the browser has gone.

        Args:
            make: runs in a thread.
            context: of its calls.
            gone: returns when the browser goes away; None: it is not watched.

        Raises:
            ResourceBusyError: too many wait already.
            BrowserGoneError: nobody waits any more.
        """
        if self._count >= PLACE_COUNT + WAITING_COUNT_MAX:
            raise ResourceBusyError(
                f"{self._count} pages are being made or wait, the most that the console takes: try again."
            )
        loop = asyncio.get_running_loop()
        making = self._threads.submit(make)
        self._count += 1
        making.add_done_callback(lambda _: loop.call_soon_threadsafe(self._leave))
        made = asyncio.wrap_future(making)
        if gone is None:
            return await made
        leaving = asyncio.ensure_future(gone())
        try:
            both: set[asyncio.Future[Any]] = {made, leaving}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if made.done():
                return made.result()
            raise BrowserGoneError
        finally:
            leaving.cancel()
            if not made.done():
                context.cancel()
                made.cancel()

    def _leave(self) -> None:
        self._count -= 1

    def close(self) -> None:
        """Make no more pages."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class BrowserGoneError(Exception):
    """The browser has closed its connection."""
