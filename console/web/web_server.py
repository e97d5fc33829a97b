"""The web server: uvicorn with limits against browsers that are slow, many or hostile.

It runs in one thread of its own and takes no threads or places from gRPC.

    connections     128, a further one is closed at once
    TLS handshake   10 s
    TLS shutdown    2 s
    request head    10 s, 16 KiB while incomplete; one read may bring up to 256 KiB
    keep-alive      15 s without a request
    answers         30 s, a live tail 15 min (`bounded` in app.py)
    reading them    64 KiB in 15 s, otherwise the connection is cut; also one that is closed and has unsent answers
"""

import asyncio
import logging
import socket
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from services.serving.tls import TlsIdentity

CONNECTION_COUNT_MAX = 128
# As long as for a request head; asyncio's default is 60 s.
HANDSHAKE_SECONDS_MAX = 10.0
# A browser that does not answer the TLS shutdown keeps its connection for this time; asyncio's default is 30 s.
FAREWELL_SECONDS_MAX = 2.0
HEAD_SECONDS_MAX = 10.0
HEAD_BYTES_MAX = 16 * 1024
KEEP_ALIVE_SECONDS = 15
STOP_SECONDS_MAX = 1
# A closed connection keeps its unsent answer in memory until the browser has read it; asyncio has no limit for this.
TAKING_SECONDS = 15.0
TAKING_BYTES_MIN = 64 * 1024


class _CountingTransport:
    """A transport that counts the bytes that the browser has read.

    Args:
        transport: asyncio's.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._written_bytes = 0
        # With TLS, unsent bytes wait in the transport below, which asyncio's public API does not show.
        has_tls = transport.get_extra_info("ssl_object") is not None
        self._below = transport._ssl_protocol._transport if has_tls else None

    def write(self, data: bytes) -> None:
        """Send."""
        self._written_bytes += len(data)
        self._transport.write(data)

    def untaken_bytes(self) -> int:
        """Bytes that wait to be sent to the browser."""
        waiting: int = self._transport.get_write_buffer_size()
        return waiting if self._below is None else waiting + self._below.get_write_buffer_size()

    def taken_bytes(self) -> int:
        """Bytes that were sent; with TLS accurate to some thousandths."""
        return self._written_bytes - self.untaken_bytes()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with a limited number of connections, each with a limited time to send a request head."""

    _head_timer: asyncio.TimerHandle | None = None
    _taking_timer: asyncio.TimerHandle | None = None
    _taken_bytes: int | None = None  # at the last check; None: nothing waited

    def connection_made(self, transport: Any) -> None:
        """As in Uvicorn; also counts the connections."""
        self._counting = _CountingTransport(transport)
        super().connection_made(self._counting)  # type: ignore[arg-type]  # as good as one
        if len(self.connections) > CONNECTION_COUNT_MAX:
            transport.abort()
            return
        self._await_head()
        self._taking_timer = self.loop.call_later(TAKING_SECONDS, self._look_at_taking)

    def data_received(self, data: bytes) -> None:
        """As in Uvicorn; also starts a timer while a request head is incomplete."""
        if self._is_between_requests():
            self._await_head()
        super().data_received(data)
        if not self._is_between_requests():
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Uvicorn's."""
        self._stop_timer()
        if self._taking_timer is not None:
            self._taking_timer.cancel()
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

    def _look_at_taking(self) -> None:
        """Cut a connection whose answers waited at the last check, too, and that has read too little since then."""
        taken_bytes = self._counting.taken_bytes() if self._counting.untaken_bytes() else None
        before_bytes = self._taken_bytes
        if taken_bytes is not None and before_bytes is not None and taken_bytes - before_bytes < TAKING_BYTES_MIN:
            self.transport.abort()
            return
        self._taken_bytes = taken_bytes
        self._taking_timer = self.loop.call_later(TAKING_SECONDS, self._look_at_taking)

    def _give_up(self) -> None:
        self._head_timer = None
        if not self._is_between_requests() or self.transport.is_closing():
            return
        if self._counting.untaken_bytes():
            self.transport.close()
        else:
            self.transport.abort()  # with TLS, closing would wait for the shutdown of the other side


class _TlsConnection(SSLProtocol):
    """A TLS connection with the current certificate. It counts as a connection before its handshake is complete.

    Args:
        inner: the HTTP protocol.
        identity: the certificate and key.
        places: all connections that count.
    """

    def __init__(self, inner: BoundedProtocol, identity: TlsIdentity, places: "set[_TlsConnection]") -> None:
        super().__init__(
            asyncio.get_running_loop(),
            inner,
            identity.current().context,
            None,  # type: ignore[arg-type]  # no future waits for the handshake
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX,  # type: ignore[arg-type]  # any number
            ssl_shutdown_timeout=FAREWELL_SECONDS_MAX,
        )
        self.inner = inner
        self._places = places
        self._below: Any = None

    def connection_made(self, transport: Any) -> None:
        """As in asyncio; also counts the connection."""
        self._below = transport
        if len(self._places) >= CONNECTION_COUNT_MAX:
            transport.abort()
            return
        self._places.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Asyncio's."""
        self._places.discard(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Cut the connection."""
        self._below.abort()


class _QuietServer(uvicorn.Server):
    """Uvicorn's server without signal handlers, because the gateway handles signals.

    Args:
        config: Uvicorn's.
        places: of the connections with TLS.
    """

    def __init__(self, config: uvicorn.Config, places: set[_TlsConnection]) -> None:
        super().__init__(config)
        self._places = places

    def install_signal_handlers(self) -> None:
        """Does nothing."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As in Uvicorn; also cuts TLS connections during their handshake, which Uvicorn does not know."""
        for connection in [*self._places]:
            if connection.inner not in self.server_state.connections:
                connection.abort()
        await super().shutdown(sockets)


class ConsoleServer:
    """Serves an application on a socket until it is stopped.

    Args:
        application: the ASGI application.
        closing: called at the begin of a stop, to end endless streams.
        identity: the certificate, and the authority of browsers' certificates if they need one; None: plain HTTP.
    """

    def __init__(
        self,
        application: Any,
        closing: Callable[[], object],
        identity: TlsIdentity | None = None,
    ) -> None:
        places: set[_TlsConnection] = set()

        def connection(**settings: Any) -> asyncio.BaseProtocol:
            inner = BoundedProtocol(**settings)
            return inner if identity is None else _TlsConnection(inner, identity, places)

        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._closing = closing
        self._server = _QuietServer(
            uvicorn.Config(
                application,
                # Not Uvicorn's own TLS, which reads the files only once and allows 60 s for a handshake.
                http=connection,  # type: ignore[arg-type]  # makes one
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS_MAX,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
                # The audit log names the address of the connection, not one from a header.
                proxy_headers=False,
            ),
            places,
        )

    def run(self, listener: socket.socket) -> None:
        """See WebServer."""
        self._server.run(sockets=[listener])

    def stop(self) -> None:
        """See WebServer."""
        self._closing()
        self._server.should_exit = True
