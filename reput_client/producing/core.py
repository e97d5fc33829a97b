"""The decisions of a producer: `threads.py` runs them on threads, `loops.py` on an event loop.

    send ──▶ outbox ──next_request──▶ transport ──▶ gateway          the requests of a stream, in order
    futures ◀── outcomes ◀──take_answer── transport ◀── gateway      the answers, in the order of the requests

Three activities run at a time: `run` opens one stream after the other and takes answers, the transport asks `next_request` for
requests, and `watch` cancels a stream that is not answered in time. When a stream ends, its requests without an answer go back
to the front of the outbox and are sent again on the next stream, with `deduplicate`, so that they are stored once.

A gateway whose places for streams are in use refuses a stream, or ends one that was idle, with RESOURCE_BUSY. The producer then
sends each request in a unary call, one after the other, which keeps their order, and tries a stream again after some seconds. A
refusal of one request is an answer with `error`, as on a stream.

The methods are coroutines as `threads_and_loops.py` says.
"""

import logging
import random
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.channel import SERVICE
from reput_client.encoding import encode_request, encode_request_tail
from reput_client.errors import (
    DeadlineExceededError,
    InternalError,
    ProducerClosedError,
    ReputClientError,
    ResourceBusyError,
    ServiceUnavailableError,
    error_of_call,
    error_of_status,
    is_worth_retrying,
    status_of_call,
)
from reput_client.producing.futures import Settlement, Span
from reput_client.producing.outbox import CLOSED, OVERDUE, Batch, Outbox, Outcomes
from reput_client.producing.settings import ProducerSettings
from reput_client.threads_and_loops import Signal

STREAM_METHOD = SERVICE + "AppendMessageStream"
UNARY_METHOD = SERVICE + "AppendMessages"
# A condition cannot wait without a limit; the watch checks again after this time.
WATCH_SECONDS_MAX = 3600.0
# How long the watch waits for grpc's handle of a stream that is being opened; usually microseconds.
CALL_SECONDS = 0.05
# Between two attempts to open a stream. Unary calls cost the gateway about twice as much; a place may be free by then.
UNARY_SECONDS = 5.0
# They leave open whether anything was written, so they end the stream: its requests are sent again with `deduplicate`.
UNKNOWN_OUTCOMES = (ServiceUnavailableError, DeadlineExceededError, InternalError)

_log = logging.getLogger("reput_client")


class Stream:
    """The state of one append stream, or of the unary calls in its place.

    Args:
        unary_until: when no further unary call is made, seconds; None: it is a stream.

    Attributes:
        call: grpc's handle of the stream, or of the unary call under way; None until there is one.
        is_unary: requests are sent in unary calls.
        is_ending: no further request is sent.
        is_cancelled: this side has cancelled it.
        had_no_place: the gateway ended it because it has no place for it.
        has_progress: an answer came.
        progress_at: when the last answer came, or a request was taken while none was in flight; seconds.
        error: why the stream ended, or why a request on it was refused for now.
    """

    def __init__(self, unary_until: float | None = None) -> None:
        self.call: Any = None
        self.is_unary = unary_until is not None
        self.ends_at = float("inf") if unary_until is None else unary_until
        self.is_ending = False
        self.is_cancelled = False
        self.had_no_place = False
        self.has_progress = False
        self.progress_at = time.monotonic()
        self.error: ReputClientError | None = None

    def cancel(self) -> None:
        """End it now; what was sent may still be appended."""
        self.is_ending = self.is_cancelled = True
        if self.call is not None:
            self.call.cancel()

    def time_out(self) -> None:
        """No answer came in time: end it."""
        self.error = self.error or DeadlineExceededError("the gateway did not answer in time")
        self.cancel()

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
        self.had_no_place = not self.is_unary and (isinstance(error, ResourceBusyError) or self._may_be_refused(error))
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


