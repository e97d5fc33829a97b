"""The threads that make pages, with a limit for waiting requests.

Pages have their own threads, so a slow page delays neither the web server nor gRPC calls. When all threads are busy and
WAITING_COUNT_MAX requests wait, a further request fails at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from console.calls import CallContext
from store.errors import ResourceBusyError

PLACE_COUNT = 4
WAITING_COUNT_MAX = 32

Result = TypeVar("Result")


class PageThreads:
    """Threads for pages; used from one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(PLACE_COUNT, thread_name_prefix="console-page")
        self._count = 0

    async def work(
        self, make: Callable[[], Result], context: CallContext, gone: Callable[[], Awaitable[object]] | None = None
    ) -> Result:
        """The result of `make`; its calls are cancelled when the browser closes its connection.

        Args:
            make: runs in a thread.
            context: of its calls.
            gone: returns when the browser closes its connection; None: the connection is not watched.

        Raises:
            ResourceBusyError: too many requests wait.
            BrowserGoneError: the browser has closed its connection.
        """
        if self._count >= PLACE_COUNT + WAITING_COUNT_MAX:
            raise ResourceBusyError(f"{self._count} pages are being made or wait, which is the limit: try again.")
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
