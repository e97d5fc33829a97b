"""A door in front of a whole store in this process, and its clients."""

import contextlib
import pathlib
import socket

import pytest

import reput_embedded
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import Command
from tests.support.remoting import RemotingClient
from tests.support.waiting import wait_until

BROKER = "broker-a"


class DoorClient(RemotingClient):
    """A client of a door: it asks with fields as Java's do, one request at a time."""

    def __init__(self, address, language="JAVA", version=479):
        host, _, port = address.rpartition(":")
        super().__init__(socket.create_connection((host, int(port))))
        self.language = language
        self.version = version
        self._opaque = 0
        self.told = []  # requests of the server

    def close(self):
        self.socket.close()

    def request(self, code, body=b"", command_flag=0, **fields):
        self._opaque += 1
        texts = {name: str(value) for name, value in fields.items()}
        return Command(code, texts, body, self._opaque, command_flag, "", self.language, self.version)

    def call(self, code, body=b"", **fields):
        """The answer to a request; what the server asks meanwhile is kept in `told`."""
        request = self.request(code, body, **fields)
        self.send(request)
        while True:
            command = self.receive()
            if command.is_answer:
                assert command.opaque == request.opaque
                return command
            self.told.append(command)

    def next_told(self):
        """The next request of the server."""
        return self.told.pop(0) if self.told else self.receive()


class DoorStack:
    """A store with a door."""

    def __init__(self, directory):
        address_file = directory / "remoting-address"
        self.store = reput_embedded.open(
            directory / "store",
            settings={
                "REPUT_GATEWAY_REMOTING_ADDRESS": "127.0.0.1:0",
                "REPUT_GATEWAY_REMOTING_ADDRESS_FILE": str(address_file),
            },
        )
        self.address = address_file.read_text().strip()

    def client(self, **options):
        return DoorClient(self.address, **options)

    def append(self, topic, count=1, queue_id=0, **fields):
        """Receipts of messages that are in their queue, too."""
        receipts = [self.store.append(topic, b"x", queue_id=queue_id, **fields) for _ in range(count)]
        self.wait_until_built(topic, queue_id, receipts[-1].queue_offset)
        return receipts

    def wait_until_built(self, topic, queue_id, queue_offset):
        wait_until(lambda: self._end_of(topic, queue_id) > queue_offset, "the queue is built")

    def _end_of(self, topic, queue_id):
        with contextlib.closing(self.client()) as client:
            answer = client.call(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=queue_id)
        return int(answer.fields.get("offset", "0"))


@pytest.fixture(scope="package")
def stack(tmp_path_factory):
    directory: pathlib.Path = tmp_path_factory.mktemp("door")
    stack = DoorStack(directory)
    yield stack
    stack.store.close()


@pytest.fixture
def client(stack):
    with contextlib.closing(stack.client()) as client:
        yield client
