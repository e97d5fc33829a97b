"""One source for threads and for asyncio: coroutines of which only the lowest calls differ.

    the class of asyncio    await core.call(...)                 its transport awaits: the coroutine is suspended
    the class of threads    run_blocking(core.call, ...)         its transport blocks the thread: the coroutine runs through

What a client decides stands in such coroutines once. A transport has the few calls that wait: for grpc, for time, for a signal.
"""

import asyncio
import contextlib
import functools
import operator
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


_begin = operator.methodcaller("send", None)


def run_blocking(
    function: Callable[Given, Coroutine[Any, Any, Result]], /, *args: Given.args, **named: Given.kwargs
) -> Result:
    """Run a coroutine function in this thread to its end; its result.

    Raises:
        RuntimeError: it was suspended, so it waits for an event loop and not for a blocking transport.
    """
    # `next` calls the function and begins its coroutine in one step of the interpreter: a Ctrl-C between the two would leave a
    # coroutine that was never awaited, which Python reports. `await function(argument)` is such a step, too, but not
    # `await function(*arguments)`, which cores therefore do not use.
    begun = map(_begin, iter(functools.partial(function, *args, **named), None))
    try:
        next(begun)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise RuntimeError(f"{function!r} was suspended: a transport of asyncio was given to a class of threads")


class Signal(Protocol):
    """Wakes all that wait for it, each with its own limit."""

    def send(self) -> None:
        """Wake all."""

    async def wait(self, seconds: float | None) -> None:
        """Return at the next `send`, or after the time, or sooner: the caller looks again at what it waits for."""


class ThreadSignal:
    """A signal for threads; every call holds the lock, which is free while a thread waits.

    Args:
        lock: the lock.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._condition = threading.Condition(lock)
        self.send = self._condition.notify_all

    async def wait(self, seconds: float | None) -> None:
        """See Signal."""
        self._condition.wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))


class LoopSignal:
    """A signal for the tasks of one event loop."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def send(self) -> None:
        """See Signal."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait(self, seconds: float | None) -> None:
        """See Signal."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if seconds == float("inf") else seconds):
                    await waiter
        finally:
            self._waiters.discard(waiter)
