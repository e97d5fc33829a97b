"""The tasks of an asyncio producer: one opens streams and takes answers, one writes requests, one watches the time.

`delivery.py` does the same with threads; outbox, outcomes and the state of a stream are shared. All runs in one event loop.
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
from reput_client.async_signal import AsyncSignal
from reput_client.channel import SERVICE
from reput_client.encoding import encode_request, encode_request_tail
from reput_client.errors import ProducerClosedError, ReputClientError
from reput_client.producing.batch_delivery import Receipts, tell, watch
from reput_client.producing.futures import OnDelivery
from reput_client.producing.outbox import Outbox, taken_bytes
from reput_client.producing.outcome import CLOSED, OVERDUE, Outcomes
from reput_client.producing.settings import MESSAGE_OVERHEAD_BYTES, ProducerSettings
from reput_client.producing.stream import StreamState
from reput_client.producing.unary_stream import AsyncUnaryStream, open_append, unary_seconds
from reput_client.receipt import SendReceipt
from reput_client.status import error_of_call

_log = logging.getLogger("reput_client")


class AsyncDelivery:
    """Takes messages and delivers them, on one event loop.

    Args:
        channel: to a gateway.
        settings: limits and times.
        owns_channel: close the channel at the end.
    """

    def __init__(self, channel: grpc.aio.Channel, settings: ProducerSettings, *, owns_channel: bool) -> None:
        self._channel = channel
        self._settings = settings
        self._owns_channel = owns_channel
        self._method: Any = channel.stream_stream(
            SERVICE + "AppendMessageStream", response_deserializer=pb.AppendMessageStreamResponse.FromString
        )
        self._append = open_append(channel)
        self._unary_until = 0.0  # the gateway had no place for a stream
        self._tail = encode_request_tail(settings.flush_mode)
        self._outbox = Outbox(settings)
        self._work = AsyncSignal()  # there may be a request to send
        self._room = AsyncSignal()  # there may be room in the buffer
        self._room_turns: deque[object] = deque()  # callers that wait for room, the first one first
        self._done = AsyncSignal()  # batches are finished
        self._watched = AsyncSignal()  # a request is in flight
        self._stream: StreamState | None = None
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
        """Take all of the messages, or none with an error as of `send`; returns the future of their outcome."""
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
        """Deliver what waits, within the time; the rest fails."""
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
        """Accept nothing more and end when all is delivered; does not wait."""
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
        """One stream from begin to end; raises its error if it brought no answer."""
        if self._is_aborted:
            return
        if time.monotonic() < self._unary_until:
            call: Any = AsyncUnaryStream(self._append, self._settings.request_seconds_max)
            stream = self._stream = StreamState(call, self._unary_until)
        else:
            stream = self._stream = StreamState(self._method())
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
        if stream.had_no_place:
            self._unary_until = time.monotonic() + unary_seconds()
        seconds = stream.pause_seconds(self._settings.retry)
        if seconds is not None:
            await self._pause(seconds)

    async def _write(self, stream: StreamState) -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):  # the reader gets the error
            while (request := await self._next_request(stream)) is not None:
                await stream.call.write(request)
            await stream.call.done_writing()

    async def _next_request(self, stream: StreamState) -> bytes | None:
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
                await self._work.wait(min(idle_at, stream.ends_at) - now)
        return None

    def _take_answer(self, stream: StreamState, response: pb.AppendMessageStreamResponse) -> None:
        outcomes = stream.take_answer(self._outbox, response)
        if not self._outbox.is_saturated:
            self._work.send()
        self._tell(outcomes)

    def _end_stream(self, stream: StreamState, error: ReputClientError | None) -> None:
        self._stream = None
        outcomes = stream.end(self._outbox, error)
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
        """Wait between two streams; ends early when nothing is left to send or `close` gives up."""
        end = time.monotonic() + seconds
        while True:
            self._expire()
            now = time.monotonic()
            if now >= end or self._is_aborted or not self._outbox.has_work:
                return
            await self._work.wait(max(0.0, min(end, self._outbox.overdue_at()) - now))

    async def _watch(self, stream: StreamState) -> None:
        while True:
            if not (self._outbox.in_flight_count or stream.is_ending):
                await self._watched.wait(None)
                continue
            # A message whose time is over while it is in flight still gets its answer, which is better than an unknown end.
            end = stream.progress_at + self._settings.request_seconds_max
            seconds = end - time.monotonic()
            if seconds > 0:
                await self._watched.wait(seconds)
                continue
            stream.time_out()
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
                future.exception()  # the callback gets the error: asyncio must not report it as never retrieved
    if on_delivery is not None:
        on_delivery(receipt, error)
