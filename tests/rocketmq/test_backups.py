"""The real RocketMQ opens a store that was restored from a backup, answers as ours did, and goes on with it; so do we then."""

import contextlib
import pathlib

import pytest

from cli.backup.places import DirectoryPlace
from cli.backup.restoring import restore_store
from cli.backup.taking import take_backup
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.rocketmq.codes import RequestCode
from tests.gateway.remoting.requests import DoorClient, pull_fields, records
from tests.rocketmq import broker_calls, real_broker
from tests.rocketmq.test_interop import FILE_SIZES, INDEX_SIZES, OUR_SIZES
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.release,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]
TOPIC, GROUP, BROKER = "Orders", "billing", "broker-a"
COUNT, LATER, POSITION = 450, 20, 7  # of more than two files of a queue


def send(stack: HostedStack, first: int, count: int) -> None:
    messages = [
        new_message(TOPIC, f"{number}".encode(), keys=[f"key-{number}"], queue_id=0)
        for number in range(first, first + count)
    ]
    request = pb.AppendMessagesRequest(messages=messages, flush=message_pb2.FLUSH_MODE_SYNC)
    stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX)


def pulled(broker: DoorClient) -> list[int]:
    """The bodies of all messages of the queue, as the broker gives them."""
    found: list[int] = []
    while True:
        answer = broker.call(RequestCode.PULL_MESSAGE, **pull_fields(TOPIC, len(found)))
        if answer.code:
            return found
        found += [int(record.body) for record in records(answer.body)]


def by_key(broker: DoorClient, number: int) -> list[bytes]:
    """What the broker finds by a key."""
    fields = {"topic": TOPIC, "key": f"key-{number}", "maxNum": 8, "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}
    answer = broker.call(RequestCode.QUERY_MESSAGE, **fields)
    return [] if answer.code else [record.body for record in records(answer.body)]


# As docs/backup.md says; a store that no service opened since has all but the newest positions of groups.
@pytest.mark.parametrize("is_served_first", [True, False], ids=["served", "as-restored"])
def test_a_real_broker_opens_a_restored_store_and_answers_as_we_did(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, *, is_served_first: bool
) -> None:
    place, store = DirectoryPlace(tmp_path / "place"), tmp_path / "restored"
    broker = real_broker.RealRocketMQ(store, tmp_path / "rocketmq", **FILE_SIZES, **INDEX_SIZES)
    settings = {**OUR_SIZES, "REPUT_STORE_HOST": f"127.0.0.1:{broker.broker_port}"}
    with hosted_stack(tmp_path / "store", settings=settings) as stack:
        send(stack, 0, COUNT)
        position = pb.QueuePosition(topic=TOPIC, queue_id=0, broker_name=BROKER, consumer_offset=POSITION)
        request = pb.CommitOffsetsRequest(consumer_group=GROUP, positions=[position])
        stack.gateway.CommitOffsets(request, timeout=WAIT_SECONDS_MAX)
        stack.wait_until_built()
        take_backup(tmp_path / "store", place, BROKER)
        send(stack, COUNT, LATER)  # not in the backup
    for name, value in OUR_SIZES.items():
        monkeypatch.setenv(name, value)  # a broker refuses queues of another size than its own
    report = restore_store(place, store)
    assert report.findings == []
    if is_served_first:
        with hosted_stack(store, settings=settings) as stack:
            stack.wait_until_built()

    broker.start()
    try:
        with contextlib.closing(DoorClient(f"127.0.0.1:{broker.broker_port}")) as client:
            assert pulled(client) == [*range(COUNT)]
            assert [by_key(client, number) for number in (0, COUNT - 1, COUNT)] == [[b"0"], [b"%d" % (COUNT - 1)], []]
            if is_served_first:
                fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
                answer = client.call(RequestCode.QUERY_CONSUMER_OFFSET, **fields)
                assert (answer.code, int(answer.fields["offset"])) == (0, POSITION)
            receipt = broker_calls.send_to(broker.broker_port, TOPIC, 0, f"{COUNT}")
            assert receipt.queue_offset == COUNT
            wait_until(lambda: pulled(client) == [*range(COUNT + 1)], "the broker goes on", poll_seconds=0.2)
    finally:
        broker.stop()

    with hosted_stack(store, settings=settings) as stack:
        stack.wait_until_built()
        send(stack, COUNT + 1, 1)
        request = pb.QueryMessageByKeyRequest(topic=TOPIC, key=f"key-{COUNT + 1}")
        (found,) = stack.gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX).messages
        assert found.queue_offset == COUNT + 1
