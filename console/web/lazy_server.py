"""A port whose web server is loaded at the first connection.

A gateway whose console is never opened has one idle thread for it. The web server is imported when the first browser
connects; the connection waits in the port's backlog for about 0.3 s.

    opened ── first connection ──▶ loaded, serving ── close ──▶ closed
"""

import select
import socket
import threading
from collections.abc import Callable
from typing import Protocol

# A browser opens six connections. The web server refuses those beyond its own limit, with an answer.
BACKLOG_COUNT = 128
CLOSE_SECONDS_MAX = 3.0


class WebServer(Protocol):
    """The web server."""

    def run(self, listener: socket.socket) -> None:
        """Serve until `stop`."""

    def stop(self) -> None:
        """Make `run` return soon; from any thread."""


class LazyServer:
    """An open port and the thread that serves it.

    Args:
        host: where to listen.
        port: 0 takes a free one.
        load: makes the server; called once, in that thread.
        failed: called with the error of `load` or the server; the port is closed then.

    Attributes:
        address: the bound `HOST:PORT`.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(
        self, host: str, port: int, load: Callable[[], WebServer], failed: Callable[[BaseException], object]
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=BACKLOG_COUNT)
        bound = self._listener.getsockname()[1]
        self.address = f"[{host}]:{bound}" if family == socket.AF_INET6 else f"{host}:{bound}"
        self._load = load
        self._failed = failed
        self._server: WebServer | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)

    def open(self) -> None:
        """Wait for the first browser."""
        self._thread.start()

    def close(self) -> None:
        """Stop; returns when the server has closed its connections, at most CLOSE_SECONDS_MAX later."""
        with self._lock:
            self._is_closed = True
            server = self._server
        self._wake_writer.close()
        if server is not None:
            server.stop()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS_MAX)
        self._listener.close()
        self._wake_reader.close()

    def _run(self) -> None:
        try:
            poll = select.poll()  # `select.select` fails with descriptors above 1023
            poll.register(self._listener, select.POLLIN)
            poll.register(self._wake_reader, select.POLLIN)
            poll.poll()
            if self._is_closed:
                return
            server = self._load()
            with self._lock:
                if self._is_closed:
                    return
                self._server = server
            server.run(self._listener)
        except Exception as error:
            self._failed(error)
        finally:
            # Later connections are refused at once.
            self._listener.close()
