"""Asking for a search: on another thread, so that a search whose caller goes ends at once, whatever was asked."""

from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

from gateway.deadline import Deadline
from gateway.fan_out import FanOut
from gateway.search.cancellation import Cancellation

Answer = TypeVar("Answer")
# Ports answer in milliseconds. A thread whose caller has gone is free after this.
ASK_SECONDS_MAX = 10.0


class CallerGoneError(Exception):
    """The call was cancelled; nobody waits for an answer.

    Args:
        pending: a call to a port that has not ended yet, and keeps its thread until it does.
    """

    def __init__(self, pending: "futures.Future[Any] | None" = None) -> None:
        super().__init__("the caller has gone")
        self.pending = pending


def ask_until_gone(
    threads: FanOut,
    call: Callable[[Deadline], Answer],
    cancellation: Cancellation,
    deadline: Deadline,
    *,
    seconds_max: float = ASK_SECONDS_MAX,
) -> Answer:
    """The answer to a call that has half of the time that is left; what it raises is raised.

    Args:
        threads: one of them makes the call; it must ask nothing of them itself.
        call: takes its own deadline.
        cancellation: of the search.
        deadline: of the search.
        seconds_max: what the call may have at most.

    Raises:
        CallerGoneError: the caller has gone before there was an answer.
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
