"""Waiting for a builder inside GetStatus: `past_offset` and `wait_millis` of both builders' requests.

A call that waits holds a thread of its service, so waits are short, and few at a time; whoever finds no place, or whose
wait was too short, gets the state as it is and asks again.
"""

import threading
from typing import Protocol

from store.builders.progress import BuilderProgress
from store.errors import InvalidArgumentError

WAIT_MILLIS_MAX = 1_000  # a clean stop waits for these calls, too
WAITING_COUNT_MAX = 32  # half of a service's threads by default


class WaitRequest(Protocol):
    """A builder's GetStatusRequest."""

    past_offset: int
    wait_millis: int

    def HasField(self, field: str) -> bool:  # noqa: N802  # protobuf's name
        """Whether it was given."""


class ProgressWait:
    """Lets calls wait for one builder.

    Args:
        progress: of the builder.
        place_count: calls that wait at the same time.
    """

    def __init__(self, progress: BuilderProgress, place_count: int) -> None:
        self._progress = progress
        self._places = threading.BoundedSemaphore(place_count)

    def wait(self, request: WaitRequest) -> bool:
        """Wait as the request asks; whether it asked.

        Raises:
            InvalidArgumentError: a number is negative.
        """
        for field in ("past_offset", "wait_millis"):
            if getattr(request, field) < 0:
                raise InvalidArgumentError(f"{field} is {getattr(request, field)}: it must be 0 or more.", field=field)
        if not request.HasField("past_offset") or not request.wait_millis:
            return False
        if self._places.acquire(blocking=False):
            try:
                seconds = min(request.wait_millis, WAIT_MILLIS_MAX) / 1000
                self._progress.wait_past(request.past_offset, seconds)
            finally:
                self._places.release()
        return True
