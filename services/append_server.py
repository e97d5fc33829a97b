"""Takes append calls (services/append_calls.py) beside the gRPC server of a commitlog.

A connection (services/local_door.py) has a thread, which takes one request after the other. An append, from the moment its
request is there until its answer was taken, is open work, for which a clean stop waits.
"""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from services import append_calls as wire
from services.append_calls import Append
from services.local_door import LocalDoor
from services.open_work import OpenWork
from services.stall_watch import ANSWER_SECONDS_MAX
from services.status import to_status
from store.errors import ServiceUnavailableError, StoreError

# As many as a gateway has workers for streams. Each holds a thread and, while it is worked on, one request.
CONNECTION_COUNT_MAX = 64
# A request that was begun comes from the same machine: half a minute, in which gRPC gives a silent peer up too.
REQUEST_SECONDS_MAX = 30.0
TIMEVAL = struct.Struct("@ll")  # struct timeval: seconds, microseconds

_log = structlog.get_logger("reput.rpc")

# Takes a request's bytes and returns the answer's; what it raises ends a stream.
Handler = Callable[[bytes], bytes]


class AppendServer(LocalDoor):
    """Takes the appends of gateways of this machine.

    Args:
        path: of the socket; one that a dead process left there is taken away.
        handlers: by method; called from many threads.
        work: where appends are counted, and which says when no more are taken.
        connection_count_max: connections served at the same time.
    """

    def __init__(
        self,
        path: str,
        handlers: Mapping[Append, Handler],
        work: OpenWork,
        *,
        connection_count_max: int = CONNECTION_COUNT_MAX,
    ) -> None:
        super().__init__("appends", path, work.stopping, connection_count_max)
        self._handlers = {int(append): handler for append, handler in handlers.items()}
        self._work = work

    def serve(self, connection: socket.socket) -> None:
        """See LocalDoor."""
        with contextlib.suppress(OSError, wire.AppendWireError):  # the caller is gone, sleeps, or is none of ours
            # Not `settimeout`, which bounds receiving too: a caller may be idle for ever.
            send_timeout = TIMEVAL.pack(int(ANSWER_SECONDS_MAX), 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, send_timeout)
            connection.sendall(wire.GREETING)
            receiving = _Receiving(connection)
            reader = wire.FrameReader(receiving.receive, wire.REQUEST_BYTES_MAX)
            while (frame := reader.read()) is not None:
                self._work.add(1)
                try:
                    append, request = frame
                    kind, answer = self._answer(append, request)
                    del frame, request  # nothing is kept while the caller thinks
                    wire.send_frame(connection, kind, answer)
                    del answer
                finally:
                    self._work.add(-1)
                if kind == wire.STATUS and append != Append.UNARY:
                    return
                receiving.end_frame()

    def _answer(self, append: int, request: bytes) -> tuple[int, bytes]:
        """The answer; looked at after the request counts as open work, so that no append begins behind a clean stop."""
        if self._stopping.is_set():
            return _status(ServiceUnavailableError("the service is stopping", service="commitlog"))
        handler = self._handlers.get(append)
        if handler is None:
            return _status(StoreError(f"there is no append {append} here"))
        try:
            return wire.ANSWER, handler(request)
        except StoreError as error:
            return _status(error)
        except Exception as error:
            method = wire.METHOD_BY_APPEND[Append(append)]
            _log.error("rpc.failed", method=method, exc_info=error)
            return _status(StoreError(f"{method} failed unexpectedly; the service's log has the cause"))


def serve_appends(address: str, handlers: Mapping[Append, Handler], server: Any) -> AppendServer | None:
    """Take appends beside the gRPC server of a service at that address, until it stops; None where they are not taken.

    Args:
        address: the service's, as configured.
        handlers: by method.
        server: the service's ServiceServer.
    """
    path = wire.append_socket_path(address)
    if path is None:
        return None
    appends = AppendServer(path, handlers, server.work)
    return appends if appends.open_beside(server) else None


class _Receiving:
    """Receives from a connection; the rest of a frame that was begun has to come soon."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = 0.0
        self._readable = select.poll()
        self._readable.register(connection, select.POLLIN)

    def receive(self, size_bytes: int, is_begun: bool) -> bytes:
        """See FrameReader; TimeoutError when the time for a frame is over."""
        if is_begun:
            now = time.monotonic()
            self._deadline = self._deadline or now + REQUEST_SECONDS_MAX
            if now >= self._deadline or not self._readable.poll((self._deadline - now) * 1000):
                raise TimeoutError("a request was begun and did not come")
        return self._connection.recv(size_bytes)

    def end_frame(self) -> None:
        """What comes now belongs to the next frame."""
        self._deadline = 0.0


def _status(error: StoreError) -> tuple[int, bytes]:
    return wire.STATUS, to_status(error).SerializeToString()
