"""UnderWay: the requests of one kind that the log has not answered yet. Their messages wait still: a kill may lose them."""

from collections import deque
from concurrent.futures import Future
from typing import NamedTuple

from schedule_svc.life import NEVER_MILLIS, NOTHING_NEEDED
from services.following.state_topic.state_writer import wait_for

# The next request is read while one is written.
REQUEST_COUNT_MAX = 2


class _Request(NamedTuple):
    written: "Future[int]"
    message_count: int
    first_byte: int
    due_millis: int


class UnderWay:
    """See the top of this file; one thread adds and waits, any may ask."""

    def __init__(self) -> None:
        self._requests: deque[_Request] = deque()

    def wait_for_room(self) -> None:
        """Wait until another request may be submitted; errors as `wait_for`."""
        while len(self._requests) >= REQUEST_COUNT_MAX:
            wait_for(self._requests[0].written)
            self._requests.popleft()

    def add(self, written: "Future[int]", message_count: int, first_byte: int, due_millis: int) -> None:
        """A request was submitted.

        Args:
            written: done when it is in the log.
            message_count: messages that it ends.
            first_byte: the least offset of their records in the log (bytes).
            due_millis: when the first of them was due (ms since 1970).
        """
        self._requests.append(_Request(written, message_count, first_byte, due_millis))

    def message_count(self) -> int:
        """Their messages."""
        return sum(one.message_count for one in self._open())

    def needed_offset(self) -> int:
        """The first byte of the log that they need; NOTHING_NEEDED: none."""
        return min((one.first_byte for one in self._open()), default=NOTHING_NEEDED)

    def oldest_due_millis(self) -> int:
        """When the first of their messages was due; NEVER_MILLIS for none."""
        return min((one.due_millis for one in self._open()), default=NEVER_MILLIS)

    def _open(self) -> list[_Request]:
        return [one for one in self._requests.copy() if not one.written.done()]
