"""Asks several shards at once: the first on the caller's thread, the others on a shared pool."""

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
        thread_count_max: threads that all calls share.
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
        # In the caller's context, so that spans belong to the caller's trace.
        futures = [self._pool.submit(copy_context().run, ask_one, item) for item in others]
        return [ask_one(first), *(future.result() for future in futures)]

    def start(self, call: Callable[[], Answer]) -> "Future[Answer]":
        """Calls it on the pool. The call must not submit to this pool (deadlock)."""
        return self._pool.submit(copy_context().run, call)

    def close(self) -> None:
        """Start no more calls; running ones end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
