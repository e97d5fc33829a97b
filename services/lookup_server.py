"""Answers lookup calls (services/lookup_calls.py) beside the gRPC server.

One thread accepts, one thread for each connection answers; a caller keeps a connection for each call that it has under
way at the same time. More than CONNECTION_COUNT_MAX are closed at once, and their callers go the gRPC way, whose lanes
say who waits and who is refused.
"""

import contextlib
import os
import socket
import stat
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from services import lookup_calls as wire
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


class LookupServer:
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
        self._path = path
        self._handlers = {int(lookup): handler for lookup, handler in handlers.items()}
        self._stopping = stopping
        self._connection_count_max = connection_count_max
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._listener: socket.socket | None = None

    def start(self) -> None:
        """Listen from now on; OSError when the socket cannot be made."""
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.stat(self._path).st_mode):
                os.unlink(self._path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self._path)
            listener.listen(self._connection_count_max)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="lookups-accept", daemon=True).start()

    def close(self) -> None:
        """Close the door and every connection; callers see it at once."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        with self._lock:
            connections = [listener, *self._connections]
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if self._listener is not None and not self._stopping.is_set():
                    _log.warning("lookups.closed", error=str(error))  # out of descriptors: gRPC goes on serving them
                    self.close()
                return
            with self._lock:
                has_room = self._listener is not None and len(self._connections) < self._connection_count_max
                if has_room:
                    self._connections.add(connection)
            if not has_room:
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), name="lookups", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
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
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _answer(self, kind: int, payload: bytes) -> tuple[int, bytes, int | None]:
        handler = self._handlers.get(kind)
        if handler is None:
            return wire.STATUS, to_status(StoreError(f"there is no lookup {kind} here")).SerializeToString(), None
        request_class, method = handler
        try:
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
    try:
        lookups.start()
    except OSError as error:  # a path without room for the suffix, for one: gRPC serves alone
        _log.warning("lookups.not_served", path=path, error=str(error))
        return None
    server.on_stop(lookups.close)
    return lookups
