"""LogBatch: a piece of the log, for programs that make derived files again or compare them with it; numpy is not loaded."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns


class LogBatch(Protocol):
    """A part of the log: its records, None for none, and the position behind it (bytes)."""

    @property
    def columns(self) -> "DispatchColumns | None":
        """The records."""

    @property
    def next_offset(self) -> int:
        """The position behind them."""


# The log from the record at an offset on (bytes; -1: from its first record), without end.
ReadLog = Callable[[int], AbstractContextManager[Iterator[LogBatch]]]
