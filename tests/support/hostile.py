"""A hostile client of a gateway, in a process of its own: `python -m tests.support.hostile HOST:PORT KIND COUNT`.

    half       COUNT calls that announce 100 bytes and send one
    large      COUNT calls that announce 4 MiB and send all but one byte
    untaken    COUNT queries whose answers are never taken: a window of 0
    idle       COUNT append streams without a request
    connections  COUNT connections without a call

Streams that the gateway ends are opened again. It prints a line when all are open, and ends with its standard input.
"""

import resource
import sys
import threading

from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.support.raw_http2 import RawClient, RawConnection, announced

SERVICE = "/reput.gateway.v1.GatewayService/"
STREAM_COUNT_MAX = 200  # of a connection; the gateway takes 256
RENEW_SECONDS = 1.0
LARGE_BYTES = 4 << 20


class Hostile:
    """All connections of one kind.

    Args:
        client: makes them.
        kind: see above.
    """

    def __init__(self, client: RawClient, kind: str) -> None:
        self._client = client
        self._kind = kind
        self._open: list[tuple[RawConnection, set[int]]] = []
        query = pb.QueryMessageByOffsetRequest(topic="Hostile", queue_id=0, max_messages=64).SerializeToString()
        self._query = announced(len(query), query)

    def begin(self, count: int) -> None:
        """Open so many streams, or connections."""
        if self._kind == "connections":
            for _ in range(count):
                self._open.append((self._client.connect(), set()))
            return
        while count > 0:
            connection = self._client.connect(window_bytes=0 if self._kind == "untaken" else None)
            streams = {self._call(connection) for _ in range(min(count, STREAM_COUNT_MAX))}
            self._open.append((connection, streams))
            count -= len(streams)

    def renew(self) -> None:
        """Open again what was ended."""
        for place, (connection, streams) in enumerate(self._open):
            if self._kind == "connections" or connection.is_closed:
                continue
            ended = streams & connection.ended
            self._open[place] = connection, (streams - ended) | {self._call(connection) for _ in ended}

    def _call(self, connection: RawConnection) -> int:
        if self._kind == "untaken":
            return connection.call(SERVICE + "QueryMessageByOffset", self._query, is_whole=True)
        if self._kind == "idle":
            return connection.call(SERVICE + "AppendMessageStream")
        if self._kind == "half":
            return connection.call(SERVICE + "QueryMessageByKey", announced(100, b"x"))
        stream_id = connection.call(SERVICE + "AppendMessages", announced(LARGE_BYTES, b""))
        connection.send_zeros(stream_id, LARGE_BYTES - 1)
        return stream_id


def main(address: str, kind: str, count: str) -> None:
    """Be hostile until the input ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ended = threading.Event()
    with RawClient(address) as client:
        hostile = Hostile(client, kind)
        hostile.begin(int(count))
        print("open", flush=True)
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        while not ended.wait(RENEW_SECONDS):
            hostile.renew()


if __name__ == "__main__":
    main(*sys.argv[1:])
