"""RocketMQ's remoting protocol for tests: a client that sends commands over one connection and reads what comes, and a server
that answers one request a connection.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from services.rocketmq.command import Command, FrameReader, decode, encode
from tests.support.waiting import WAIT_SECONDS_MAX


def commands_of(reader: FrameReader, data: bytes) -> Iterator[Command]:
    """The commands that are whole with these bytes."""
    reader.add(data)
    while (command := reader.next()) is not None:
        yield command


class RemotingClient:
    """One connection; what it reads is cut into commands.

    Args:
        connected: to a server.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.socket.settimeout(WAIT_SECONDS_MAX)
        self._reader = FrameReader()
        self._read: list[Command] = []

    def send(self, *commands: Command) -> None:
        self.socket.sendall(b"".join(map(encode, commands)))

    def receive(self) -> Command:
        """The next command; ConnectionError when the server has closed the connection."""
        while not self._read:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed it")
            self._read += commands_of(self._reader, data)
        return self._read.pop(0)

    def ask(self, command: Command) -> Command:
        """What comes after a command."""
        self.send(command)
        return self.receive()

    def is_closed(self) -> bool:
        """Whether the server closes it, without sending more."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True


@contextlib.contextmanager
def answering(answer: Callable[[Command], Command]) -> Iterator[str]:
    """A broker on loopback that gives these answers; the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as stream:
                    asked = decode(stream.read(int.from_bytes(stream.read(4), "big")))
                    connection.sendall(encode(answer(asked)))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
