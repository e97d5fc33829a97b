"""A plain unix socket beside a service's gRPC socket: who comes is let in, up to a limit, and served by a thread.

Such a door exists only where the service itself listens on a unix socket, in the same directory: whoever may open that one
may open this one. Nothing depends on it: who is not let in goes the gRPC way, whose lanes say who waits and who is refused.
"""

import contextlib
import os
import socket
import stat
import threading
from abc import ABC, abstractmethod
from typing import Any

import structlog

# The user who runs the service, as for its gRPC socket (services/server.py).
SOCKET_MODE = 0o600

_log = structlog.get_logger("reput.rpc")


def door_path(address: str, suffix: str) -> str | None:
    """Where a door of a service at that address is; None when it has none."""
    scheme, _, path = address.partition(":")
    return path + suffix if scheme == "unix" and path else None


class LocalDoor(ABC):
    """One thread accepts, one thread for each connection serves; more connections than the limit are closed at once.

    Args:
        name: stands in logs and thread names.
        path: of the socket; one that a dead process left there is taken away.
        stopping: set once the service drains.
        connection_count_max: connections served at the same time.
    """

    def __init__(self, name: str, path: str, stopping: threading.Event, connection_count_max: int) -> None:
        self._name = name
        self._path = path
        self._stopping = stopping
        self._connection_count_max = connection_count_max
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._listener: socket.socket | None = None

    @abstractmethod
    def serve(self, connection: socket.socket) -> None:
        """Serve a connection to its end; called in a thread of its own."""

    @property
    def connection_count(self) -> int:
        """Connections served now."""
        return len(self._connections)

    def start(self) -> None:
        """Listen from now on; OSError when the socket cannot be made."""
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.stat(self._path).st_mode):
                os.unlink(self._path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self._path)
            os.chmod(self._path, SOCKET_MODE)
            listener.listen(self._connection_count_max)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name=f"{self._name}-accept", daemon=True).start()

    def shut(self) -> None:
        """Let nobody in any more; whoever is in stays."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()

    def close(self) -> None:
        """Close the door and every connection; callers see it at once."""
        self.shut()
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def open_beside(self, server: Any) -> bool:
        """Listen until a ServiceServer stops; False, and a word in the log, where that is not possible."""
        try:
            self.start()
        except OSError as error:  # a path without room for the suffix, for one: gRPC serves alone
            _log.warning(f"{self._name}.not_served", path=self._path, error=str(error))
            return False
        server.on_stop(self.close)
        return True

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if self._listener is not None and not self._stopping.is_set():
                    # Out of descriptors: gRPC goes on serving them.
                    _log.warning(f"{self._name}.closed", error=str(error))
                    self.shut()
                return
            with self._lock:
                has_room = self._listener is not None and len(self._connections) < self._connection_count_max
                if has_room:
                    self._connections.add(connection)
            if not has_room:
                connection.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), name=self._name, daemon=True).start()
            except RuntimeError as error:  # no room for a thread
                _log.warning(f"{self._name}.refused", error=str(error))
                with self._lock:
                    self._connections.discard(connection)
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self.serve(connection)
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()
