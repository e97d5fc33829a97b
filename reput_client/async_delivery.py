"""The tasks of an asyncio producer: one opens streams and takes answers, one writes requests, one watches the time.

What `delivery.py` does with threads; the outbox and the outcomes are the same. All of it belongs to one event loop.
"""

import asyncio
import contextlib
import functools
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import grpc
import tenacity

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.batch_delivery import Receipts, tell, watch
from reput_client.channel import SERVICE
from reput_client.encoding import encode_request, encode_request_tail
from reput_client.errors import (
    DeadlineExceededError,
    ProducerClosedError,
    ReputClientError,
    ServiceUnavailableError,
    is_worth_retrying,
)
from reput_client.futures import OnDelivery
from reput_client.outbox import Outbox, taken_bytes
from reput_client.outcome import CLOSED, OVERDUE, Outcomes
from reput_client.receipt import SendReceipt
from reput_client.settings import MESSAGE_OVERHEAD_BYTES, ProducerSettings
from reput_client.status import error_of_call

_log = logging.getLogger("reput_client")


class _Signal:
    """Wakes everybody who waits for it, each with a limit of its own."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def send(self) -> None:
        """Wake all."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait(self, seconds: float | None) -> None:
        """Return at the next `send`, or after so long."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if seconds == float("inf") else seconds):
                    await waiter
        finally:
            self._waiters.discard(waiter)


class _Stream:
    """One append stream; attributes as in `stream.Stream`."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.is_ending = False
        self.has_progress = False
        self.progress_at = time.monotonic()
        self.error: ReputClientError | None = None


