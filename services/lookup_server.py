"""Answers lookup calls (services/lookup_calls.py) beside the gRPC server.

A caller keeps a connection (services/local_door.py) for each call that it has under way at the same time.
"""

import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from services import lookup_calls as wire
from services import tracing
from services.local_door import LocalDoor
from services.lookup_calls import FileAnswer, Lookup
from services.status import to_status
from store.errors import StoreError

# As many as a gateway has workers for calls; each holds a thread and, while it answers, one answer.
CONNECTION_COUNT_MAX = 64
# A caller that does not take its answer gives its thread back.
SEND_SECONDS_MAX = 5
TIMEVAL = struct.Struct("@ll")  # struct timeval: seconds, microseconds

_log = structlog.get_logger("reput.rpc")

# A method of a servicer and the class of its request: `(pb.SearchKeyRequest, servicer.SearchKey)`.
Handler = tuple[Any, Callable[[Any, Any], Any]]


class LookupServer(LocalDoor):
    """Answers the lookups of one service.

    Args:
        path: of the socket; one that a dead process left there is taken away.
        handlers: by method. They are called without a context, from many threads.
        stopping: once it is set, nothing is answered any more.
        connection_count_max: connections served at the same time.
    """

    def __init__(
        self,
        path: str,
        handlers: Mapping[Lookup, Handler],
        stopping: threading.Event,
        *,
        connection_count_max: int = CONNECTION_COUNT_MAX,
    ) -> None:
        super().__init__("lookups", path, stopping, connection_count_max)
        self._handlers = {int(lookup): handler for lookup, handler in handlers.items()}

    def serve(self, connection: socket.socket) -> None:
        """See LocalDoor."""
        try:
            # Not `settimeout`, which bounds receiving too: a caller may be idle for ever.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, TIMEVAL.pack(SEND_SECONDS_MAX, 0))
            connection.sendall(wire.GREETING)
            while (frame := wire.receive_frame(connection, wire.REQUEST_BYTES_MAX)) is not None:
                if self._stopping.is_set():
                    return
                kind, payload, fd = self._answer(*frame)
                if fd is None:
                    wire.send_frame(connection, kind, payload)
                else:
                    try:
                        wire.send_file_frame(connection, payload, fd)
                    finally:
                        os.close(fd)
                del frame, payload  # nothing is kept while the caller thinks
        except (OSError, wire.LookupWireError):
            pass  # the caller is gone, sleeps, or is none of ours
        except Exception as error:
            # The caller asks again over gRPC, and is told there.
            _log.error("lookups.failed", exc_info=error)

    def _answer(self, kind: int, payload: bytes) -> tuple[int, bytes, int | None]:
        kind, payload, traceparent = wire.without_traceparent(kind, payload)
        handler = self._handlers.get(kind)
        if handler is None:
            return wire.STATUS, to_status(StoreError(f"there is no lookup {kind} here")).SerializeToString(), None
        request_class, method = handler
        try:
            with tracing.local_call(wire.METHOD_BY_LOOKUP[Lookup(kind)], traceparent):
                answer = method(request_class.FromString(payload), None)
        except StoreError as error:
            return wire.STATUS, to_status(error).SerializeToString(), None
        if isinstance(answer, FileAnswer):
            return wire.ANSWER, answer.message.SerializeToString(), answer.fd
        return wire.ANSWER, answer.SerializeToString(), None


def serve_lookups(address: str, handlers: Mapping[Lookup, Handler], server: Any) -> LookupServer | None:
    """Answer lookups beside the gRPC server of a service at that address, until it stops; None where they are not.

    Args:
        address: the service's, as configured.
        handlers: by method.
        server: the service's ServiceServer.
    """
    path = wire.lookup_socket_path(address)
    if path is None:
        return None
    lookups = LookupServer(path, handlers, server.stopping)
    return lookups if lookups.open_beside(server) else None
