"""The threads of `Producer`: one opens streams and takes answers, one of grpc takes requests, one watches the time.

grpc's sending thread takes the requests from `ProducerCore.next_request` and waits there while the open batch lingers. A fork
copies no threads: in the child every call raises ProducerClosedError.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.errors import ProducerClosedError
from reput_client.producing.core import STREAM_METHOD, UNARY_METHOD, ProducerCore, Stream
from reput_client.producing.futures import DeliveryFuture, OnDelivery, Span
from reput_client.producing.outbox import taken_bytes
from reput_client.producing.settings import MESSAGE_OVERHEAD_BYTES, ProducerSettings
from reput_client.threads_and_loops import ThreadSignal, run_blocking


class ThreadSender:
    """Takes messages of many threads and delivers them; a `Transport` of its `ProducerCore`.

    Args:
        channel: to a gateway.
        settings: limits and times.
        owns_channel: close the channel at the end.

    Attributes:
        is_forked: this is the copy in a forked child, without threads; its locks may be held for ever.
    """

    def __init__(self, channel: grpc.Channel, settings: ProducerSettings, *, owns_channel: bool) -> None:
        answer_of = pb.AppendMessageStreamResponse.FromString  # a unary answer has the same first field
        self._channel = channel
        self._owns_channel = owns_channel
        self._stream: Any = channel.stream_stream(STREAM_METHOD, response_deserializer=answer_of)
        self._append: Any = channel.unary_unary(UNARY_METHOD, response_deserializer=answer_of)
        self._thread: threading.Thread | None = None
        self.lock = threading.Lock()
        self.is_forked = False
        self.core = ProducerCore(self, settings)

    # -- what the producer's callers do

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self.core.is_closing or self.is_forked

    def send(self, wire: bytes, on_delivery: OnDelivery | None, *, urgent: bool) -> DeliveryFuture:
        """Take a message.

        Args:
            wire: its bytes, as a field of a request.
            on_delivery: called with the receipt or the error.
            urgent: the caller waits for the answer: do not linger.

        Raises:
            BufferFullError: there was no room for too long.
            ProducerClosedError: closed, or forked.
        """
        core = self.core
        if self.is_forked:
            raise self._forked()
        with self.lock:
            size_bytes = len(wire) + MESSAGE_OVERHEAD_BYTES
            if not core.takes_at_once(size_bytes):
                self._wait_for_room(size_bytes)
            settlement, slot = core.add(wire, urgent=urgent)
            if on_delivery is not None:
                settlement.listen(slot, on_delivery)
            if self._thread is None:
                self._start()
        return DeliveryFuture(settlement, slot)

    def send_all(self, wires: Sequence[bytes]) -> list[Span]:
        """Take all of the messages, or none with an error as of `send`; returns where they will be settled."""
        if self.is_forked:
            raise self._forked()
        size_bytes = taken_bytes(wires)
        with self.lock:
            if not self.core.takes_at_once(size_bytes):
                self._wait_for_room(size_bytes)
            spans = self.core.add_all(wires)
            if self._thread is None and wires:
                self._start()
        return spans

    def flush(self, timeout_seconds: float | None) -> bool:
        """See `ProducerCore.flush`."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a callback cannot wait for the thread that it runs in")
        return run_blocking(self.core.flush, timeout_seconds)

    def begin_close(self) -> None:
        """See `ProducerCore.begin_close`."""
        self.core.begin_close()
        if self._thread is None:
            run_blocking(self.close_channel)

    def close(self, timeout_seconds: float | None) -> None:
        """See `ProducerCore.close`. In a callback: begin to close and return at once."""
        if self.is_forked:
            return
        self.begin_close()
        if threading.current_thread() is not self._thread:
            run_blocking(self.core.close, timeout_seconds)

    def _forked(self) -> ProducerClosedError:
        return ProducerClosedError("this producer was made before the fork: make one in each process")

    def _wait_for_room(self, size_bytes: int) -> None:
        may_wait = (
            threading.current_thread() is not self._thread
        )  # it is in a callback, and only this thread makes room
        run_blocking(self.core.wait_for_room, size_bytes, may_wait=may_wait)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="reput-producer", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name="reput-producer-watch", daemon=True).start()

    def _run(self) -> None:
        run_blocking(self.core.run)

    def _watch(self) -> None:
        run_blocking(self.core.watch)

    # -- the transport of the core

    def signal(self) -> ThreadSignal:
        """See Transport."""
        return ThreadSignal(self.lock)

    async def exchange(self, stream: Stream) -> None:
        """See Transport."""
        stream.call = self._stream(self._requests(stream))
        for response in stream.call:
            self.core.take_answer(stream, response)

    def _requests(self, stream: Stream) -> Iterator[bytes]:
        while (request := run_blocking(self.core.next_request, stream)) is not None:
            yield request

    async def append(self, stream: Stream, request: bytes, seconds: float) -> Any:
        """See Transport."""
        with self.lock:
            if stream.is_ending:
                return None
            stream.call = self._append.future(request, timeout=seconds)
        try:
            return stream.call.result()
        except grpc.FutureCancelledError:
            return None

    async def wait_for_end(self, seconds: float | None) -> bool:
        """See Transport."""
        if self._thread is None:
            return True
        self._thread.join(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))
        return not self._thread.is_alive()

    async def close_channel(self) -> None:
        """See Transport."""
        if self._owns_channel:
            self._channel.close()
