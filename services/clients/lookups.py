"""The caller's side of lookup calls (services/lookup_calls.py): the answer of a service of this machine, or gRPC's."""

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from services import lookup_calls as wire
from services import retry, status, tracing
from services.lookup_calls import Lookup
from store.errors import DeadlineExceededError

# Connections kept for the next calls: as many as a gateway has workers.
IDLE_CONNECTION_COUNT_MAX = 64
# A door that was shut is tried again after so long: a service that restarts is found again soon.
CLOSED_SECONDS = 1.0

Answer = TypeVar("Answer")


class LookupClient:
    """Makes the lookup calls to one service; thread-safe.

    Args:
        target: the service's address; lookups go over gRPC alone unless it is a unix socket.
        service: who is called, for error texts.
    """

    def __init__(self, target: str, service: str) -> None:
        self._path = wire.lookup_socket_path(target)
        self._service = service
        self._idle: list[socket.socket] = []
        self._closed_until = 0.0
        self._is_closed = False

    def call(
        self,
        lookup: Lookup,
        request: Any,
        answer_class: Any,
        over_grpc: Callable[..., Answer],
        timeout_seconds: float,
    ) -> Answer:
        """The answer of an idempotent method, by whichever way there is.

        Args:
            lookup: the method.
            request: its request.
            answer_class: the class of its answer.
            over_grpc: the stub's method.
            timeout_seconds: for all attempts together.

        Raises:
            StoreError: as the service raised it; ServiceUnavailableError, DeadlineExceededError.
        """
        if self._path is not None:
            began = time.monotonic()
            if began >= self._closed_until and timeout_seconds > 0:
                answer = self._ask(lookup, request, answer_class, timeout_seconds)
                if answer is not None:
                    return answer  # type: ignore[no-any-return]  # an object of answer_class
                timeout_seconds -= time.monotonic() - began
        return retry.call_idempotent(
            lambda seconds: over_grpc(request, timeout=seconds), timeout_seconds, self._service
        )

    def connect(self, timeout_seconds: float) -> socket.socket | None:
        """A connection of the caller's own, with that timeout; None where there is none, or was none a moment ago."""
        path = self._path
        if path is None or time.monotonic() < self._closed_until:
            return None
        try:
            return self._connect(path, timeout_seconds)
        except (OSError, wire.LookupWireError):
            self._closed_until = time.monotonic() + CLOSED_SECONDS
            return None

    def close(self) -> None:
        """Close the connections; later calls go over gRPC."""
        self._is_closed = True
        self._path = None
        self._drop_idle()

    def _ask(self, lookup: Lookup, request: Any, answer_class: Any, timeout_seconds: float) -> Any:
        """The answer; None when gRPC shall be asked."""
        try:
            connection = self._idle.pop()
        except IndexError:
            found = self.connect(timeout_seconds)
            if found is None:
                return None
            connection = found
        try:
            connection.settimeout(timeout_seconds)
            kind, payload = wire.with_traceparent(lookup, request.SerializeToString(), tracing.current_traceparent())
            wire.send_frame(connection, kind, payload)
            frame = wire.receive_frame(connection, wire.ANSWER_BYTES_MAX)
            if frame is None:
                raise wire.LookupWireError("closed")
            kind, payload = frame
            result = (answer_class if kind == wire.ANSWER else status_pb2.Status).FromString(payload)
        except TimeoutError:
            connection.close()
            raise DeadlineExceededError(
                f"{self._service} did not answer in time: allow more time or ask for less", service=self._service
            ) from None
        except (OSError, wire.LookupWireError, DecodeError):
            # The service is going, or has gone since: so have the other connections.
            connection.close()
            self._drop_idle()
            return None
        except BaseException:
            connection.close()  # in the middle of a frame: no other call may find it
            raise
        self._keep(connection)
        if kind == wire.ANSWER:
            return result
        error = status.from_status(result)
        if retry.is_worth_retrying(error):
            return None
        raise error

    def _connect(self, path: str, timeout_seconds: float) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_seconds)
            connection.connect(path)
            greeting = b""
            while len(greeting) < len(wire.GREETING):
                data = connection.recv(len(wire.GREETING) - len(greeting))
                if not data:
                    break
                greeting += data
            if greeting != wire.GREETING:
                raise wire.LookupWireError(f"{greeting!r} is no greeting")
        except BaseException:
            connection.close()
            raise
        return connection

    def _keep(self, connection: socket.socket) -> None:
        if self._is_closed or len(self._idle) >= IDLE_CONNECTION_COUNT_MAX:
            connection.close()
        else:
            self._idle.append(connection)

    def _drop_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()
