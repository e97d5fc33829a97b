"""Calls of the gateway's own servicer from a page: in this process, with a deadline, ended when the browser goes away.

A page asks exactly what a client could ask over gRPC and gets the same messages, so that nothing can be seen here that
a client would not be shown.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from gateway.search.cancellation import Cancellation
from gateway.search.places import Places
from store.errors import DeadlineExceededError, ResourceBusyError

# Above a search's own five seconds, below what a person waits for.
PAGE_SECONDS = 15.0
# All consoles together, of the places that there are for searches (search_call.py): their windows search step after step,
# and clients want some, too.
SEARCH_COUNT_MAX = 2
# Every thread that makes pages (desk.py) may wait: none is told to come again because of two other windows.
SEARCH_WAITING_COUNT_MAX = 4
# For a turn among steps of 0.14 s; at most a quarter of the time that is left.
PLACE_SECONDS_MAX = 1.0

_SEARCH_PLACES = Places(SEARCH_COUNT_MAX, SEARCH_WAITING_COUNT_MAX)

Metadata = tuple[tuple[str, str], ...]


class CallContext:
    """What a handler wants of a `grpc.ServicerContext`: the time that is left, and to hear when nobody waits any more.

    Args:
        seconds: time for all calls made with it.
        metadata: what the caller would send beside its request, such as who it is.
        peer: where the browser is, as gRPC would name it.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        seconds: float = PAGE_SECONDS,
        metadata: Metadata = (),
        peer: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._end_seconds = clock() + seconds
        self._metadata = metadata
        self._peer = peer
        self._clock = clock
        self._callbacks: list[Callable[[], None]] = []
        self._is_cancelled = False
        self._lock = threading.Lock()

    def time_remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end_seconds - self._clock())

    def for_at_most(self, seconds: float) -> "CallContext":
        """A context of the same caller with less time; it hears of the end of this one."""
        part = CallContext(min(seconds, self.time_remaining()), self._metadata, self._peer, self._clock)
        if not self.add_callback(part.cancel):
            part.cancel()
        return part

    def invocation_metadata(self) -> Metadata:
        """What the caller sends beside its request."""
        return self._metadata

    def peer(self) -> str:
        """Where the browser is."""
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        """What a client certificate would say: browsers show none."""
        return {}

    def is_active(self) -> bool:
        """Whether somebody still waits."""
        return not self._is_cancelled

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call this when nobody waits any more; False when that is so already."""
        with self._lock:
            if self._is_cancelled:
                return False
            self._callbacks.append(callback)
            return True

    def cancel(self) -> None:
        """Nobody waits any more."""
        with self._lock:
            self._is_cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class Calls:
    """The calls of one page.

    Args:
        answers: who answers them.
        context: of the browser's request.
        sees_store: whether the caller may ask for the state of the services; pages that only would like to know do not
            ask then, so that the audit log has no refusals that nobody caused.
    """

    def __init__(self, answers: Any, context: CallContext, *, sees_store: bool = True) -> None:
        self._answers = answers
        self.context = context
        self.sees_store = sees_store

    def ask(self, method: str, request: Any, seconds_max: float | None = None) -> Any:
        """The answer to one request; StoreError as the method says.

        Raises:
            DeadlineExceededError: the page's time is over.
            ResourceBusyError: SEARCH_COUNT_MAX searches of other pages run, and went on doing so.
        """
        if self.context.time_remaining() <= 0:
            raise DeadlineExceededError("The page took too long: ask for less, or again.")
        context = self.context if seconds_max is None else self.context.for_at_most(seconds_max)
        answer = getattr(self._answers, method)
        if method != "SearchMessages":
            return answer(request, context)
        with _search_place(context):
            return answer(request, context)

    def has(self, method: str) -> bool:
        """Whether the gateway has this method."""
        return hasattr(self._answers, method)


@contextlib.contextmanager
def _search_place(context: CallContext) -> Iterator[None]:
    """A place for the search in the block."""
    cancellation = Cancellation.of(context)
    if not _SEARCH_PLACES.take(cancellation, min(PLACE_SECONDS_MAX, context.time_remaining() / 4)):
        raise ResourceBusyError(
            f"{SEARCH_COUNT_MAX} searches of this console run, the most that it takes: try again.",
            countMax=SEARCH_COUNT_MAX,
        )
    try:
        yield
    finally:
        _SEARCH_PLACES.give_back()
