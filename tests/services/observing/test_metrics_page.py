"""The metrics page beside callers that connect and send nothing."""

import socket
import urllib.request

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


def test_a_host_name_with_only_an_address_of_ipv6_was_not_bound(monkeypatch):
    found = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    server = PageServer("metrics.example", 0, application)
    monkeypatch.undo()
    try:
        with urllib.request.urlopen(f"http://[::1]:{server.server_port}/metrics", timeout=20) as answer:
            assert answer.read() == b"page"
    finally:
        server.close()
