"""The tasks of `AsyncProducer`: one opens streams and takes answers, one writes requests, one watches the time."""

import asyncio
import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.errors import BufferFullError, ReputClientError
from reput_client.producing.core import STREAM_METHOD, UNARY_METHOD, ProducerCore, Stream
from reput_client.producing.futures import OnBatch, OnDelivery, Receipts, tell_batch, when_settled
from reput_client.producing.outbox import taken_bytes
from reput_client.producing.settings import MESSAGE_OVERHEAD_BYTES, ProducerSettings
from reput_client.receipt import SendReceipt
from reput_client.threads_and_loops import LoopSignal


class LoopSender:
    """Takes messages of the tasks of one event loop and delivers them; a `Transport` of its `ProducerCore`.

    Args:
        channel: to a gateway.
        settings: limits and times.
        owns_channel: close the channel at the end.
    """

    def __init__(self, channel: grpc.aio.Channel, settings: ProducerSettings, *, owns_channel: bool) -> None:
        answer_of = pb.AppendMessageStreamResponse.FromString  # a unary answer has the same first field
        self._channel = channel
        self._owns_channel = owns_channel
        self._stream: Any = channel.stream_stream(STREAM_METHOD, response_deserializer=answer_of)
        self._append: Any = channel.unary_unary(UNARY_METHOD, response_deserializer=answer_of)
        self._tasks: list[asyncio.Task[None]] = []
        self.lock: contextlib.nullcontext[None] = contextlib.nullcontext()  # one task runs at a time
        self.core = ProducerCore(self, settings)

    # -- what the producer's callers do

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self.core.is_closing

    async def send(self, wire: bytes, on_delivery: OnDelivery | None, *, urgent: bool) -> asyncio.Future[SendReceipt]:
        """Take a message; arguments and errors as of `ThreadSender.send`."""
        core, size_bytes = self.core, len(wire) + MESSAGE_OVERHEAD_BYTES
        if not core.takes_at_once(size_bytes):
            await core.wait_for_room(size_bytes, may_wait=True)
        settlement, slot = core.add(wire, urgent=urgent)
        future: asyncio.Future[SendReceipt] = asyncio.get_running_loop().create_future()
        settlement.listen(slot, functools.partial(_tell_future, future, on_delivery))
        self._start()
        return future

    def post(self, wire: bytes, on_delivery: OnDelivery) -> None:
        """Take a message without waiting for room; BufferFullError when there is none, or the producer is closed."""
        if not self.core.takes_at_once(len(wire) + MESSAGE_OVERHEAD_BYTES):
            raise BufferFullError("there is no room for the message, or its producer is closed")
        settlement, slot = self.core.add(wire, urgent=False)
        settlement.listen(slot, on_delivery)
        self._start()

    async def send_all(self, wires: Sequence[bytes], told: OnBatch | None = None) -> asyncio.Future[Receipts]:
        """Take all of the messages, or none with an error as of `send`; returns the future of their outcome.

        Args:
            wires: the bytes of the messages.
            told: called with the outcome, and with what tells the future.
        """
        size_bytes = taken_bytes(wires)
        if not self.core.takes_at_once(size_bytes):
            await self.core.wait_for_room(size_bytes, may_wait=True)
        future: asyncio.Future[Receipts] = asyncio.get_running_loop().create_future()
        tell = functools.partial(tell_batch, future)
        when_settled(self.core.add_all(wires), tell if told is None else functools.partial(told, tell))
        self._start()
        return future

    def _start(self) -> None:
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self.core.run(), name="reput-producer"),
                asyncio.create_task(self.core.watch(), name="reput-producer-watch"),
            ]

    # -- the transport of the core

    def signal(self) -> LoopSignal:
        """See Transport."""
        return LoopSignal()

    async def exchange(self, stream: Stream) -> None:
        """See Transport."""
        call = stream.call = self._stream()
        writer = asyncio.create_task(self._write(stream), name="reput-producer-writer")
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                self.core.take_answer(stream, response)
        except asyncio.CancelledError:
            if not stream.is_cancelled:  # this task was cancelled, not the call
                raise
        finally:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer

    async def _write(self, stream: Stream) -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):  # the reader gets the error
            while (request := await self.core.next_request(stream)) is not None:
                await stream.call.write(request)
            await stream.call.done_writing()

    async def append(self, stream: Stream, request: bytes, seconds: float) -> Any:
        """See Transport."""
        if stream.is_ending:
            return None
        stream.call = self._append(request, timeout=seconds)
        try:
            return await stream.call
        except asyncio.CancelledError:
            if stream.is_cancelled:
                return None
            stream.call.cancel()  # this task was cancelled, not the call
            raise

    async def wait_for_end(self, seconds: float | None) -> bool:
        """See Transport."""
        if not self._tasks:
            return True
        await asyncio.wait(self._tasks, timeout=None if seconds == float("inf") else seconds)
        return all(task.done() for task in self._tasks)

    async def close_channel(self) -> None:
        """See Transport."""
        if self._owns_channel:
            await self._channel.close()

    async def close(self, timeout_seconds: float | None) -> None:
        """See `ProducerCore.close`."""
        await self.core.close(timeout_seconds)
        if not self._tasks:
            await self.close_channel()


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
