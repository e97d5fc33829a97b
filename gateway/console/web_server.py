"""The web server: uvicorn with limits against browsers that are slow, many or hostile.

It runs in one thread of its own; nothing that can happen there takes a thread or a place from gRPC.

    connections     128, a further one is closed at once
    request head    10 s and 16 KiB
    keep-alive      15 s of silence
    answers         30 s, a live tail 15 min (app.py); a browser that takes nothing loses its connection
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTION_COUNT_MAX = 128
HEAD_SECONDS_MAX = 10.0
HEAD_BYTES_MAX = 16 * 1024
KEEP_ALIVE_SECONDS = 15
STOP_SECONDS_MAX = 1


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 for a bounded number of connections, each with a bounded time to say what it wants."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Uvicorn's, with a count."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTION_COUNT_MAX:
            transport.abort()
            return
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Uvicorn's, with a clock while a head is incomplete."""
        if self._is_between_requests():
            self._await_head()
        super().data_received(data)
        if not self._is_between_requests():
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Uvicorn's."""
        self._stop_timer()
        super().connection_lost(exc)

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self._give_up)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if self._is_between_requests() and not self.transport.is_closing():
            self.transport.close()


class _QuietServer(uvicorn.Server):
    """Uvicorn's, which leaves the process's signals alone: they are the gateway's."""

    def install_signal_handlers(self) -> None:
        """None."""


class ConsoleServer:
    """Serves an application on a socket until it is stopped.

    Args:
        application: ASGI.
        closing: is called when the end begins, to end what would go on for ever.
        certificate: PEM chain to show; None: plain HTTP.
        key: PEM file of its private key.
    """

    def __init__(
        self,
        application: Any,
        closing: Callable[[], object],
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._closing = closing
        self._server = _QuietServer(
            uvicorn.Config(
                application,
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS_MAX,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
        )

    def run(self, listener: socket.socket) -> None:
        """See WebServer."""
        self._server.run(sockets=[listener])

    def stop(self) -> None:
        """See WebServer."""
        self._closing()
        self._server.should_exit = True
