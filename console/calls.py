"""Calls of a page to the gateway in the same process: with a deadline, cancelled when the browser closes its connection.

A page sends the requests that a client could send over gRPC and gets the same responses. So it shows only what a client
may see.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from console.gateway_port import GatewayPort
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.serving.calls.cancellation import Cancellation
from services.serving.places import Places
from store.errors import DeadlineExceededError, ResourceBusyError

# More than a search's own five seconds, and less than people wait for a page.
PAGE_SECONDS = 15.0
# Searches of all pages together. The gateway runs four at once; the others are left to gRPC clients.
SEARCH_COUNT_MAX = 2
# Every thread that makes pages (web/page_threads.py) may wait, so no page fails because two other windows search.
SEARCH_WAITING_COUNT_MAX = 4
# The wait for a place: a step of a search takes 0.14 s. At most a quarter of the time that is left.
PLACE_SECONDS_MAX = 1.0

_SEARCH_PLACES = Places(SEARCH_COUNT_MAX, SEARCH_WAITING_COUNT_MAX)

Metadata = tuple[tuple[str, str], ...]
Request = TypeVar("Request")
Response = TypeVar("Response")


class CallContext:
    """The part of a `grpc.ServicerContext` that the gateway's methods use.

    Args:
        seconds: time for all calls with this context.
        metadata: the metadata of the caller, such as its API key.
        peer: the browser's address, in gRPC's form.
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
        """A context of the same caller with less time; it is cancelled with this one."""
        part = CallContext(min(seconds, self.time_remaining()), self._metadata, self._peer, self._clock)
        if not self.add_callback(part.cancel):
            part.cancel()
        return part

    def invocation_metadata(self) -> Metadata:
        """The caller's metadata."""
        return self._metadata

    def peer(self) -> str:
        """The browser's address."""
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        """The client certificate; empty, because browsers send none."""
        return {}

    def is_active(self) -> bool:
        """Whether the call is not cancelled."""
        return not self._is_cancelled

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call this on cancellation; False when the call is cancelled already."""
        with self._lock:
            if self._is_cancelled:
                return False
            self._callbacks.append(callback)
            return True

    def cancel(self) -> None:
        """Cancel the calls."""
        with self._lock:
            self._is_cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class Calls:
    """The calls of one page.

    Args:
        gateway: answers them.
        context: of the browser's request.
        sees_store: whether the caller may ask for the state of the services. Otherwise, pages skip optional calls for
            the state, so the audit log has only refusals of calls that the user made.
        may: whether the caller may send a request to a method of the gateway, for the same reason.
        acts: whether this installation has actions at all.
    """

    def __init__(
        self,
        gateway: GatewayPort,
        context: CallContext,
        *,
        sees_store: bool = True,
        may: Callable[[str, Any], bool] = lambda _method, _request: True,
        acts: bool = False,
    ) -> None:
        self.gateway = gateway
        self.context = context
        self.sees_store = sees_store
        self.may = may
        self.acts = acts

    def ask(
        self, method: Callable[[Request, Any], Response], request: Request, seconds_max: float | None = None
    ) -> Response:
        """The response of a method of `gateway`; StoreError as the method says.

        Raises:
            DeadlineExceededError: the page's time is over.
        """
        if self.context.time_remaining() <= 0:
            raise DeadlineExceededError("The page took too long: ask for less, or try again.")
        return method(request, self.context if seconds_max is None else self.context.for_at_most(seconds_max))

    def search(self, request: pb.SearchMessagesRequest) -> pb.SearchMessagesResponse:
        """SearchMessages, within the limit for all consoles; errors as `ask`.

        Raises:
            ResourceBusyError: SEARCH_COUNT_MAX searches of other pages ran for as long as this one could wait.
        """
        return self.ask(self._search_in_place, request)

    def _search_in_place(self, request: pb.SearchMessagesRequest, context: CallContext) -> pb.SearchMessagesResponse:
        with _search_place(context):
            return self.gateway.SearchMessages(request, context)


@contextlib.contextmanager
def _search_place(context: CallContext) -> Iterator[None]:
    """Holds a place for a search during the block."""
    cancellation = Cancellation.of(context)
    if not _SEARCH_PLACES.take(cancellation, min(PLACE_SECONDS_MAX, context.time_remaining() / 4)):
        raise ResourceBusyError(
            f"{SEARCH_COUNT_MAX} searches of this console run, which is its limit: try again.",
            countMax=SEARCH_COUNT_MAX,
        )
    try:
        yield
    finally:
        _SEARCH_PLACES.give_back()