class AsyncDelivery:
    """Takes messages and delivers them, on one event loop.

    Args:
        channel: to a gateway.
        settings: limits and habits.
        owns_channel: close the channel in the end.
    """

    def __init__(self, channel: grpc.aio.Channel, settings: ProducerSettings, *, owns_channel: bool) -> None:
        self._channel = channel
        self._settings = settings
        self._owns_channel = owns_channel
        self._method: Any = channel.stream_stream(
            SERVICE + "AppendMessageStream", response_deserializer=pb.AppendMessageStreamResponse.FromString
        )
        self._tail = encode_request_tail(settings.flush_mode)
        self._outbox = Outbox(settings)
        self._work = _Signal()  # the writer: there may be a request
        self._room = _Signal()  # whoever sends: there may be room
        self._room_turns: deque[object] = deque()  # who waits for room, in the order of coming
        self._done = _Signal()  # whoever flushes: batches are finished
        self._watched = _Signal()  # the watch: something is in flight
        self._stream: _Stream | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._is_aborted = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._is_closing

    async def send(self, wire: bytes, on_delivery: OnDelivery | None, *, urgent: bool) -> asyncio.Future[SendReceipt]:
        """Take a message; arguments as of `Delivery.send`.

        Raises:
            BufferFullError: there was no room for too long.
            ProducerClosedError: closed.
        """
        size_bytes = len(wire) + MESSAGE_OVERHEAD_BYTES
        if self._room_turns or not self._outbox.has_room(size_bytes):
            await self._wait_for_room(size_bytes)
        if self._is_closing:
            raise ProducerClosedError("the producer is closed")
        settlement, slot, wake = self._outbox.add(wire, time.monotonic(), urgent=urgent)
        future: asyncio.Future[SendReceipt] = asyncio.get_running_loop().create_future()
        settlement.listen(slot, functools.partial(_tell_future, future, on_delivery))
        if wake and not self._outbox.is_saturated:
            self._work.send()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="reput-producer")
        return future

    async def send_all(self, wires: Sequence[bytes]) -> asyncio.Future[Receipts]:
        """Take messages, all of them or, with an error as of `send`, none; where their outcome will be."""
        size_bytes = taken_bytes(wires)
        if self._room_turns or not self._outbox.has_room(size_bytes):
            await self._wait_for_room(size_bytes)
        if self._is_closing:
            raise ProducerClosedError("the producer is closed")
        future: asyncio.Future[Receipts] = asyncio.get_running_loop().create_future()
        spans = self._outbox.add_all(wires, time.monotonic()) if wires else []
        watch(spans, functools.partial(tell, future))
        if not self._outbox.is_saturated:
            self._work.send()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="reput-producer")
        return future

    async def flush(self, timeout_seconds: float | None) -> bool:
        """Wait until everything sent before is answered or has failed; False when the time was over first."""
        number = self._outbox.seal()
        self._work.send()
        end = time.monotonic() + (float("inf") if timeout_seconds is None else timeout_seconds)
        while not self._outbox.is_finished(number):
            if time.monotonic() >= end:
                return False
            await self._done.wait(end - time.monotonic())
        return True

    async def close(self, timeout_seconds: float | None) -> None:
        """Deliver what waits, for so long; the rest fails."""
        if timeout_seconds is None:
            timeout_seconds = self._settings.close_seconds_max
        self.begin_close()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=None if timeout_seconds == float("inf") else timeout_seconds)
            if not self._task.done():
                self._is_aborted = True
                self._wake_all()
                if self._stream is not None:
                    self._stream.call.cancel()
                await asyncio.wait([self._task])
        elif self._owns_channel:
            await self._channel.close()

    def begin_close(self) -> None:
        """Take nothing more and end once all is delivered; does not wait."""
        self._is_closing = True
        self._outbox.seal()
        self._wake_all()

    async def _run(self) -> None:
        try:
            while await self._wait_for_work():
                await tenacity.AsyncRetrying(
                    retry=tenacity.retry_if_exception_type(ReputClientError),
                    stop=lambda _state: not self._outbox.has_work or self._is_aborted,
                    wait=self._settings.retry.wait(),
                    sleep=self._pause,
                    retry_error_callback=lambda _state: None,
                )(self._run_stream)
        except Exception:
            _log.exception("the producer failed unexpectedly and is closed")
        finally:
            self._is_closing = True
            outcomes = Outcomes()
            outcomes.give_up(self._outbox.remove_all(), CLOSED)
            self._tell(outcomes)
            self._wake_all()
            if self._owns_channel:
                await self._channel.close()

    async def _wait_for_work(self) -> bool:
        while not self._outbox.has_work:
            if self._is_closing:
                return False
            await self._work.wait(None)
        return not self._is_aborted

    async def _run_stream(self) -> None:
        """One stream from its beginning to its end; raises what ended it, unless it had got anywhere."""
        if self._is_aborted:
            return
        stream = self._stream = _Stream(self._method())
        helpers = asyncio.gather(self._write(stream), self._watch(stream))
        error = None
        try:
            while (response := await stream.call.read()) is not grpc.aio.EOF:
                self._take_answer(stream, response)
        except grpc.RpcError as rpc_error:
            error = error_of_call(rpc_error)
        except asyncio.CancelledError:
            # The call was cancelled from this side, unless it was this task.
            if stream.error is None and not self._is_aborted:
                raise
        finally:
            self._end_stream(stream, error)
            helpers.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await helpers
        if stream.error is None or not is_worth_retrying(stream.error):
            return
        if stream.has_progress:
            await self._pause((stream.error.retry_after_seconds or 0.0) + self._settings.retry.pause_seconds_first)
            return
        raise stream.error

    async def _write(self, stream: _Stream) -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):  # who reads is told why
            while (request := await self._next_request(stream)) is not None:
                await stream.call.write(request)
            await stream.call.done_writing()

    async def _next_request(self, stream: _Stream) -> bytes | None:
        idle_seconds_max = self._settings.idle_seconds_max
        idle_at = time.monotonic() + idle_seconds_max
        while not stream.is_ending:
            now = time.monotonic()
            batch = self._outbox.take(now)
            if batch is not None:
                if self._outbox.in_flight_count == 1:
                    stream.progress_at = now
                    self._watched.send()
                return encode_request(batch.wires, self._tail)
            if self._outbox.has_work:
                idle_at = now + idle_seconds_max
                await self._work.wait(self._outbox.next_take_seconds(now))
            elif self._is_closing or now >= idle_at:
                stream.is_ending = True
                stream.progress_at = now
                self._watched.send()
            else:
                await self._work.wait(idle_at - now)
        return None

    def _take_answer(self, stream: _Stream, response: pb.AppendMessageStreamResponse) -> None:
        outcomes = Outcomes()
        outcomes.take_answer(self._outbox, response)
        if outcomes.refusal is None:
            stream.has_progress = True
        else:
            stream.error = stream.error or outcomes.refusal
            stream.is_ending = True
        stream.progress_at = time.monotonic()
        if not self._outbox.is_saturated:
            self._work.send()
        self._tell(outcomes)

    def _end_stream(self, stream: _Stream, error: ReputClientError | None) -> None:
        outcomes = Outcomes()
        outbox = self._outbox
        stream.is_ending = True
        self._stream = None
        if error is None and outbox.in_flight_count:
            error = ServiceUnavailableError("the gateway ended the stream without an answer")
        # A reason of our own says more than the CANCELLED that followed from it.
        error = stream.error = stream.error or error
        if error is not None and not is_worth_retrying(error):
            outcomes.take_stream_error(outbox, error)
        outbox.give_back(error)
        stream.call.cancel()
        self._tell(outcomes)
        self._expire()

    def _expire(self) -> None:
        overdue = self._outbox.remove_overdue(time.monotonic(), self._settings.retry.attempt_count_max)
        if overdue:
            outcomes = Outcomes()
            outcomes.give_up(overdue, OVERDUE)
            self._tell(outcomes)

    async def _pause(self, seconds: float) -> None:
        """Between two streams; ends early when nothing is left to send or `close` had enough."""
        end = time.monotonic() + seconds
        while True:
            self._expire()
            now = time.monotonic()
            if now >= end or self._is_aborted or not self._outbox.has_work:
                return
            await self._work.wait(max(0.0, min(end, self._outbox.overdue_at()) - now))

    async def _watch(self, stream: _Stream) -> None:
        while True:
            if not (self._outbox.in_flight_count or stream.is_ending):
                await self._watched.wait(None)
                continue
            # A message whose time is over while it is under way still gets its answer: it says more than silence.
            end = stream.progress_at + self._settings.request_seconds_max
            seconds = end - time.monotonic()
            if seconds > 0:
                await self._watched.wait(seconds)
                continue
            stream.error = stream.error or DeadlineExceededError("the gateway did not answer in time")
            stream.is_ending = True
            stream.call.cancel()
            return

    def _tell(self, outcomes: Outcomes) -> None:
        outcomes.tell()
        outcomes.finish(self._outbox)
        if self._outbox.has_ample_room:
            self._room.send()
        self._done.send()

    async def _wait_for_room(self, size_bytes: int) -> None:
        seconds = self._settings.block_seconds_max
        self._outbox.check_fits(size_bytes)
        end = time.monotonic() + seconds
        turn = object()
        self._room_turns.append(turn)
        try:
            while not self._is_closing and not (self._room_turns[0] is turn and self._outbox.has_room(size_bytes)):
                if time.monotonic() >= end:
                    raise self._outbox.full_error(seconds)
                await self._room.wait(end - time.monotonic())
        finally:
            self._room_turns.remove(turn)
            self._room.send()

    def _wake_all(self) -> None:
        for signal in (self._work, self._room, self._done, self._watched):
            signal.send()


def _tell_future(
    future: asyncio.Future[SendReceipt],
    on_delivery: OnDelivery | None,
    receipt: SendReceipt | None,
    error: ReputClientError | None,
) -> None:
    if not future.done():  # cancelled by its holder
        if error is None:
            future.set_result(receipt)  # type: ignore[arg-type]
        else:
            future.set_exception(error)
            if on_delivery is not None:
                future.exception()  # asyncio complains of errors that nobody was told
    if on_delivery is not None:
        on_delivery(receipt, error)
