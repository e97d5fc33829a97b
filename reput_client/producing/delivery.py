"""The threads of a producer: one opens streams and takes answers, one of grpc takes requests, one watches the time.

grpc's sending thread takes the requests from `Stream` and waits there while the open batch lingers. Answers come in the order
of the requests. When a stream ends, its requests without an answer go back to the front of the outbox and are sent again on the
next stream, with `deduplicate`, so that they are stored once.

A fork copies no threads: in the child every call raises ProducerClosedError.
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import grpc
import tenacity

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.channel import SERVICE
from reput_client.encoding import encode_request, encode_request_tail
from reput_client.errors import ProducerClosedError, ReputClientError
from reput_client.producing.batch_delivery import Span
from reput_client.producing.futures import DeliveryFuture, OnDelivery
from reput_client.producing.outbox import Batch, Outbox, taken_bytes
from reput_client.producing.outcome import CLOSED, OVERDUE, Outcomes
from reput_client.producing.room_queue import RoomQueue
from reput_client.producing.settings import MESSAGE_OVERHEAD_BYTES, ProducerSettings
from reput_client.producing.stream import Stream
from reput_client.producing.unary_stream import UnaryStream, open_append, unary_seconds
from reput_client.status import error_of_call

# A condition cannot wait without a limit; the watch checks again after this time.
WATCH_SECONDS_MAX = 3600.0
# How long the watch waits for grpc's handle of a stream that is being opened; usually microseconds.
CALL_SECONDS = 0.05

_log = logging.getLogger("reput_client")


class Delivery:
    """Takes messages and delivers them; for many threads.

    Args:
        channel: to a gateway.
        settings: limits and times.
        owns_channel: close the channel at the end.

    Attributes:
        is_forked: this is the copy in a forked child, without threads; its locks may be held for ever.
    """

    def __init__(self, channel: grpc.Channel, settings: ProducerSettings, *, owns_channel: bool) -> None:
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
        self.is_forked = False
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # notified when there may be a request to send
        self._room = RoomQueue(self._lock, lambda: self._is_closing)  # callers of `send` that wait for room
        self._done = threading.Condition(self._lock)  # notified when batches are finished
        self._watched = threading.Condition(self._lock)  # notified when a request is in flight
        self._done_waiter_count = 0
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None
        self._is_watch_idle = False  # otherwise it wakes up by itself when the time of an older request is over
        self._is_closing = False
        self._is_aborted = False
        self._has_ended = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._is_closing or self.is_forked

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
        if self.is_forked:
            raise ProducerClosedError("this producer was made before the fork: make one in each process")
        outbox = self._outbox
        with self._lock:
            if self._is_closing:
                raise ProducerClosedError("the producer is closed")
            size_bytes = len(wire) + MESSAGE_OVERHEAD_BYTES
            if self._room or not outbox.has_room(size_bytes):
                self._wait_for_room(size_bytes)
            settlement, slot, wake = outbox.add(wire, time.monotonic(), urgent=urgent)
            if on_delivery is not None:
                settlement.listen(slot, on_delivery)
            if wake and not outbox.is_saturated:
                self._work.notify_all()
            if self._thread is None:
                self._start()
        return DeliveryFuture(settlement, slot)

    def send_all(self, wires: Sequence[bytes]) -> list[Span]:
        """Take all of the messages, or none with an error as of `send`; returns where they will be settled."""
        if self.is_forked:
            raise ProducerClosedError("this producer was made before the fork: make one in each process")
        outbox, size_bytes = self._outbox, taken_bytes(wires)
        with self._lock:
            if self._is_closing:
                raise ProducerClosedError("the producer is closed")
            if not wires:
                return []
            if self._room or not outbox.has_room(size_bytes):
                self._wait_for_room(size_bytes)
            spans = outbox.add_all(wires, time.monotonic())
            if not outbox.is_saturated:
                self._work.notify_all()
            if self._thread is None:
                self._start()
        return spans

    def flush(self, timeout_seconds: float | None) -> bool:
        """Wait until everything sent before is answered or has failed; False when the time was over first."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a callback cannot wait for the thread that it runs in")
        with self._lock:
            number = self._outbox.seal()
            self._work.notify_all()
            self._done_waiter_count += 1
            try:
                return self._done.wait_for(lambda: self._outbox.is_finished(number), timeout_seconds)
            finally:
                self._done_waiter_count -= 1

    def close(self, timeout_seconds: float | None) -> None:
        """Deliver what waits, within the time; the rest fails. In a callback: start that and return at once."""
        if self.is_forked:
            return
        if timeout_seconds is None:
            timeout_seconds = self._settings.close_seconds_max
        self.begin_close()
        if threading.current_thread() is self._thread:
            return
        thread = self._thread
        if thread is not None:
            thread.join(timeout_seconds)
            with self._lock:
                self._is_aborted = True
                self._wake_all()
                if self._stream is not None and self._stream.call is not None:
                    self._stream.call.cancel()
            thread.join()

    def begin_close(self) -> None:
        """Accept nothing more and end when all is delivered; does not wait."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            self._outbox.seal()
            self._wake_all()
            was_used = self._thread is not None
        if not was_used:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._has_ended = True
            self._wake_all()
        if self._owns_channel:
            self._channel.close()

    # Called by grpc's sending thread.

    def _next_request(self, stream: Stream) -> bytes | None:
        batch = self._take(stream)
        return None if batch is None else encode_request(batch.wires, self._tail)

    def _take(self, stream: Stream) -> Batch | None:
        with self._lock:
            idle_at = time.monotonic() + self._settings.idle_seconds_max
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
                            self._watched.notify()
                    return batch
                if self._outbox.has_work:
                    idle_at = now + self._settings.idle_seconds_max
                    self._work.wait(self._outbox.next_take_seconds(now))
                elif self._is_closing or now >= idle_at:
                    stream.is_ending = True
                    stream.progress_at = now
                    self._watched.notify()
                else:
                    self._work.wait(min(idle_at, stream.ends_at) - now)
            return None

    # The thread that opens streams and takes answers.

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                tenacity.Retrying(
                    retry=tenacity.retry_if_exception_type(ReputClientError),
                    stop=lambda _state: not self._outbox.has_work or self._is_aborted,
                    wait=self._settings.retry.wait(),
                    sleep=self._pause,
                    retry_error_callback=lambda _state: None,
                )(self._run_stream)
        except Exception:
            _log.exception("the producer failed unexpectedly and is closed")
        finally:
            self._give_up_all()
            self._end()

    def _wait_for_work(self) -> bool:
        with self._lock:
            while not self._outbox.has_work:
                if self._is_closing:
                    return False
                self._work.wait()
            return not self._is_aborted

    def _run_stream(self) -> None:
        """One stream from begin to end; raises its error if it brought no answer."""
        is_unary = time.monotonic() < self._unary_until
        stream = Stream(self._next_request, self._unary_until if is_unary else float("inf"))
        with self._lock:
            if self._is_aborted:
                return
            self._stream = stream
        error = None
        try:
            stream.call = (
                UnaryStream(self._append, stream, self._settings.request_seconds_max)
                if is_unary
                else self._method(stream)
            )
            for response in stream.call:
                self._take_answer(stream, response)
        except grpc.RpcError as rpc_error:
            error = error_of_call(rpc_error)
        finally:
            self._end_stream(stream, error)
        if stream.had_no_place:
            self._unary_until = time.monotonic() + unary_seconds()
        seconds = stream.pause_seconds(self._settings.retry)
        if seconds is not None:
            self._pause(seconds)

    def _take_answer(self, stream: Stream, response: pb.AppendMessageStreamResponse) -> None:
        outbox = self._outbox
        with self._lock:
            outcomes = stream.take_answer(outbox, response)
            if (outbox.has_waiting and not outbox.is_saturated) or not outbox.in_flight_count:
                self._work.notify_all()
            if self._room and outbox.has_ample_room:
                self._room.wake_first()
        self._tell(outcomes)

    def _end_stream(self, stream: Stream, error: ReputClientError | None) -> None:
        with self._lock:
            self._stream = None
            outcomes = stream.end(self._outbox, error)
            self._wake_all()
        if stream.call is not None:
            stream.call.cancel()
        self._tell(outcomes)
        self._expire()

    def _expire(self) -> None:
        outcomes = Outcomes()
        with self._lock:
            overdue = self._outbox.remove_overdue(time.monotonic(), self._settings.retry.attempt_count_max)
            if not overdue:
                return
            outcomes.give_up(overdue, OVERDUE)
            self._room.wake_first()
        self._tell(outcomes)

    def _pause(self, seconds: float) -> None:
        """Wait between two streams; ends early when nothing is left to send or `close` gives up."""
        end = time.monotonic() + seconds
        while True:
            self._expire()
            with self._lock:
                now = time.monotonic()
                if now >= end or self._is_aborted or not self._outbox.has_work:
                    return
                self._work.wait(max(0.0, min(end, self._outbox.overdue_at()) - now))

    def _tell(self, outcomes: Outcomes) -> None:
        """Settle futures and call callbacks, outside the lock; then wake callers of `flush`."""
        outcomes.tell()
        with self._lock:
            outcomes.finish(self._outbox)
            if self._done_waiter_count:
                self._done.notify_all()

    def _give_up_all(self) -> None:
        outcomes = Outcomes()
        with self._lock:
            self._is_closing = True
            outcomes.give_up(self._outbox.remove_all(), CLOSED)
            self._room.wake_first()
        self._tell(outcomes)

    # The thread that watches the time: a gateway that does not read blocks grpc's sending thread.

    def _watch(self) -> None:
        with self._lock:
            while not self._has_ended:
                stream = self._stream
                if stream is None or not (self._outbox.in_flight_count or stream.is_ending):
                    self._is_watch_idle = True
                    self._watched.wait()
                    self._is_watch_idle = False
                    continue
                # A message whose time is over while it is in flight still gets its answer, which is better than an unknown end.
                end = stream.progress_at + self._settings.request_seconds_max
                seconds = end - time.monotonic()
                if seconds > 0:
                    self._watched.wait(min(seconds, WATCH_SECONDS_MAX))
                elif stream.call is None:
                    self._watched.wait(CALL_SECONDS)
                else:
                    stream.time_out()
                    while self._stream is stream:
                        self._watched.wait()

    # With the lock held.

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="reput-producer", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name="reput-producer-watch", daemon=True).start()

    def _wait_for_room(self, size_bytes: int) -> None:
        self._outbox.check_fits(size_bytes)
        if threading.current_thread() is self._thread:  # a callback: only this thread makes room, so it must not wait
            seconds, has_room = 0.0, self._outbox.has_room(size_bytes)
        else:
            seconds = self._settings.block_seconds_max
            has_room = self._room.wait(lambda: self._outbox.has_room(size_bytes), seconds)
        if self._is_closing:
            raise ProducerClosedError("the producer was closed")
        if not has_room:
            raise self._outbox.full_error(seconds)

    def _wake_all(self) -> None:
        for condition in (self._work, self._done, self._watched):
            condition.notify_all()
        self._room.wake_all()
