"""A client of RocketMQ's remoting protocol for tests: it sends commands over one connection, and reads what comes."""

import socket
from collections.abc import Iterator

from services.rocketmq.command import Command, FrameReader, encode


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
        self.socket.settimeout(20)
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
