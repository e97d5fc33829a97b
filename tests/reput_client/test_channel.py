"""Channels of clients: what they bear of a network."""

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import QueryClient, RetryPolicy
from tests.reput_client.querying.conftest import FakeQueries

ONE_WAY_SECONDS = 0.15


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Bytes from one socket to another, each piece that much later."""
    pieces: queue.Queue[tuple[float, bytes]] = queue.Queue()

    def deliver() -> None:
        with contextlib.suppress(OSError):
            while (piece := pieces.get())[1]:
                time.sleep(max(0.0, piece[0] - time.monotonic()))  # its way takes so long
                target.sendall(piece[1])
            target.shutdown(socket.SHUT_WR)

    threading.Thread(target=deliver, daemon=True).start()
    data = b"."
    while data:
        with contextlib.suppress(OSError):
            data = source.recv(65536)
            pieces.put((time.monotonic() + ONE_WAY_SECONDS, data))
            continue
        pieces.put((0.0, b""))
        return


@pytest.fixture
def far_away() -> Iterator[tuple[FakeQueries, str]]:
    """A gateway behind a link of 300 ms there and back."""
    fake = FakeQueries([])
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((fake,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _ = listener.accept()
                    far = socket.create_connection(("127.0.0.1", port))
                    for pair in ((near, far), (far, near)):
                        threading.Thread(target=_carry, args=pair, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield fake, f"127.0.0.1:{listener.getsockname()[1]}"
    server.stop(0).wait()


def test_a_gateway_100_ms_away_was_not_reached_at_all(far_away: tuple[FakeQueries, str]) -> None:
    """An attempt to connect had 100 ms, and the next ones less than a second."""
    fake, address = far_away
    fake.script.append(pb.GetStatusResponse(version="9.9"))
    with QueryClient(address, retry=RetryPolicy(attempt_count_max=1)) as client:
        assert client.installation().version == "9.9"
