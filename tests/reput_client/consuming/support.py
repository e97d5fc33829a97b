"""What the tests of consumers share: names, groups, and messages in a store."""

import itertools
from collections.abc import Sequence

from reput_client import NotFoundError, Producer, QueryClient
from tests.support.stack import Stack

WAIT_SECONDS = 60.0
_numbers = itertools.count()


def fresh(name: str) -> str:
    """A topic or group of its own for a test, on a stack that tests share."""
    return f"{name}-{next(_numbers)}"


def send(stack: Stack, topic: str, bodies: Sequence[bytes], message_group: str = "", **named: object) -> None:
    """Send messages, in order; those of a message group to one queue."""
    properties = {"__SHARDINGKEY": message_group} if message_group else {}
    with Producer(stack.addresses["gateway"]) as producer:
        for body in bodies:
            producer.send(topic, body, properties=properties, **named)  # type: ignore[arg-type]


def make_group(stack: Stack, name: str, *, ordered: bool = False, delivery_attempts_max: int = 17) -> None:
    with QueryClient(stack.addresses["gateway"]) as client:
        client.update_consumer_group(name, ordered=ordered, delivery_attempts_max=delivery_attempts_max)


def in_flight_count(stack: Stack, group: str) -> int:
    """Messages of a group that are with consumers."""
    with QueryClient(stack.addresses["gateway"]) as client:
        return sum(queue.in_flight_count for queue in client.consumer_group(group).queues)


def bodies_of(stack: Stack, topic: str, queue_id: int = 0) -> list[bytes]:
    """What lies in a queue, such as that of dead letters; nothing while there is no such topic."""
    with QueryClient(stack.addresses["gateway"]) as client:
        try:
            return [message.body for message in client.by_offset(topic, queue_id, 0)]
        except NotFoundError:
            return []
