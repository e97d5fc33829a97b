"""The HTTP server of the metrics page: a thread for each connection, with limits against callers that send nothing.

prometheus_client's own server gives each connection a thread for as long as its caller likes.
"""

import socket
import threading
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

# Scrapers make one connection each, and few of them scrape a service. The oldest connection gives way to a new one.
CONNECTION_COUNT_MAX = 16
# A scraper sends its request at once and reads the page as it comes.
QUIET_SECONDS_MAX = 10.0


class PageServer(ThreadingMixIn, WSGIServer):
    """Serves one application until `close`.

    Args:
        host: where to listen; of a name with several addresses, the first of IPv4, or else the first.
        port: 0 takes a free one.
        application: WSGI.
        resolve: finds the addresses of a name.

    Raises:
        OSError: the address cannot be bound.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        host: str,
        port: int,
        application: Callable[..., Any],
        resolve: Callable[..., list[Any]] = socket.getaddrinfo,
    ) -> None:
        found = resolve(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # Scrapers are often told 127.0.0.1, while `localhost` is ::1 first on many machines.
        family, _, _, _, address = next((each for each in found if each[0] == socket.AF_INET), found[0])
        self.address_family = family
        self._connections: dict[socket.socket, None] = {}  # the oldest first
        self._lock = threading.Lock()
        super().__init__((str(address[0]), port), _QuietHandler)
        self.set_app(application)
        threading.Thread(target=self.serve_forever, name="metrics", daemon=True).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread; the oldest one ends when there are too many."""
        with self._lock:
            if len(self._connections) >= CONNECTION_COUNT_MAX:
                oldest = next(iter(self._connections))
                del self._connections[oldest]
                _end(oldest)
            self._connections[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The connection has ended."""
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a caller that left, or that had to."""

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()


class _QuietHandler(WSGIRequestHandler):
    timeout = QUIET_SECONDS_MAX

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def _end(connection: socket.socket) -> None:
    """Wake the thread that reads from it; that thread closes it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # its caller has left
