"""The web server: uvicorn with limits against browsers that are slow, many or hostile.

It runs in one thread of its own; nothing that can happen there takes a thread or a place from gRPC.

    connections     128, a further one is closed at once
    TLS handshake   10 s, all of it
    TLS farewell    2 s
    request head    10 s and 16 KiB, of what is incomplete: one read may bring up to 256 KiB
    keep-alive      15 s of silence
    answers         30 s, a live tail 15 min (bounded.py)
    taking them     64 KiB in 15 s, else the connection is cut; also one that is closed and has answers left
"""

import asyncio
import logging
import socket
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from services.tls import TlsIdentity

CONNECTION_COUNT_MAX = 128
# As long as for a head: asyncio's own 60 s are for networks that no browser is behind.
HANDSHAKE_SECONDS_MAX = 10.0
# Whoever has its answer and says no farewell keeps its place for so long, of asyncio's own accord 30 s.
FAREWELL_SECONDS_MAX = 2.0
HEAD_SECONDS_MAX = 10.0
HEAD_BYTES_MAX = 16 * 1024
KEEP_ALIVE_SECONDS = 15
STOP_SECONDS_MAX = 1
# A closed connection lives on until its answer is taken, and holds all of it: asyncio sets no end to that.
TAKING_SECONDS = 15.0
TAKING_BYTES_MIN = 64 * 1024


class _CountingTransport:
    """A transport that knows how much of what it was given the browser has taken.

    Args:
        transport: asyncio's.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._written_bytes = 0
        # Under TLS what waits is in the transport below, of which asyncio tells nothing in public.
        has_tls = transport.get_extra_info("ssl_object") is not None
        self._below = transport._ssl_protocol._transport if has_tls else None

    def write(self, data: bytes) -> None:
        """Send."""
        self._written_bytes += len(data)
        self._transport.write(data)

    def untaken_bytes(self) -> int:
        """Bytes that wait for the browser."""
        waiting: int = self._transport.get_write_buffer_size()
        return waiting if self._below is None else waiting + self._below.get_write_buffer_size()

    def taken_bytes(self) -> int:
        """Bytes that have gone, over TLS to some thousandths."""
        return self._written_bytes - self.untaken_bytes()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 for a bounded number of connections, each with a bounded time to say what it wants."""

    _head_timer: asyncio.TimerHandle | None = None
    _taking_timer: asyncio.TimerHandle | None = None
    _taken_bytes: int | None = None  # at the last look; None: nothing waited

    def connection_made(self, transport: Any) -> None:
        """Uvicorn's, with a count."""
        self._counting = _CountingTransport(transport)
        super().connection_made(self._counting)  # type: ignore[arg-type]  # as good as one
        if len(self.connections) > CONNECTION_COUNT_MAX:
            transport.abort()
            return
        self._await_head()
        self._taking_timer = self.loop.call_later(TAKING_SECONDS, self._look_at_taking)

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
        """Cut a connection whose answers wait now as they did at the last look, and hardly any of them has gone."""
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
            self.transport.abort()  # over TLS, closing would wait for the other side's farewell


class _TlsConnection(SSLProtocol):
    """TLS around a connection, with the certificate of now; it has its place from the first byte, not from the handshake on.

    Args:
        inner: speaks HTTP.
        identity: what to show.
        places: of all connections that have one.
    """

    def __init__(self, inner: BoundedProtocol, identity: TlsIdentity, places: "set[_TlsConnection]") -> None:
        super().__init__(
            asyncio.get_running_loop(),
            inner,
            identity.current().context,
            None,  # type: ignore[arg-type]  # nobody waits for the handshake
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX,  # type: ignore[arg-type]  # any number
            ssl_shutdown_timeout=FAREWELL_SECONDS_MAX,
        )
        self.inner = inner
        self._places = places
        self._below: Any = None

    def connection_made(self, transport: Any) -> None:
        """Asyncio's, with a count."""
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
        """Hang up."""
        self._below.abort()


class _QuietServer(uvicorn.Server):
    """Uvicorn's, which leaves the process's signals alone: they are the gateway's.

    Args:
        config: Uvicorn's.
        places: of the connections with TLS.
    """

    def __init__(self, config: uvicorn.Config, places: set[_TlsConnection]) -> None:
        super().__init__(config)
        self._places = places

    def install_signal_handlers(self) -> None:
        """None."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Uvicorn's, which knows of no connection before its handshake."""
        for connection in [*self._places]:
            if connection.inner not in self.server_state.connections:
                connection.abort()
        await super().shutdown(sockets)


class ConsoleServer:
    """Serves an application on a socket until it is stopped.

    Args:
        application: ASGI.
        closing: is called when the end begins, to end what would go on for ever.
        identity: what to show, and whose certificates browsers must show; None: plain HTTP.
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
                # TLS is below it, not Uvicorn's, which reads the files once and greets for 60 s.
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
                # Whoever is asked about in the audit log is who has connected, not who a header says.
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
