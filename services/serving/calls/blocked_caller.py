"""Asks a handler that answers later, from a thread that waits for the answer: callers in the gateway's own process."""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from google.rpc import status_pb2

from services.serving.calls.unary_call import Answerable
from services.status import from_status
from store.errors import DeadlineExceededError

# Takes a serialized request and its caller, and returns at once.
Offer = Callable[[bytes, Answerable], None]


class BlockedCaller:
    """An Answerable whose caller waits in its own thread.

    Args:
        time_remaining: seconds until the caller's deadline.
        context: of the call: metadata and address; None where nobody asks for them.
    """

    def __init__(self, time_remaining: Callable[[], float], context: Any = None) -> None:
        self._outcome: Future[bytes] = Future()
        self.time_remaining = time_remaining
        self.context = context

    def answer(self, response: bytes) -> None:
        """See Answerable."""
        self._outcome.set_result(response)

    def fail(self, status: status_pb2.Status) -> None:
        """See Answerable."""
        self._outcome.set_exception(from_status(status))

    def is_active(self) -> bool:
        """See Answerable."""
        return not self._outcome.done()

    def result(self) -> bytes:
        """The response.

        Raises:
            StoreError: the call failed.
            DeadlineExceededError: it is not answered; what it does may be done.
        """
        try:
            return self._outcome.result(self.time_remaining())
        except FutureTimeoutError as error:
            raise DeadlineExceededError(
                "The deadline passed before the answer: it is not known whether it was done. Look before you repeat it."
            ) from error


def ask_now(offer: Offer, request: Any, response: Any, context: Any) -> Any:
    """The response of a method that answers later; errors as `BlockedCaller.result`.

    Args:
        offer: takes the request.
        request: the request's message.
        response: the class of the response.
        context: of the caller, with its deadline.
    """
    caller = BlockedCaller(context.time_remaining, context)
    offer(request.SerializeToString(), caller)
    return response.FromString(caller.result())
