"""An append stream whose requests are checked one by one, and whose refusals are answered in order.

The responses of a stream have the order of its requests, and only what sends them on keeps that order. So for a refused request
an empty one is sent on, which is not stored, and its response is replaced by the refusal. The stream goes on.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from reput.gateway.v1 import gateway_service_pb2 as pb
from services.serving.calls.append_pump import StreamPump
from services.status import to_status
from store.errors import StoreError

# The call ended before its response: it is unknown whether the messages are stored.
UNANSWERED = "UNANSWERED"
EMPTY_REQUEST = b""


class Noted(Protocol):
    """Gets the end of a request that has passed."""

    def answered(self, answer: bytes) -> None:
        """It ended with this response."""

    def ended(self, outcome: str) -> None:
        """It ended with this outcome."""


class StreamChecks:
    """The requests and responses of one append stream.

    Args:
        check: looks at a request before it is sent on; returns what gets its end, or None. StoreError: it is refused.
        context: the call's.
    """

    def __init__(self, check: Callable[[bytes], Noted | None], context: Any) -> None:
        self._check = check
        self._unanswered: deque[Noted | StoreError | None] = deque()
        if not context.add_callback(self.end):
            self.end()

    def request(self, request: bytes) -> bytes:
        """The bytes to be sent on."""
        try:
            self._unanswered.append(self._check(request))
        except StoreError as refusal:
            self._unanswered.append(refusal)
            return EMPTY_REQUEST
        return request

    def answer(self, answer: bytes) -> bytes:
        """The response to the oldest request."""
        try:
            asked = self._unanswered.popleft()
        except IndexError:  # the call has ended
            return answer
        if isinstance(asked, StoreError):
            return pb.AppendMessageStreamResponse(error=to_status(asked)).SerializeToString()
        if asked is not None:
            asked.answered(answer)
        return answer

    def end(self) -> None:
        """The call has ended: no more responses."""
        while self._unanswered:
            with contextlib.suppress(IndexError):  # a response was faster
                asked = self._unanswered.popleft()
                if asked is not None and not isinstance(asked, StoreError):
                    asked.ended(UNANSWERED)


class CheckedPump:
    """A StreamPump that checks requests and replaces the responses of refused ones."""

    def __init__(self, pump: "StreamPump | CheckedPump", checks: StreamChecks) -> None:
        self._pump = pump
        self._checks = checks

    def start(self, take: Callable[[bytes | None], None], unanswered_count_max: int) -> None:
        """See StreamPump."""
        self._pump.start(
            lambda request: take(None if request is None else self._checks.request(request)), unanswered_count_max
        )

    def send(self, answer: bytes) -> None:
        """See StreamPump."""
        self._pump.send(self._checks.answer(answer))

    def wait_until_sent(self) -> None:
        """See StreamPump."""
        self._pump.wait_until_sent()
