"""The cases of RocketMQ's own tests of this contract, in our words: one installation, the calls of a client.

Those of messages that wait for a time or a verdict stand where these are tested. The server of its tests allows invisible
times and polls of any length; here they are as long as a server asks of clients by default.
"""

import pathlib
from collections.abc import Iterator

import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.gateway.rocketmq.consumers import ENDPOINTS, Consumer
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX

QUEUE_COUNT = 8
INVISIBLE_SECONDS_MIN = 10
OK_STATUS = v2.Status(code=v2.OK, message="OK")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(pathlib.Path(tmp_path_factory.mktemp("contract")) / "store") as one:
        yield one


def client_of(stack: HostedStack, topic: str, *, is_fifo: bool = False, attempts: int = 0) -> Consumer:
    """A client of a new topic with its type, and of a new group."""
    kind = message_pb2.MESSAGE_TYPE_FIFO if is_fifo else message_pb2.MESSAGE_TYPE_NORMAL
    create = pb.CreateTopicRequest(topic=topic, queue_count=QUEUE_COUNT, message_type=kind)
    stack.gateway.CreateTopic(create, timeout=WAIT_SECONDS_MAX)
    client = Consumer(
        stack.addresses["gateway"], client_id=f"client-of-{topic}", group=f"group-of-{topic}", topic=topic
    )
    if is_fifo or attempts:
        update = pb.UpdateConsumerGroupRequest(
            consumer_group=client.group.name, ordered=is_fifo, delivery_attempts_max=attempts
        )
        stack.gateway.UpdateConsumerGroup(update, timeout=WAIT_SECONDS_MAX)
    return client


def send(client: Consumer, message_id: str, **system: object) -> None:
    """One client is a consumer and a producer: it tells first the one, then the other settings."""
    publishing = v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(topics=[client.topic]))
    assert client.tell(publishing)[0].status == OK_STATUS
    properties = v2.SystemProperties(message_id=message_id, **system)
    message = v2.Message(topic=client.topic, body=b"123", system_properties=properties)
    answer = client.call("SendMessage", v2.SendMessageRequest(messages=[message]))
    assert (answer.status, answer.entries[0].message_id) == (OK_STATUS, message_id)
    assert not answer.entries[0].recall_handle


def receive_one(client: Consumer) -> v2.SystemProperties:
    code, (message,) = client.receive(broker="", batch_size=1, invisible=INVISIBLE_SECONDS_MIN)
    assert code == v2.OK
    return message.system_properties


def settle(client: Consumer, client_type: int) -> None:
    assert client.tell(client.settings(client_type))[0].status == OK_STATUS


@pytest.mark.parametrize(("is_fifo", "count"), [(False, 1), (True, QUEUE_COUNT)])
def test_a_group_gets_one_assignment_or_one_for_each_queue(stack: HostedStack, is_fifo: bool, count: int) -> None:
    client = client_of(stack, f"Assigned-{is_fifo}", is_fifo=is_fifo)
    request = v2.QueryAssignmentRequest(topic=client.topic, group=client.group, endpoints=ENDPOINTS)
    answer = client.call("QueryAssignment", request)
    assert (answer.status, len(answer.assignments)) == (OK_STATUS, count)
    assert {each.message_queue.broker.endpoints.addresses[0].port for each in answer.assignments} == {80}
    route = client.call("QueryRoute", v2.QueryRouteRequest(topic=client.topic, endpoints=ENDPOINTS))
    assert (route.status, len(route.message_queues)) == (OK_STATUS, QUEUE_COUNT)


def test_of_two_lives_of_a_message_only_the_second_can_be_acknowledged(stack: HostedStack) -> None:
    client = client_of(stack, "TwoLives")
    settle(client, v2.SIMPLE_CONSUMER)
    send(client, "two-lives")
    settle(client, v2.SIMPLE_CONSUMER)
    first = receive_one(client)
    changed = client.change(first.receipt_handle, 1)
    assert (changed.status.code, changed.receipt_handle != first.receipt_handle) == (v2.OK, True)
    second = receive_one(client)
    assert (first.message_id, second.message_id) == ("two-lives", "two-lives")
    answer = client.ack(changed.receipt_handle, second.receipt_handle)
    assert answer.status == v2.Status(code=v2.MULTIPLE_RESULTS, message="MULTIPLE_RESULTS")
    assert [entry.status.code for entry in answer.entries] == [v2.INVALID_RECEIPT_HANDLE, v2.OK]


def test_after_its_attempts_a_message_is_in_the_dead_letters_and_nowhere_else(stack: HostedStack) -> None:
    client = client_of(stack, "Attempts", attempts=2)
    settle(client, v2.SIMPLE_CONSUMER)
    send(client, "attempts")
    for attempt in (1, 2):
        received = receive_one(client)
        assert (received.message_id, received.delivery_attempt) == ("attempts", attempt)
        assert client.change(received.receipt_handle, 0).status.code == v2.OK
    undertaker = Consumer(stack.addresses["gateway"], group="undertaker", topic=f"%DLQ%{client.group.name}")
    assert receive_one(undertaker).message_id == "attempts"
    assert client.receive(broker="", seconds=5) == (v2.MESSAGE_NOT_FOUND, [])


def test_messages_of_one_group_come_one_by_one_in_their_order(stack: HostedStack) -> None:
    client = client_of(stack, "InOrder", is_fifo=True)
    settle(client, v2.PUSH_CONSUMER)
    sent = [f"in-order-{number}" for number in range(3)]
    for message_id in sent:
        send(client, message_id, message_type=v2.FIFO, message_group="group")
    settle(client, v2.PUSH_CONSUMER)
    received = []
    for _ in sent:
        one = receive_one(client)
        received.append(one.message_id)
        assert client.ack(one.receipt_handle).status == OK_STATUS
    assert received == sent
