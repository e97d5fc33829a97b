"""The network of tests itself: cuts of one direction, of both, and who dials."""

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.network import OUTSIDE, Network, both, process_of_connection
from tests.support.waiting import WAIT_SECONDS_MAX

SILENT_SECONDS = 0.2


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that answers with what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(100):
                connection.sendall(data)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


def dialled(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), WAIT_SECONDS_MAX)


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENT_SECONDS)
    try:
        connection.recv(100)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(WAIT_SECONDS_MAX)
    return False


@pytest.mark.parametrize("way", [("a", "b"), ("b", "a")])
def test_what_is_said_over_a_cut_way_arrives_when_it_is_mended(
    network: Network, echo: str, way: tuple[str, str]
) -> None:
    with dialled(network.link("b", echo, "a").address) as connection:
        connection.sendall(b"before")
        assert connection.recv(100) == b"before"
        with network.cut([way]):
            connection.sendall(b"late")
            assert is_silent(connection)
        assert connection.recv(100) == b"late"


def test_no_connection_is_made_while_one_of_its_ways_is_cut(network: Network, echo: str) -> None:
    link = network.link("b", echo, "a")
    with network.cut([("b", "a")]):
        connection = dialled(link.address)
        assert is_silent(connection)
    with connection:
        assert connection.recv(100) == b"", "it is ended when the way is mended"


def test_two_cuts_of_one_way_are_both_to_be_mended(network: Network) -> None:
    with network.cut(both("a", "b")):
        with network.cut([("a", "b")]):
            pass
        assert not network.is_open([("a", "b")])
    assert network.is_open(both("a", "b"))


def test_the_caller_is_found_by_the_process_that_has_the_connection(network: Network, echo: str) -> None:
    asked = []

    def caller(near_port: int, far_port: int) -> str:
        asked.append(process_of_connection(near_port, far_port, {"other": 1, "this": os.getpid()}))
        asked.append(process_of_connection(near_port, far_port, {}))
        return asked[0]

    with dialled(network.link("b", echo, caller).address) as connection:
        connection.sendall(b"x")
        assert connection.recv(100) == b"x"

    assert asked == ["this", OUTSIDE]
