"""The threads of a producer: one opens streams and takes answers, grpc's own asks for requests, one watches the time.

The stream's requests come from `Stream`, which grpc's sending thread asks for the next one; it waits there while the
open batch lingers. Answers come in the order of requests. However a stream ends, what it left without an answer goes
back to the front of the outbox and is sent again on the next one, with `deduplicate`, so that it is stored once.

A fork copies no threads: in the child, nothing here works and everything says so.
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import grpc
import tenacity

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.batch_delivery import Span
from reput_client.channel import SERVICE
from reput_client.encoding import encode_request, encode_request_tail
from reput_client.errors import (
    DeadlineExceededError,
    ProducerClosedError,
    ReputClientError,
    ServiceUnavailableError,
    is_worth_retrying,
)
from reput_client.futures import DeliveryFuture, OnDelivery
from reput_client.outbox import Batch, Outbox, taken_bytes
from reput_client.outcome import CLOSED, OVERDUE, Outcomes
from reput_client.room_queue import RoomQueue
from reput_client.settings import MESSAGE_OVERHEAD_BYTES, ProducerSettings
from reput_client.status import error_of_call
from reput_client.stream import Stream

# A condition cannot wait for ever; the watch looks again after so long.
WATCH_SECONDS_MAX = 3600.0
# A stream is being opened; grpc gives its handle within microseconds.
CALL_SECONDS = 0.05

_log = logging.getLogger("reput_client")


class Delivery:
    """Takes messages and delivers them; for many threads.

    Args:
        channel: to a gateway.
        settings: limits and habits.
        owns_channel: close the channel in the end.

    Attributes:
        is_forked: this is a child's copy, without threads, and perhaps with locks that nobody will release.
    """

    def __init__(self, channel: grpc.Channel, settings: ProducerSettings, *, owns_channel: bool) -> None:
        self._channel = channel
        self._settings = settings
        self._owns_channel = owns_channel
        self._method: Any = channel.stream_stream(
            SERVICE + "AppendMessageStream", response_deserializer=pb.AppendMessageStreamResponse.FromString
        )
        self._tail = encode_request_tail(settings.flush_mode)
        self._outbox = Outbox(settings)
        self.is_forked = False
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # whoever takes requests: there may be one
        self._room = RoomQueue(self._lock, lambda: self._is_closing)  # whoever sends: there is room
        self._done = threading.Condition(self._lock)  # whoever flushes: batches are finished
        self._watched = threading.Condition(self._lock)  # the watch: something is in flight
        self._done_waiter_count = 0
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None
        self._is_watch_idle = False  # else it looks by itself when the time of an older request is over
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
            wire: its bytes as they stand in a request.
            on_delivery: called with the receipt or the error.
            urgent: somebody waits for it.

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
        """Take messages, all of them or, with an error as of `send`, none; where they will be settled."""
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
        """Deliver what waits, for so long; the rest fails. From a callback: begin to, and return at once."""
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
        """Take nothing more and end once all is delivered; does not wait."""
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
                    self._work.wait(idle_at - now)
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
        """One stream from its beginning to its end; raises what ended it, unless it had got anywhere."""
        stream = Stream(self._next_request)
        with self._lock:
            if self._is_aborted:
                return
            self._stream = stream
        error = None
        try:
            stream.call = self._method(stream)
            for response in stream.call:
                self._take_answer(stream, response)
        except grpc.RpcError as rpc_error:
            error = error_of_call(rpc_error)
        finally:
            self._end_stream(stream, error)
        if stream.error is None or not is_worth_retrying(stream.error):
            return
        if stream.has_progress:
            self._pause((stream.error.retry_after_seconds or 0.0) + self._settings.retry.pause_seconds_first)
            return
        raise stream.error

    def _take_answer(self, stream: Stream, response: pb.AppendMessageStreamResponse) -> None:
        outcomes = Outcomes()
        outbox = self._outbox
        with self._lock:
            outcomes.take_answer(outbox, response)
            if outcomes.refusal is None:
                stream.has_progress = True
            else:
                stream.error = stream.error or outcomes.refusal
                stream.is_ending = True
            stream.progress_at = time.monotonic()
            if (outbox.has_waiting and not outbox.is_saturated) or not outbox.in_flight_count:
                self._work.notify_all()
            if self._room and outbox.has_ample_room:
                self._room.wake_first()
        self._tell(outcomes)

    def _end_stream(self, stream: Stream, error: ReputClientError | None) -> None:
        outcomes = Outcomes()
        outbox = self._outbox
        with self._lock:
            stream.is_ending = True
            self._stream = None
            if error is None and outbox.in_flight_count:
                error = ServiceUnavailableError("the gateway ended the stream without an answer")
            # A reason of our own says more than the CANCELLED that followed from it.
            error = stream.error = stream.error or error
            if error is not None and not is_worth_retrying(error):
                outcomes.take_stream_error(outbox, error)
            outbox.give_back(error)
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
        """Between two streams; ends early when nothing is left to send or `close` had enough."""
        end = time.monotonic() + seconds
        while True:
            self._expire()
            with self._lock:
                now = time.monotonic()
                if now >= end or self._is_aborted or not self._outbox.has_work:
                    return
                self._work.wait(max(0.0, min(end, self._outbox.overdue_at()) - now))

    def _tell(self, outcomes: Outcomes) -> None:
        """Tell whom it concerns, outside the lock, and then those who flush."""
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

    # The thread that watches the time: grpc's sending thread may be held up by a gateway that does not read.

    def _watch(self) -> None:
        with self._lock:
            while not self._has_ended:
                stream = self._stream
                if stream is None or not (self._outbox.in_flight_count or stream.is_ending):
                    self._is_watch_idle = True
                    self._watched.wait()
                    self._is_watch_idle = False
                    continue
                # A message whose time is over while it is under way still gets its answer: it says more than silence.
                end = stream.progress_at + self._settings.request_seconds_max
                seconds = end - time.monotonic()
                if seconds > 0:
                    self._watched.wait(min(seconds, WATCH_SECONDS_MAX))
                elif stream.call is None:
                    self._watched.wait(CALL_SECONDS)
                else:
                    stream.error = stream.error or DeadlineExceededError("the gateway did not answer in time")
                    stream.is_ending = True
                    stream.call.cancel()
                    while self._stream is stream:
                        self._watched.wait()

    # With the lock held.

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="reput-producer", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name="reput-producer-watch", daemon=True).start()

    def _wait_for_room(self, size_bytes: int) -> None:
        self._outbox.check_fits(size_bytes)
        if threading.current_thread() is self._thread:  # of a callback: it makes the room, and waits for nobody's turn
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
