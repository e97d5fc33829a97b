"""Bugs that people reported of RocketMQ, its clients and dashboards, and of other brokers, tried on one running stack.

docs/reports.md lists them all; most have tests where the code is. The tests here need the whole way through the services.
"""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import AdminClient, Consumer, MessageType, NotFoundError, Producer, QueryClient
from tests.gateway.rocketmq import consumers
from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

LEASE_SECONDS_MIN = 10  # the shortest invisible time that RocketMQ's contract allows


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("reports") / "store") as running:
        yield running


@pytest.fixture(scope="module")
def address(stack: HostedStack) -> str:
    return stack.addresses["gateway"]


@pytest.fixture(scope="module")
def producer(address: str) -> Iterator[Producer]:
    with Producer(address) as producer:
        yield producer


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[QueryClient]:
    with QueryClient(address) as client:
        yield client


def one_queue(address: str, topic: str, **settings: object) -> str:
    with AdminClient(address) as admin:
        admin.create_topic(topic, queue_count=1, **settings)
    return topic


def test_keys_of_two_topics_with_one_hash_do_not_find_one_another(producer: Producer, client: QueryClient) -> None:
    """apache/rocketmq 3613: `AaTopic#BB` and `BBTopic#Aa` have one hash code in Java."""
    producer.send_and_wait("AaTopic", b"first", keys=["Aa"])
    receipt = producer.send_and_wait("BBTopic", b"second", keys=["BB"])
    assert [message.body for message in client.by_key("AaTopic", "Aa", after=receipt)] == [b"first"]
    assert list(client.by_key("AaTopic", "BB", after=receipt)) == []
    assert list(client.by_key("BBTopic", "Aa", after=receipt)) == []


def test_a_unique_key_of_a_producer_whose_clock_is_wrong_finds_its_message(
    producer: Producer, client: QueryClient
) -> None:
    """apache/rocketmq 681, rocketmq-dashboard 274: RocketMQ searches around the time in the id, or three days back."""
    epoch_in_id = "7F000001" + "0" * 16 + "00000000"  # the id says the begin of a month; the message is of today
    receipt = producer.send_and_wait("Clocks", b"late", unique_key=epoch_in_id)
    assert [message.body for message in client.by_unique_key("Clocks", epoch_in_id, after=receipt)] == [b"late"]


def test_a_unique_key_of_two_messages_finds_both(stack: HostedStack, client: QueryClient) -> None:
    """apache/rocketmq 2735: the tool showed one of the messages that a retry of the producer had stored twice."""
    key = "C0A80001" + "1" * 24
    messages = [new_message("Twice", body, unique_key=key) for body in (b"one", b"two")]
    stored = stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX).results
    tokens = [result.freshness_token for result in stored]
    found = [message.body for message in client.by_unique_key("Twice", key, after=tokens)]
    assert sorted(found) == [b"one", b"two"]


def test_an_id_finds_its_message_without_a_topic_and_never_under_another_one(
    producer: Producer, client: QueryClient, address: str
) -> None:
    """rocketmq-dashboard 1292 and 299: an id without a topic found nothing; a wrong topic was ignored."""
    receipt = producer.send_and_wait("Named", b"by id")
    assert client.by_id(receipt.offset_msg_id).body == b"by id"
    assert run_command("find", receipt.offset_msg_id, "--address", address).returncode == 0
    with pytest.raises(NotFoundError):
        client.by_id(receipt.offset_msg_id, topic="Other")


def test_a_message_that_waits_for_its_time_is_found_by_its_key(producer: Producer, client: QueryClient) -> None:
    """apache/rocketmq 8534: a timer message could not be queried, because its topic is the broker's own."""
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    receipt = producer.send_and_wait("Timed", b"later", keys=["timed-1"], delivery_time=due)
    matches = list(client.find("timed-1", after=receipt, with_tracks=True))
    assert [match.message.body for match in matches] == [b"later"]
    assert matches[0].due_time == due


