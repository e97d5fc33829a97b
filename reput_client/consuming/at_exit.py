"""Consumers that are not closed when the interpreter exits: their gateway is told, so that others go on at once."""

import atexit
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

Closed = TypeVar("Closed")

_closers: "weakref.WeakKeyDictionary[Any, Callable[[Any], None]]" = weakref.WeakKeyDictionary()


def close_at_exit(consumer: Closed, close: Callable[[Closed], None]) -> None:
    """Call `close` with the consumer when the interpreter exits. It has no effect on a consumer that is closed by then."""
    _closers[consumer] = close


def _close_all() -> None:
    for consumer, close in list(_closers.items()):
        close(consumer)


atexit.register(_close_all)
