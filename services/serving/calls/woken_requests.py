"""The requests of a session, in which other threads can put an empty one: it wakes the thread of the session.

A session is a two-way stream. Its one thread waits for the client's next request, and is the only one that may answer. What the
service has to say unasked waits until that thread comes by; whoever has something to say calls `wake_here()`'s function.

gRPC has no public way to do this: see grpc_private.py.
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from services.serving.calls.grpc_private import server as grpc_server

# gRPC runs a handler in a context of its own.
_here: ContextVar["Callable[[], None] | None"] = ContextVar("reput_wake", default=None)


class WokenRequests(Iterator[Any]):
    """Takes the place of gRPC's iterator of requests in the thread that makes it.

    Args:
        requests: gRPC's, of which nothing was taken yet.
    """

    def __init__(self, requests: Any) -> None:
        self._requests = requests
        self._state = requests._state
        self._is_woken = False
        _here.set(self.wake)

    def wake(self) -> None:
        """Make the next request an empty one, unless it is; from any thread. Returns at once."""
        with self._state.condition:
            self._is_woken = True
            self._state.condition.notify_all()

    def __next__(self) -> Any:
        """The next request; waits. Ends and fails as gRPC's."""
        requests, state = self._requests, self._state
        with state.condition:
            # After an empty one the next is on its way, or has come.
            if state.request is None and grpc_server._RECEIVE_MESSAGE_TOKEN not in state.due:
                requests._raise_or_start_receive_message()
            while True:
                if self._is_woken:
                    self._is_woken = False
                    return (requests._request_deserializer or bytes)(b"")
                request = requests._look_for_request()
                if request is not None:
                    return request
                state.condition.wait()


def wake_here() -> Callable[[], None]:
    """What wakes the session that this thread serves, from any thread; without effect where it serves none."""
    return _here.get() or _nothing


def _nothing() -> None:
    """Has no session to wake."""
