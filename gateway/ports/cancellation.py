"""Cancellation: whether the caller of a query has ended its call."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Protocol


class Cancellation(Protocol):
    """The cancellation of one call; services/serving/calls/cancellation.py makes one from a gRPC context."""

    @property
    def happened(self) -> "Future[None]":
        """Done once the call is cancelled, for `concurrent.futures.wait`."""

    @property
    def is_set(self) -> bool:
        """Whether the call is cancelled."""

    def ending(self, end: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `end` once, on any thread, if the call is cancelled before the block ends."""
