"""AsyncSignal: what tasks of one event loop wait for."""

import asyncio
import contextlib


class AsyncSignal:
    """Wakes all tasks that wait for it, each with its own limit."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def send(self) -> None:
        """Wake all."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait(self, seconds: float | None) -> None:
        """Return at the next `send`, or after the time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if seconds == float("inf") else seconds):
                    await waiter
        finally:
            self._waiters.discard(waiter)
