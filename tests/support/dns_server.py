"""A DNS server on loopback that knows a few names; gRPC asks it for `dns://127.0.0.1:PORT/name:port`."""

import socket
import struct
import threading
from types import TracebackType

HEADER = struct.Struct(">HHHHHH")
ANSWER = 0x8180  # recursion as asked for and available
NAME_ERROR = 3
TYPE_A, CLASS_IN = 1, 1
POINTER_TO_QUESTION = 0xC000 | HEADER.size


class DnsServer:
    """Answers for the names in `addresses`, which may change at any time; all others do not exist.

    Attributes:
        addresses: IPv4 address by name.
        authority: `127.0.0.1:PORT`.
        asked: the names that were asked for, in order.
    """

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self.asked: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.authority = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def target(self, name: str, port: int) -> str:
        """What gRPC is to be given."""
        return f"dns://{self.authority}/{name}:{port}"

    def __enter__(self) -> "DnsServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            query, sender = self._socket.recvfrom(512)
            if not query:
                return
            self._socket.sendto(self._answer(query), sender)

    def _answer(self, query: bytes) -> bytes:
        number = HEADER.unpack_from(query)[0]
        labels, at = [], HEADER.size
        while size := query[at]:
            labels.append(query[at + 1 : at + 1 + size].decode())
            at += 1 + size
        question = query[HEADER.size : at + 5]
        (kind,) = struct.unpack_from(">H", query, at + 1)
        name = ".".join(labels).lower()
        self.asked.append(name)
        address = self.addresses.get(name)
        if address is None:
            return HEADER.pack(number, ANSWER | NAME_ERROR, 1, 0, 0, 0) + question
        if kind != TYPE_A:
            return HEADER.pack(number, ANSWER, 1, 0, 0, 0) + question
        record = struct.pack(">HHHIH", POINTER_TO_QUESTION, TYPE_A, CLASS_IN, 0, 4) + socket.inet_aton(address)
        return HEADER.pack(number, ANSWER, 1, 1, 0, 0) + question + record