class Transport(Protocol):
    """The calls of a producer that wait, made by threads or by an event loop."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while the state of the producer changes; free while a signal is awaited."""

    def signal(self) -> Signal:
        """A new signal, whose calls hold the lock."""

    async def exchange(self, stream: Stream) -> None:
        """Open a stream, send the requests of `ProducerCore.next_request`, and give each answer to `take_answer`.

        Returns at the end of the stream, also when it `is_cancelled`. Raises grpc's RpcError that ended it.
        """

    async def append(self, stream: Stream, request: bytes, seconds: float) -> Any:
        """The answer of one unary call; None when the stream is ending, or was cancelled meanwhile; raises grpc's RpcError."""

    async def wait_for_end(self, seconds: float | None) -> bool:
        """Wait until `ProducerCore.run` has ended, or never began; False when the time is over first."""

    async def close_channel(self) -> None:
        """Close the channel, unless the program gave it."""


class ProducerCore:
    """Takes messages and delivers them.

    Args:
        transport: moves the bytes.
        settings: limits and times.
    """

    def __init__(self, transport: Transport, settings: ProducerSettings) -> None:
        self._transport = transport
        self._lock = transport.lock
        self._settings = settings
        self._tail = encode_request_tail(settings.flush_mode)
        self._outbox = Outbox(settings)
        self._work = transport.signal()  # there may be a request to send
        self._done = transport.signal()  # batches are finished
        self._watched = transport.signal()  # a request is in flight
        self._turns: deque[Signal] = deque()  # callers that wait for room, the first one first
        self._stream: Stream | None = None
        self._unary_until = 0.0  # the gateway had no place for a stream
        self._failure_count = 0  # streams in a row that brought no answer
        self._is_watch_idle = False  # otherwise it wakes up by itself when the time of an older request is over
        self._is_aborted = False
        self._has_ended = False
        self.is_closing = False

    # -- messages come in (the lock is held)

    def takes_at_once(self, size_bytes: int) -> bool:
        """Whether messages of this size can be added without `wait_for_room`."""
        return not self._turns and not self.is_closing and self._outbox.has_room(size_bytes)

    async def wait_for_room(self, size_bytes: int, *, may_wait: bool) -> None:
        """Wait until messages of this size can be added, in the order in which callers came.

        Without an order a large batch could wait for ever, because small messages would use all room that becomes free.

        Args:
            size_bytes: of the messages, as `taken_bytes`.
            may_wait: False in a callback: the thread or task that makes room must not wait for it.

        Raises:
            BufferFullError: there was no room for too long.
            ProducerClosedError: the producer is closed.
        """
        if self.is_closing:
            raise ProducerClosedError("the producer is closed")
        if not size_bytes:
            return
        self._outbox.check_fits(size_bytes)
        seconds = self._settings.block_seconds_max if may_wait else 0.0
        if may_wait:
            await self._wait_for_turn(size_bytes, time.monotonic() + seconds)
        if self.is_closing:
            raise ProducerClosedError("the producer was closed")
        if not self._outbox.has_room(size_bytes):
            raise self._outbox.full_error(seconds)

    async def _wait_for_turn(self, size_bytes: int, end: float) -> None:
        turn = self._transport.signal()
        self._turns.append(turn)
        try:
            while not self.is_closing and not (self._turns[0] is turn and self._outbox.has_room(size_bytes)):
                seconds = end - time.monotonic()
                if seconds <= 0:
                    raise self._outbox.full_error(self._settings.block_seconds_max)
                await turn.wait(seconds)
        finally:
            self._turns.remove(turn)
            self._wake_first_turn()

    def add(self, wire: bytes, *, urgent: bool) -> tuple[Settlement, int]:
        """Add a message that there is room for; its settlement and its slot there.

        Args:
            wire: its bytes, as a field of a request.
            urgent: the caller waits for the answer: do not linger.
        """
        outbox = self._outbox
        settlement, slot, wake = outbox.add(wire, time.monotonic(), urgent=urgent)
        if wake and not outbox.is_saturated:
            self._work.send()
        return settlement, slot

    def add_all(self, wires: Sequence[bytes]) -> list[Span]:
        """Add messages that there is room for; where they will be settled."""
        spans = self._outbox.add_all(wires, time.monotonic()) if wires else []
        if not self._outbox.is_saturated:
            self._work.send()
        return spans

    # -- what the caller waits for

    async def flush(self, timeout_seconds: float | None) -> bool:
        """Wait until everything sent before is answered or has failed; False when the time was over first."""
        end = time.monotonic() + (float("inf") if timeout_seconds is None else timeout_seconds)
        with self._lock:
            number = self._outbox.seal()
            self._work.send()
            while not self._outbox.is_finished(number):
                seconds = end - time.monotonic()
                if seconds <= 0:
                    return False
                await self._done.wait(seconds)
            return True

    def begin_close(self) -> None:
        """Accept nothing more and end when all is delivered; does not wait."""
        with self._lock:
            if not self.is_closing:
                self.is_closing = True
                self._outbox.seal()
                self._wake_all()

    async def close(self, timeout_seconds: float | None) -> None:
        """Deliver what waits, within the time, by default `close_seconds_max`; the rest fails."""
        self.begin_close()
        if await self._transport.wait_for_end(
            self._settings.close_seconds_max if timeout_seconds is None else timeout_seconds
        ):
            return
        with self._lock:
            self._is_aborted = True
            self._wake_all()
            if self._stream is not None:
                self._stream.cancel()
        await self._transport.wait_for_end(None)

    # -- requests

    async def next_request(self, stream: Stream) -> bytes | None:
        """Wait for the next request of a stream; None when the stream must end."""
        with self._lock:
            batch = await self._next_batch(stream)
        return None if batch is None else encode_request(batch.wires, self._tail)

    async def _next_batch(self, stream: Stream) -> Batch | None:
        idle_seconds_max = self._settings.idle_seconds_max
        idle_at = time.monotonic() + idle_seconds_max
        while not stream.is_ending:
            now = time.monotonic()
            if now >= stream.ends_at:
                stream.is_ending = True
                break
            batch = self._outbox.take(now)
            if batch is not None:
                if self._outbox.in_flight_count == 1:
                    stream.progress_at = now
                    if self._is_watch_idle:
                        self._watched.send()
                return batch
            if self._outbox.has_work:
                idle_at = now + idle_seconds_max
                await self._work.wait(self._outbox.next_take_seconds(now))
            elif self.is_closing or now >= idle_at:
                stream.is_ending = True
                stream.progress_at = now
                self._watched.send()
            else:
                await self._work.wait(min(idle_at, stream.ends_at) - now)
        return None

    # -- streams and answers

    async def run(self) -> None:
        """Open one stream after the other while there is work, until the producer is closed."""
        try:
            while await self._wait_for_work():
                pause = await self._run_stream()
                if pause is not None:
                    await self._pause(pause)
        except Exception:
            _log.exception("the producer failed unexpectedly and is closed")
        finally:
            outcomes = Outcomes()
            with self._lock:
                self.is_closing = True
                outcomes.give_up(self._outbox.remove_all(), CLOSED)
                self._wake_first_turn()
            self._tell(outcomes)
            with self._lock:
                self._has_ended = True
                self._wake_all()
            await self._transport.close_channel()

    async def _wait_for_work(self) -> bool:
        with self._lock:
            while not self._outbox.has_work:
                self._failure_count = 0
                if self.is_closing:
                    return False
                await self._work.wait(None)
            return not self._is_aborted

    async def _run_stream(self) -> float | None:
        """One stream from begin to end; the pause before the next one in seconds, None for no pause."""
        stream = Stream(self._unary_until if time.monotonic() < self._unary_until else None)
        with self._lock:
            if self._is_aborted:
                return None
            self._stream = stream
        error: ReputClientError | None = None
        try:
            await (self._exchange_unary(stream) if stream.is_unary else self._transport.exchange(stream))
        except grpc.RpcError as rpc_error:
            error = error_of_call(rpc_error)
        except ReputClientError as wrong_answer:
            self._failure_count += 1
            return self._settings.retry.pause_seconds(self._failure_count, wrong_answer)
        finally:
            self._end_stream(stream, error)
        if stream.had_no_place:
            # Random, so that clients that were refused together do not come back together.
            self._unary_until = time.monotonic() + UNARY_SECONDS * random.uniform(0.5, 1.5)  # noqa: S311  # no secret
        return self._pause_after(stream)

    def _pause_after(self, stream: Stream) -> float | None:
        error, retry = stream.error, self._settings.retry
        if error is not None and not stream.had_no_place and is_worth_retrying(error):
            if not stream.has_progress:
                self._failure_count += 1
                return retry.pause_seconds(self._failure_count, error)
            self._failure_count = 0
            return (error.retry_after_seconds or 0.0) + retry.pause_seconds_first
        self._failure_count = 0
        return None

    async def _exchange_unary(self, stream: Stream) -> None:
        """Unary calls in the place of a stream: the next one begins when the answer of the last one was looked at."""
        while (request := await self.next_request(stream)) is not None:
            try:
                answer = await self._transport.append(stream, request, self._settings.request_seconds_max)
            except grpc.RpcError as rpc_error:
                answer = _refusal(rpc_error)
            if answer is None:
                return
            self.take_answer(stream, answer)

    def take_answer(self, stream: Stream, response: pb.AppendMessageStreamResponse) -> None:
        """The gateway has answered the oldest request in flight."""
        outbox = self._outbox
        with self._lock:
            outcomes = stream.take_answer(outbox, response)
            if (outbox.has_waiting and not outbox.is_saturated) or not outbox.in_flight_count:
                self._work.send()
            if self._turns and outbox.has_ample_room:
                self._wake_first_turn()
        self._tell(outcomes)

    def _end_stream(self, stream: Stream, error: ReputClientError | None) -> None:
        with self._lock:
            self._stream = None
            outcomes = stream.end(self._outbox, error)
            self._wake_all()
        stream.cancel()
        self._tell(outcomes)
        self._expire()

    def _expire(self) -> None:
        """Fail the messages whose time or attempts are used up."""
        outcomes = Outcomes()
        with self._lock:
            overdue = self._outbox.remove_overdue(time.monotonic(), self._settings.retry.attempt_count_max)
            if not overdue:
                return
            outcomes.give_up(overdue, OVERDUE)
            self._wake_first_turn()
        self._tell(outcomes)

    async def _pause(self, seconds: float) -> None:
        """Wait between two streams; ends early when nothing is left to send or `close` gives up."""
        end = time.monotonic() + seconds
        while True:
            self._expire()
            with self._lock:
                now = time.monotonic()
                if now >= end or self._is_aborted or not self._outbox.has_work:
                    return
                await self._work.wait(max(0.0, min(end, self._outbox.overdue_at()) - now))

    def _tell(self, outcomes: Outcomes) -> None:
        """Settle futures and call callbacks, outside the lock; then wake callers of `flush`."""
        outcomes.tell()
        with self._lock:
            outcomes.finish(self._outbox)
            self._done.send()

    # -- the time: a gateway that does not read blocks grpc's sending thread

    async def watch(self) -> None:
        """Cancel a stream that is not answered in time; ends with `run`."""
        with self._lock:
            while not self._has_ended:
                stream = self._stream
                if stream is None or not (self._outbox.in_flight_count or stream.is_ending):
                    self._is_watch_idle = True
                    await self._watched.wait(None)
                    self._is_watch_idle = False
                    continue
                # A message whose time is over while it is in flight still gets its answer, which is better than an unknown end.
                seconds = stream.progress_at + self._settings.request_seconds_max - time.monotonic()
                if seconds > 0:
                    await self._watched.wait(min(seconds, WATCH_SECONDS_MAX))
                elif stream.call is None:
                    await self._watched.wait(CALL_SECONDS)
                else:
                    stream.time_out()
                    while self._stream is stream:
                        await self._watched.wait(None)

    # -- with the lock held

    def _wake_first_turn(self) -> None:
        if self._turns:
            self._turns[0].send()

    def _wake_all(self) -> None:
        for signal in (self._work, self._done, self._watched, *self._turns):
            signal.send()


def _refusal(rpc_error: grpc.RpcError) -> pb.AppendMessageStreamResponse:
    """The refusal of a request as a stream's answer; raises the RpcError when it does not say that nothing was written."""
    status = status_of_call(rpc_error)
    error = None if status is None else error_of_status(status)
    if error is None or not error.reason or isinstance(error, UNKNOWN_OUTCOMES):
        raise rpc_error
    return pb.AppendMessageStreamResponse(error=status)
