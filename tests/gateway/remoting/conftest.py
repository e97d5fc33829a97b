"""A door in front of a whole store in this process, and its clients."""

import contextlib
import pathlib

import pytest

import reput_embedded
from services.rocketmq.codes import RequestCode
from services.rocketmq.fastjson import loads
from tests.gateway.remoting.one_group import AnotherGateway, NearGateway
from tests.gateway.remoting.requests import DoorClient, pull_fields
from tests.support.waiting import wait_until

BROKER = "broker-a"


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

    def close(self):
        self.store.close()

    def append(self, topic, count=1, queue_id=0, **fields):
        """Receipts of messages that are in their queue, too, also as the consumer service sees it."""
        receipts = [self.store.append(topic, b"x", queue_id=queue_id, **fields) for _ in range(count)]
        self.wait_until_built(topic, queue_id, receipts[-1].queue_offset)
        return receipts

    def wait_until_built(self, topic, queue_id, queue_offset):
        wait_until(lambda: self._end_of(topic, queue_id) > queue_offset, "the queue is built")

    def topic_queue_count(self, client, topic):
        """Queues of a topic, as the door tells them."""
        return loads(client.call(RequestCode.GET_TOPIC_CONFIG, topic=topic).body)["readQueueNums"]

    def _end_of(self, topic, queue_id):
        with contextlib.closing(self.client()) as client:
            built = client.call(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=queue_id)
            pulled = client.call(RequestCode.PULL_MESSAGE, **pull_fields(topic, 0, queueId=queue_id, maxMsgNums=1))
        return min(int(built.fields.get("offset", "0")), int(pulled.fields.get("maxOffset", "0")))


@pytest.fixture(scope="package")
def stack(tmp_path_factory):
    directory: pathlib.Path = tmp_path_factory.mktemp("door")
    stack = DoorStack(directory)
    yield stack
    stack.close()


@pytest.fixture(scope="package")
def gateways(stack, tmp_path_factory):
    """Two gateways in front of the stack."""
    with contextlib.closing(AnotherGateway(tmp_path_factory.mktemp("gateway"), broker_a=stack.store)) as other:
        yield NearGateway(stack), other


@pytest.fixture
def client(stack):
    with contextlib.closing(stack.client()) as client:
        yield client
