"""Asking several shards at once: one shard is asked on the caller's thread, more on a shared pool."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from store.errors import StoreError

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class FanOut:
    """Calls a function for many items, in parallel when there is more than one.

    Args:
        thread_count_max: threads that all calls together share.
    """

    def __init__(self, thread_count_max: int) -> None:
        self._pool = ThreadPoolExecutor(thread_count_max, thread_name_prefix="fan-out")

    def ask(self, items: Iterable[Item], call: Callable[[Item], Answer]) -> list[Answer | StoreError]:
        """For each item, in order, the answer or the StoreError that it raised."""

        def ask_one(item: Item) -> Answer | StoreError:
            try:
                return call(item)
            except StoreError as error:
                return error

        first, *others = items
        # Each in the caller's context, so that what it does belongs to the caller's trace.
        futures = [self._pool.submit(copy_context().run, ask_one, item) for item in others]
        return [ask_one(first), *(future.result() for future in futures)]

    def start(self, call: Callable[[], Answer]) -> "Future[Answer]":
        """Calls it on the pool, for a caller that waits for something else, too; it must ask nothing of the pool itself."""
        return self._pool.submit(copy_context().run, call)

    def close(self) -> None:
        """Take no more calls; those under way end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
