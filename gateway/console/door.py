"""The console's door: the port is open from the start, what serves it is loaded when the first browser knocks.

A gateway that nobody looks into pays one idle thread for it: no web server is imported before the first connection,
which waits in the port's backlog meanwhile (about 0.3 s).

    opened ── first connection ──▶ loaded, serving ── close ──▶ closed
"""

import select
import socket
import threading
from collections.abc import Callable
from typing import Protocol

# Browsers open six connections each; those beyond the server's own limit are refused there, with an answer.
BACKLOG_COUNT = 128
CLOSE_SECONDS_MAX = 3.0


class WebServer(Protocol):
    """What is behind the door."""

    def run(self, listener: socket.socket) -> None:
        """Serve until `stop`."""

    def stop(self) -> None:
        """Make `run` return soon; from any thread."""


class ConsoleDoor:
    """An open port and the thread behind it.

    Args:
        host: where to listen.
        port: 0 takes a free one.
        load: makes the server; called once, in the door's thread.
        failed: is told what `load` or the server raised; the door is shut then.

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
        """Serve no more; returns when the server has let go of its connections, or after some seconds."""
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
            knock = select.poll()  # not `select`, which knows no descriptor above 1023
            knock.register(self._listener, select.POLLIN)
            knock.register(self._wake_reader, select.POLLIN)
            knock.poll()
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
            # Whoever knocks from now on is told at once that nobody is there.
            self._listener.close()
