"""Light queues (LMQ) of our store at a real broker and back: appends, `reput hand-back`, positions of groups."""

import contextlib
import pathlib
from collections.abc import Iterator

import pytest

import cli.main
from services.rocketmq.codes import RequestCode
from tests.gateway.remoting.requests import DoorClient, properties, pull_fields, records, send_fields
from tests.rocketmq import real_broker
from tests.rocketmq.test_interop import FILE_SIZES, INDEX_SIZES, OUR_SIZES
from tests.support.stack import hosted_stack
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]
QUEUES = ("%LMQ%a", "%LMQ%b", "%LMQ%$Orders$chat-1")
COUNT = 210  # more than a file of a queue has


@contextlib.contextmanager
def door_of(address: str) -> Iterator[DoorClient]:
    """A client of a door, or of a broker."""
    with contextlib.closing(DoorClient(address)) as client:
        yield client


def send(client: DoorClient, number: int) -> None:
    """A message with a number as its body, to all queues."""
    text = properties(UNIQ_KEY=f"KEY{number}", INNER_MULTI_DISPATCH=",".join(QUEUES), INNER_MULTI_QUEUE_OFFSET="9,9,9")
    answer = client.call(
        RequestCode.SEND_MESSAGE_V2, f"{number}".encode(), **send_fields("Orders", queueId=0, properties=text)
    )
    assert answer.code == 0, answer.remark


def bodies(client: DoorClient, queue: str) -> list[int]:
    """All messages of a light queue."""
    found: list[int] = []
    while True:
        answer = client.call(RequestCode.PULL_MESSAGE, **pull_fields(queue, len(found)))
        if answer.code:
            return found
        found += [int(record.body) for record in records(answer.body)]
        assert int(answer.fields["nextBeginOffset"]) == len(found)


def position(client: DoorClient) -> int:
    """Where the group is in the first queue."""
    fields = {"consumerGroup": "g", "topic": QUEUES[0], "queueId": 0}
    return int(client.call(RequestCode.QUERY_CONSUMER_OFFSET, **fields).fields["offset"])


def commit(client: DoorClient, offset: int) -> None:
    """Moves the group in the first queue."""
    fields = {"consumerGroup": "g", "topic": QUEUES[0], "queueId": 0, "commitOffset": offset}
    assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, **fields).code == 0


def test_a_broker_goes_on_with_our_light_queues_and_we_with_its(tmp_path: pathlib.Path) -> None:
    store, address_file = tmp_path / "store", tmp_path / "door"
    light = {"enableLmq": "true", "enableMultiDispatch": "true"}
    broker = real_broker.RealRocketMQ(store, tmp_path / "rocketmq", **FILE_SIZES, **INDEX_SIZES, **light)
    settings = {
        **OUR_SIZES,
        "REPUT_STORE_HOST": f"127.0.0.1:{broker.broker_port}",
        "REPUT_COMMITLOG_ENABLE_LMQ": "true",
        "REPUT_GATEWAY_REMOTING_ADDRESS": "127.0.0.1:0",
        "REPUT_GATEWAY_REMOTING_ADDRESS_FILE": str(address_file),
    }
    with hosted_stack(store, settings=settings) as stack, door_of(address_file.read_text().strip()) as client:
        for number in range(COUNT):
            send(client, number)
        commit(client, 7)
        stack.wait_until_built()
    assert cli.main.main(["hand-back", str(store)]) == 0

    broker.start()
    try:
        with door_of(f"127.0.0.1:{broker.broker_port}") as client:
            assert {queue: bodies(client, queue) for queue in QUEUES} == {queue: [*range(COUNT)] for queue in QUEUES}
            assert position(client) == 7
            for number in range(COUNT, COUNT + 5):
                send(client, number)
            expected = [*range(COUNT + 5)]
            for queue in QUEUES:
                wait_until(
                    lambda queue=queue: bodies(client, queue) == expected,
                    f"the broker goes on in {queue}",
                    poll_seconds=0.2,
                )
            commit(client, 9)
    finally:
        broker.stop()

    with hosted_stack(store, settings=settings) as stack, door_of(address_file.read_text().strip()) as client:
        stack.wait_until_built()
        assert position(client) == 9
        send(client, COUNT + 5)
        stack.wait_until_built()
        for queue in QUEUES:
            wait_until(
                lambda queue=queue: bodies(client, queue) == [*range(COUNT + 6)], f"{queue} goes on", poll_seconds=0.2
            )