@pytest.mark.long  # waits for the end of a lease
def test_an_acknowledgement_after_a_change_of_invisible_time_counts_in_the_middle_of_a_batch(
    stack: HostedStack, producer: Producer, address: str
) -> None:
    """apache/rocketmq 9583: the fifth of ten messages came again although it was acknowledged with its new handle."""
    topic = one_queue(address, "Middle")
    for number in range(10):
        producer.send_and_wait(topic, b"%d" % number)
    stack.wait_until_built()
    consumer = consumers.Consumer(address, group="middle", topic=topic)
    code, messages = consumer.receive(batch_size=10, invisible=LEASE_SECONDS_MIN, seconds=5)
    assert (code, len(messages)) == (v2.OK, 10)
    changed = consumer.change(messages[4].system_properties.receipt_handle, 30)
    assert changed.status.code == v2.OK
    assert consumer.ack(changed.receipt_handle).status.code == v2.OK
    again: list[bytes] = []

    def came_again() -> bool:
        _, messages = consumer.receive(batch_size=32, invisible=30, seconds=5)
        again.extend(message.body for message in messages)
        return len(again) >= 9

    wait_until(came_again, "nine messages again")
    assert sorted(again) == sorted(b"%d" % number for number in range(10) if number != 4)


def test_a_receive_that_is_repeated_with_its_attempt_id_gets_its_messages_again_as_the_same_attempt(
    stack: HostedStack, producer: Producer, address: str
) -> None:
    """apache/rocketmq 6690, rocketmq-clients 708, 1321: an answer was lost, and the queue stood still until the lease ended."""
    topic = one_queue(address, "Lost", message_type=MessageType.FIFO)
    with QueryClient(address) as client:
        client.update_consumer_group("lost", ordered=True)
    producer.send_and_wait(topic, b"a", properties={"__SHARDINGKEY": "g"})
    producer.send_and_wait(topic, b"b", properties={"__SHARDINGKEY": "g"})
    stack.wait_until_built()
    consumer = consumers.Consumer(address, group="lost", topic=topic)
    _, first = consumer.receive(batch_size=2, seconds=5, attempt_id="attempt-1")
    assert [message.body for message in first] == [b"a", b"b"]
    code, _ = consumer.receive(batch_size=2, seconds=5, attempt_id="attempt-2")
    assert code == v2.MESSAGE_NOT_FOUND
    _, again = consumer.receive(batch_size=2, seconds=5, attempt_id="attempt-1")
    assert [message.body for message in again] == [b"a", b"b"]
    assert [message.system_properties.delivery_attempt for message in again] == [1, 1]


@pytest.mark.long  # waits for the end of a lease
def test_a_handle_whose_lease_has_ended_changes_nothing_of_the_next_delivery(producer: Producer, address: str) -> None:
    """apache/pulsar 6451: a negative acknowledgement after the time-out broke the counts of redeliveries."""
    topic = one_queue(address, "Late")
    producer.send_and_wait(topic, b"slow")
    consumer = consumers.Consumer(address, group="late", topic=topic)
    _, (first,) = consumer.receive(batch_size=1, invisible=LEASE_SECONDS_MIN, seconds=5)
    second: list[v2.Message] = []
    wait_until(lambda: second.extend(consumer.receive(batch_size=1, seconds=5)[1]) or second, "the second delivery")
    late = consumer.change(first.system_properties.receipt_handle, 1)
    assert late.status.code == v2.INVALID_RECEIPT_HANDLE
    assert [message.system_properties.delivery_attempt for message in second] == [2]
    assert consumer.receive(batch_size=1, seconds=5)[0] == v2.MESSAGE_NOT_FOUND
    assert consumer.ack(second[0].system_properties.receipt_handle).status.code == v2.OK


def test_a_consumer_that_closes_acknowledges_what_its_handler_finishes_meanwhile(
    producer: Producer, address: str, client: QueryClient
) -> None:
    """rocketmq-clients 816: a push consumer that shut down could not acknowledge what it had just handled."""
    topic = one_queue(address, "Closing")
    producer.send_and_wait(topic, b"work")
    begun, go_on, handled = threading.Event(), threading.Event(), []

    def handle(message: object) -> None:
        begun.set()
        assert go_on.wait(WAIT_SECONDS_MAX)
        handled.append(message)

    consumer = Consumer(address, "closing", {topic: "*"})
    running = threading.Thread(target=consumer.run, args=(handle,))
    running.start()
    assert begun.wait(WAIT_SECONDS_MAX)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    go_on.set()
    for thread in (closing, running):
        thread.join(WAIT_SECONDS_MAX)
    assert len(handled) == 1
    assert [queue.consumer_offset for queue in client.offsets("closing", topic)] == [1]
