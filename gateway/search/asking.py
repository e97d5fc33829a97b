"""Calls of a search to the ports, on another thread, so that a cancelled search ends at once."""

from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

from gateway.ports.cancellation import Cancellation
from gateway.ports.deadline import Deadline
from gateway.ports.fan_out import FanOut

Answer = TypeVar("Answer")
# Ports answer in milliseconds. This bounds the time for which a cancelled search still holds a thread.
ASK_SECONDS_MAX = 10.0


class CallerGoneError(Exception):
    """The call was cancelled; its answer is no longer needed.

    Args:
        pending: a call to a port that has not ended yet and holds its thread until it does.
    """

    def __init__(self, pending: "futures.Future[Any] | None" = None) -> None:
        super().__init__("the call was cancelled")
        self.pending = pending


def ask_until_gone(
    threads: FanOut,
    call: Callable[[Deadline], Answer],
    cancellation: Cancellation,
    deadline: Deadline,
    *,
    seconds_max: float = ASK_SECONDS_MAX,
) -> Answer:
    """The answer of a call that gets half of the time that is left. Errors of the call are raised.

    Args:
        threads: one of them makes the call, which must not submit to these threads itself (deadlock).
        call: gets its own deadline.
        cancellation: of the search.
        deadline: of the search.
        seconds_max: the most time that the call may take.

    Raises:
        CallerGoneError: the search was cancelled before there was an answer.
        DeadlineExceededError: no time is left.
    """
    if cancellation.is_set:
        raise CallerGoneError
    seconds = min(deadline.remaining_seconds() / 2, seconds_max)
    own = Deadline.after(seconds, deadline.clock)
    asked = threads.start(lambda: call(own))
    pair: list[futures.Future[Any]] = [asked, cancellation.happened]
    futures.wait(pair, return_when=futures.FIRST_COMPLETED)
    if not asked.done():
        raise CallerGoneError(None if asked.cancel() else asked)
    return asked.result()
