"""A name server on loopback for one name whose addresses a test changes: what `dns://` targets ask."""

import socket
import struct
import threading
from types import TracebackType

from tests.support.waiting import WAIT_SECONDS_MAX

A_RECORD, INTERNET = 1, 1
TTL_SECONDS = 0


class NameServer:
    """Answers every question for an address with the same ones; others with none.

    Args:
        addresses: dotted IPv4 addresses; may be replaced at any time.

    Attributes:
        port: UDP, on 127.0.0.1.
    """

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                question, caller = self._socket.recvfrom(4096)
            except OSError:
                return
            if question and caller:
                self._socket.sendto(self._answer(question), caller)
            if question == b"end":
                return

    def _answer(self, question: bytes) -> bytes:
        if len(question) < 17:
            return question
        end = question.index(b"\0", 12) + 1
        kind, _ = struct.unpack_from(">HH", question, end)
        addresses = self.addresses if kind == A_RECORD else []
        head = question[:2] + struct.pack(">HHHHH", 0x8580, 1, len(addresses), 0, 0)
        rows = b"".join(
            struct.pack(">HHHIH", 0xC00C, A_RECORD, INTERNET, TTL_SECONDS, 4) + socket.inet_aton(address)
            for address in addresses
        )
        return head + question[12 : end + 4] + rows

    def __enter__(self) -> "NameServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bell:
            bell.sendto(b"end", ("127.0.0.1", self.port))
            self._thread.join(WAIT_SECONDS_MAX)
        self._socket.close()
