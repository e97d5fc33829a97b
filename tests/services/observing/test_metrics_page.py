"""The metrics page beside callers that connect and send nothing."""

import socket
import urllib.request
from wsgiref.simple_server import WSGIServer

import pytest

from services.observing import metrics_page
from services.observing.metrics_page import CONNECTION_COUNT_MAX, PageServer


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"page"]


@pytest.fixture
def server():
    server = PageServer("127.0.0.1", 0, application)
    yield server
    server.close()


def read(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=20) as answer:
        return answer.read()


def silent_connection(server):
    connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=20)
    connection.sendall(b"GET /met")
    return connection


def test_the_oldest_of_too_many_silent_connections_gives_way_to_a_scraper(server):
    silent = [silent_connection(server) for _ in range(CONNECTION_COUNT_MAX)]

    assert read(server) == b"page"
    assert silent[0].recv(100) == b""
    for connection in silent:
        connection.close()


def test_a_connection_that_stays_silent_is_closed(monkeypatch, server):
    monkeypatch.setattr(metrics_page._QuietHandler, "timeout", 0.2)

    with silent_connection(server) as silent:
        assert silent.recv(100) == b""
    assert read(server) == b"page"


def resolver(*hosts):
    """Finds these addresses for each name, in this order."""

    def resolve(_host, port, **_):
        families = [socket.AF_INET6 if ":" in host else socket.AF_INET for host in hosts]
        return [
            (family, socket.SOCK_STREAM, 6, "", (host, port, 0, 0)[: 4 if ":" in host else 2])
            for family, host in zip(families, hosts, strict=True)
        ]

    return resolve


def test_a_host_name_with_only_an_address_of_ipv6_was_not_bound(monkeypatch):
    """The machine need not have that address: the binding itself is recorded."""
    bound = []
    monkeypatch.setattr(WSGIServer, "__init__", lambda self, address, _: bound.append((self.address_family, address)))
    monkeypatch.setattr(PageServer, "serve_forever", lambda _: None)

    PageServer("metrics.example", 5557, application, resolver("2001:db8::1"))
    assert bound == [(socket.AF_INET6, ("2001:db8::1", 5557))]


def test_a_host_name_whose_address_of_ipv6_comes_first_was_not_bound_to_ipv4():
    """`localhost` is such a name on many machines."""
    server = PageServer("localhost", 0, application, resolver("::1", "127.0.0.1"))
    try:
        assert read(server) == b"page"
    finally:
        server.close()
