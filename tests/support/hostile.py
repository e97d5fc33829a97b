"""A hostile client of a gateway, in a process of its own: `python -m tests.support.hostile HOST:PORT KIND COUNT`.

Over gRPC:

    half       COUNT calls that announce 100 bytes and send one
    large      COUNT calls that announce 4 MiB and send all but one byte
    untaken    COUNT queries whose answers are never taken: a window of 0
    idle       COUNT append streams without a request
    connections  COUNT connections without a call
    tenant     COUNT appends a second for a namespace that is over its quota

Over RocketMQ's remoting protocol, from another address of loopback, signed with KEY:

    frames     COUNT connections that send half of a frame of 1 MiB
    flood      COUNT requests a second whose answers are not taken
    stolen     COUNT heartbeats a second with the client id of another client
    sends      COUNT sends a second for a namespace that is over its quota
    forged     COUNT sends a second with the access key of another client, and a secret that is not its own

Streams and connections that the gateway ends are opened again. It prints a line when all are open, and ends with its standard
input.
"""

import contextlib
import resource
import socket
import sys
import threading

from reput.gateway.v1 import gateway_service_pb2 as pb
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import Command, encode
from tests.gateway.remoting.requests import heartbeat, send_fields, signed
from tests.support.raw_http2 import RawClient, RawConnection, announced

SERVICE = "/reput.gateway.v1.GatewayService/"
STREAM_COUNT_MAX = 200  # of a connection; the gateway takes 256
RENEW_SECONDS = 1.0
LARGE_BYTES = 4 << 20
DOOR_KINDS = ("frames", "flood", "stolen", "forged")
# What it sends to in the name of its namespace.
TENANT, TENANT_TOPIC = "hostile", "hostile%Flood"
DOOR_ADDRESS = "127.0.0.2"
DOOR_CONNECTION_COUNT = 4
DOOR_SECONDS_MAX = 5.0
FRAME_BYTES = 1 << 20
# The hostile client, and the one that it means to harm: access key and secret; client id, group and topic.
KEY, GOOD_KEY = ("hostile-key", "hostile-secret"), ("good-key", "good-secret")
GOOD_ID, GOOD_GROUP, GOOD_TOPIC = "127.0.0.1@good", "good-readers", "Good"


def access_file() -> str:
    """The rights of both: the same, so that only signatures and ids keep one from being the other."""
    rights = f'read = ["{GOOD_TOPIC}"]\nwrite = ["{GOOD_TOPIC}"]\ngroups = ["{GOOD_GROUP}"]\n'
    clients = (("good", *GOOD_KEY), ("hostile", *KEY))
    return "".join(
        f'[[clients]]\nname = "{name}"\naccess_keys = {{{key} = "{secret}"}}\n{rights}' for name, key, secret in clients
    )


class HostileDoor:
    """All connections of one kind to a door for remoting.

    Args:
        address: HOST:PORT.
        kind: see above.
        count: see above.
    """

    def __init__(self, address: str, kind: str, count: int) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        frame = FRAME_BYTES.to_bytes(4, "big") + bytes(FRAME_BYTES // 2)
        requests = encode(self._request(kind)) * (count // DOOR_CONNECTION_COUNT or 1)
        self._sends_once, self._data = kind == "frames", frame if kind == "frames" else requests
        self._open = [self._connect() for _ in range(count if kind == "frames" else DOOR_CONNECTION_COUNT)]

    def renew(self) -> None:
        """Send again, and open again what was ended."""
        for place, connection in enumerate(self._open):
            try:
                if self._sends_once:
                    with contextlib.suppress(BlockingIOError):
                        connection.recv(1, socket.MSG_DONTWAIT)
                        raise ConnectionError("it is closed")
                else:
                    connection.sendall(self._data)
            except OSError:
                connection.close()
                self._open[place] = self._connect()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(self._address, DOOR_SECONDS_MAX, (DOOR_ADDRESS, 0))
        connection.sendall(self._data)
        return connection

    @staticmethod
    def _request(kind: str) -> Command:
        if kind == "stolen":
            body = heartbeat(GOOD_ID, GOOD_GROUP, topic=GOOD_TOPIC)
            return signed(Command(RequestCode.HEART_BEAT, {}, body, opaque=1), *KEY)
        if kind == "forged":
            texts = {name: str(value) for name, value in send_fields(GOOD_TOPIC).items()}
            return signed(Command(RequestCode.SEND_MESSAGE_V2, texts, b"forged", opaque=1), GOOD_KEY[0], KEY[1])
        if kind == "sends":
            texts = {name: str(value) for name, value in send_fields(TENANT_TOPIC, queueId=0).items()}
            return signed(Command(RequestCode.SEND_MESSAGE_V2, texts, bytes(1_000), opaque=1), *KEY)
        fields = {"topic": GOOD_TOPIC, "queueId": "0"}
        return signed(Command(RequestCode.GET_MAX_OFFSET, fields, opaque=1), *KEY)


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
        append = pb.AppendMessagesRequest(messages=[{"topic": TENANT_TOPIC, "body": bytes(1_000)}]).SerializeToString()
        self._append = announced(len(append), append)

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
        if self._kind == "tenant":
            return connection.call(SERVICE + "AppendMessages", self._append, is_whole=True)
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
    with contextlib.ExitStack() as opened:
        hostile: Hostile | HostileDoor
        if kind in (*DOOR_KINDS, "sends"):
            hostile = HostileDoor(address, kind, int(count))
        else:
            hostile = Hostile(opened.enter_context(RawClient(address)), kind)
            hostile.begin(int(count))
        print("open", flush=True)
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        while not ended.wait(RENEW_SECONDS):
            hostile.renew()


if __name__ == "__main__":
    main(*sys.argv[1:])
