"""One append stream: its state, which the producer of threads and the one of asyncio share, and the requests for grpc."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.errors import (
    DeadlineExceededError,
    ReputClientError,
    ResourceBusyError,
    ServiceUnavailableError,
    is_worth_retrying,
)
from reput_client.producing.outbox import Outbox
from reput_client.producing.outcome import Outcomes
from reput_client.retry import RetryPolicy


class StreamState:
    """The state of one append stream.

    Args:
        call: grpc's handle of the stream; None until it is open.
        ends_at: when no further request is sent on it, seconds; of a real stream never.

    Attributes:
        call: see above.
        is_ending: no further request is sent.
        had_no_place: the gateway ended it because it has no place for it.
        has_progress: an answer came.
        progress_at: when the last answer came, or a request was taken while none was in flight; seconds.
        error: why the stream ended, or why a request on it was refused for now.
    """

    def __init__(self, call: Any = None, ends_at: float = float("inf")) -> None:
        self.call = call
        self.ends_at = ends_at
        self.had_no_place = False
        self.is_ending = False
        self.has_progress = False
        self.progress_at = time.monotonic()
        self.error: ReputClientError | None = None

    def take_answer(self, outbox: Outbox, response: pb.AppendMessageStreamResponse) -> Outcomes:
        """The outcomes of an answer; a refusal for now ends the stream."""
        outcomes = Outcomes()
        outcomes.take_answer(outbox, response)
        if outcomes.refusal is None:
            self.has_progress = True
        else:
            self.error = self.error or outcomes.refusal
            self.is_ending = True
        self.progress_at = time.monotonic()
        return outcomes

    def end(self, outbox: Outbox, error: ReputClientError | None) -> Outcomes:
        """The outcomes of the stream's end; requests without an answer go back to the outbox.

        Args:
            outbox: the producer's.
            error: how the call ended; None when the gateway ended it without an error.
        """
        outcomes = Outcomes()
        self.is_ending = True
        self.had_no_place = self.ends_at == float("inf") and (
            isinstance(error, ResourceBusyError) or self._may_be_refused(error)
        )
        if error is None and outbox.in_flight_count:
            error = ServiceUnavailableError("the gateway ended the stream without an answer")
        # An error noted on this side says more than the CANCELLED that followed from it.
        error = self.error = self.error or error
        if error is not None and not is_worth_retrying(error):
            outcomes.take_stream_error(outbox, error)
        outbox.give_back(error)
        return outcomes

    def _may_be_refused(self, error: ReputClientError | None) -> bool:
        """Whether grpc.aio hides a refusal: a stream that is refused while a request is being written ends with INTERNAL."""
        return (
            error is not None and error.code is grpc.StatusCode.INTERNAL and not error.reason and not self.has_progress
        )

    def time_out(self) -> None:
        """No answer came in time: cancel the call."""
        self.error = self.error or DeadlineExceededError("the gateway did not answer in time")
        self.is_ending = True
        self.call.cancel()

    def pause_seconds(self, retry: RetryPolicy) -> float | None:
        """The pause before the next stream, None for no pause.

        Raises:
            ReputClientError: the stream's error, when it brought no answer: the retry policy decides on the pause.
        """
        if self.error is None or self.had_no_place or not is_worth_retrying(self.error):
            return None
        if not self.has_progress:
            raise self.error
        return (self.error.retry_after_seconds or 0.0) + retry.pause_seconds_first


class Stream(StreamState):
    """An append stream of the threaded producer; grpc's sending thread iterates over it for requests.

    Args:
        next_request: waits for the next request; None when the stream must end.
        ends_at: see StreamState.
    """

    def __init__(self, next_request: "Callable[[Stream], bytes | None]", ends_at: float = float("inf")) -> None:
        super().__init__(ends_at=ends_at)
        self._next_request = next_request

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        request = self._next_request(self)
        if request is None:
            raise StopIteration
        return request
