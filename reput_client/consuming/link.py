"""A client's standing with one gateway: its Telemetry stream, and its heartbeats."""

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.consuming.refusals import error_of
from reput_client.consuming.subscription import Member, endpoints_of, settings_of
from reput_client.consuming.transport import TelemetryStream, Transport
from reput_client.errors import ReputClientError, is_worth_retrying
from reput_client.retry import RetryPolicy


def _stacks() -> str:
    """The stacks of all threads of this process, the innermost calls last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )


class Link:
    """Keeps one gateway informed; opens its stream again whenever it ends.

    Args:
        transport: makes the calls.
        target: the gateway.
        member: the consumer, or the producer.
        settings: times and pauses: `heartbeat_seconds`, `settings_seconds`, `request_seconds_max`, `retry`.
        agreed: told each settings command of the gateway; the lock is held.
        failed: told an error that does not pass; the lock is held.
        asked: told each question about a hanging transaction; without the lock.
    """

    def __init__(
        self,
        transport: Transport,
        target: str,
        member: Member,
        settings: Any,
        agreed: Callable[[v2.Settings], None],
        failed: Callable[[ReputClientError], None],
        asked: Callable[[v2.RecoverOrphanedTransactionCommand], None] = lambda _: None,
    ) -> None:
        self._transport = transport
        self.target = target
        self._member = member
        self._request_seconds: float = settings.request_seconds_max
        self._heartbeat_seconds: float = settings.heartbeat_seconds
        self._settings_seconds: float = settings.settings_seconds
        self._retry: RetryPolicy = settings.retry
        self._agreed = agreed
        self._failed = failed
        self._asked = asked
        self._stream: TelemetryStream | None = None
        self._failure_count = 0
        self._is_closed = False
        self.is_ended = False  # the gateway knows that the client has ended, or could not be told

    def open(self) -> None:
        """Begin. The lock is held."""
        self._open_stream()
        self._transport.later(self._heartbeat_seconds, self._beat)
        self._transport.later(self._settings_seconds, self._renew)

    def close(self, seconds: float, done: Callable[[], None]) -> None:
        """End, and tell the gateway; `done` is called when it knows, or cannot be reached. The lock is held."""
        self._is_closed = True
        request = v2.NotifyClientTerminationRequest(group=v2.Resource(name=self._member.consumer_group))

        def told(_: Any) -> None:
            with self._transport.lock:
                self.is_ended = True
                if self._stream is not None:
                    self._stream.cancel()
            done()

        self._transport.call(self.target, "NotifyClientTermination", request, seconds, told)

    def _open_stream(self) -> None:
        if not self._is_closed:
            self._stream = self._transport.telemetry(self.target, self._taken, self._ended)
            self._send_settings()

    def _send_settings(self) -> None:
        if self._stream is not None:
            settings = settings_of(self._member, endpoints_of(self.target), self._request_seconds)
            self._stream.send(v2.TelemetryCommand(settings=settings))

    def _taken(self, command: v2.TelemetryCommand) -> None:
        if command.HasField("recover_orphaned_transaction_command"):
            self._asked(command.recover_orphaned_transaction_command)
            return
        if command.HasField("print_thread_stack_trace_command"):
            nonce = command.print_thread_stack_trace_command.nonce
            trace = v2.ThreadStackTrace(nonce=nonce, thread_stack_trace=_stacks())
            self._say(v2.TelemetryCommand(status=v2.Status(code=v2.OK), thread_stack_trace=trace))
        elif command.HasField("verify_message_command"):
            result = v2.VerifyMessageResult(nonce=command.verify_message_command.nonce)
            status = v2.Status(code=v2.NOT_IMPLEMENTED, message="its program takes its messages itself")
            self._say(v2.TelemetryCommand(status=status, verify_message_result=result))
        if not command.HasField("settings"):
            return
        error = error_of(command.status) if command.HasField("status") else None
        with self._transport.lock:
            if error is None:
                self._failure_count = 0
                self._agreed(command.settings)
            elif not is_worth_retrying(error):
                self._failed(error)

    def _say(self, command: v2.TelemetryCommand) -> None:
        with self._transport.lock:
            if self._stream is not None:
                self._stream.send(command)

    def _ended(self, error: ReputClientError | None) -> None:
        with self._transport.lock:
            self._stream = None
            if self._is_closed:
                return
            if error is not None and not is_worth_retrying(error):
                self._failed(error)
                return
            self._failure_count += 1
            self._transport.later(self._retry.pause_seconds(self._failure_count), self._reopen)

    def _reopen(self) -> None:
        with self._transport.lock:
            self._open_stream()

    def _renew(self) -> None:
        with self._transport.lock:
            if not self._is_closed:
                self._send_settings()
                self._transport.later(self._settings_seconds, self._renew)

    def _beat(self) -> None:
        request = v2.HeartbeatRequest(group=v2.Resource(name=self._member.consumer_group))
        request.client_type = self._member.client_type  # type: ignore[assignment]  # numbers are enum values here
        with self._transport.lock:
            if not self._is_closed:
                self._transport.call(self.target, "Heartbeat", request, self._request_seconds, self._beaten)
                self._transport.later(self._heartbeat_seconds, self._beat)

    def _beaten(self, answer: Any) -> None:
        if isinstance(answer, ReputClientError) or answer.status.code != v2.UNRECOGNIZED_CLIENT_TYPE:
            return  # the next one may arrive
        with self._transport.lock:
            if not self._is_closed:
                self._send_settings()
