"""Waiting for a follower in GetStatus: the fields `past_offset` and `wait_millis` of the requests of all followers.

A call that waits holds a thread of its service, so waits are short and few calls wait at a time. A call without a place, or
with too short a wait, gets the state as it is; its caller calls again.
"""

import threading
from typing import Protocol

from services.following.follower_progress import FollowerProgress
from store.errors import InvalidArgumentError

WAIT_MILLIS_MAX = 1_000  # a clean stop waits for these calls
WAITING_COUNT_MAX = 32  # half of a service's threads by default


class WaitRequest(Protocol):
    """The GetStatusRequest of a follower."""

    past_offset: int
    wait_millis: int

    def HasField(self, field: str) -> bool:  # noqa: N802  # protobuf's name
        """Whether the field is set."""


class ProgressWait:
    """Lets calls wait for one follower.

    Args:
        progress: of the follower.
        place_count: calls that wait at the same time.
    """

    def __init__(self, progress: FollowerProgress, place_count: int) -> None:
        self._progress = progress
        self._places = threading.BoundedSemaphore(place_count)

    def wait(self, request: WaitRequest) -> bool:
        """Wait as the request asks; returns whether it asked to wait.

        Raises:
            InvalidArgumentError: a number is negative.
        """
        for field in ("past_offset", "wait_millis"):
            if getattr(request, field) < 0:
                raise InvalidArgumentError(f"{field} is {getattr(request, field)}: it must be 0 or more", field=field)
        if not request.HasField("past_offset") or not request.wait_millis:
            return False
        if self._places.acquire(blocking=False):
            try:
                seconds = min(request.wait_millis, WAIT_MILLIS_MAX) / 1000
                self._progress.wait_past(request.past_offset, seconds)
            finally:
                self._places.release()
        return True
