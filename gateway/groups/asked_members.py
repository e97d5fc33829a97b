"""What a member of a group is asked, by whichever door it came: what it does now (RocketMQ's ConsumerRunningInfo, 307), and to
consume one message (309).

    GetConsumerRunningInfo, 307, 309 ──▶ AskedMembers ──▶ a way for each door: remoting asks the client; gRPC tells what
                                                           the gateway knows, and asks for stacks and 309 over Telemetry
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from gateway.groups.asking import answered, ask_all, check_group, group_not_found, raise_failure
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import SQL, TAG, expression_of
from gateway.ports.groups import GET_GROUP
from gateway.ports.shards import Shards
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import (
    GroupNotFoundError,
    MemberNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    StoreError,
)
from store.format.java_text import java_string_hash

# A client that is asked answers at once, or consumes a message first.
RUNNING_INFO_SECONDS, CONSUME_SECONDS = 10.0, 60.0


class Told(NamedTuple):
    """An answer.

    Attributes:
        body: ConsumerRunningInfo or ConsumeMessageDirectlyResult as RocketMQ writes it, JSON of fastjson.
        is_by_gateway: the member was not asked.
    """

    body: bytes
    is_by_gateway: bool = False


Receiver = Callable[["Told | StoreError"], object]


class Way(Protocol):
    """A door to members. Each question is answered once, from any thread; False: this door has no such member."""

    def ask(self, consumer_group: str, client_id: str, told: Receiver, *, with_stack_trace: bool) -> bool:
        """Have a member tell what it does."""

    def consume(self, consumer_group: str, client_id: str, message: StoredMessage, told: Receiver) -> bool:
        """Have a member consume a message now, and tell how that went."""


class AskedMembers:
    """The ways to the members of a gateway; itself a Way, over all doors.

    Attributes:
        ways: in the order in which they are tried; added while the gateway starts.
    """

    def __init__(self) -> None:
        self.ways: list[Way] = []

    def ask(self, consumer_group: str, client_id: str, told: Receiver, *, with_stack_trace: bool) -> bool:
        """See Way."""
        return any(way.ask(consumer_group, client_id, told, with_stack_trace=with_stack_trace) for way in self.ways)

    def consume(self, consumer_group: str, client_id: str, message: StoredMessage, told: Receiver) -> bool:
        """See Way."""
        return any(way.consume(consumer_group, client_id, message, told) for way in self.ways)

    def get(self, consumer_group: str, member: pb.Client, deadline: Deadline, *, with_stack_trace: bool) -> Told:
        """What a member of a group (`find_member`) tells; waits for it.

        Raises:
            ServiceUnavailableError: it is not at this gateway, or does not answer.
            StoreError: likewise.
        """
        client_id = member.client_id
        answers: list[Told | StoreError] = []
        is_told = threading.Event()

        def told(answer: Told | StoreError) -> None:
            answers.append(answer)
            is_told.set()

        if not self.ask(consumer_group, client_id, told, with_stack_trace=with_stack_trace):
            raise ServiceUnavailableError(
                f"the member {client_id} of {consumer_group} is a {member.kind or 'member'} at {member.address}, with a "
                "connection to another gateway: ask that one",
                service="gateway",
            )
        if not is_told.wait(min(RUNNING_INFO_SECONDS, deadline.remaining_seconds())):
            raise ServiceUnavailableError(
                f"the member {client_id} of {consumer_group} did not answer in time", service="client"
            )
        if isinstance(answers[0], StoreError):
            raise answers[0]
        return answers[0]


def check_stack_trace(consumer_group: str, *, is_limited: bool) -> None:
    """PermissionDeniedError for a caller that does not see everything: stacks name anything."""
    if is_limited:
        raise PermissionDeniedError(
            "the stacks of a member's threads are for a caller that may see every topic and group: ask without them",
            group=consumer_group,
        )


def find_member(shards: Shards, consumer_group: str, client_id: str, deadline: Deadline) -> pb.Client:
    """A member of a group, with those of its subscriptions that the caller may see.

    Raises:
        InvalidArgumentError: as `check_group`.
        GroupNotFoundError, MemberNotFoundError: no shard knows it.
        StoreError: a shard that may know it did not answer.
    """
    check_group(consumer_group)
    request = pb.GetGroupRequest(consumer_group=consumer_group, without_queues=True)
    answers = ask_all(shards, GET_GROUP, request, deadline)
    found = answered(answers)
    for _, facts in found:
        for member in facts.clients:
            if member.client_id == client_id:
                return member
    raise_failure(answers, (GroupNotFoundError,), "")  # it may be a member in a shard that did not answer
    if not found:
        raise group_not_found(consumer_group)
    raise MemberNotFoundError(
        f"the consumer group {consumer_group} has no member {client_id[:64]!r} that lives",
        consumerGroup=consumer_group,
        clientId=client_id[:64],
    )


def subscription_row(topic: str, expression: str, expression_type: str, version: int = 0) -> dict[str, object]:
    """What a member wants of a topic, as RocketMQ's SubscriptionData is written."""
    is_tags = expression_type == TAG
    names = expression.split("||") if is_tags and expression != "*" else []
    tags = [tag for tag in map(str.strip, names) if tag]
    return {
        "classFilterMode": False,
        "codeSet": [java_string_hash(tag) for tag in tags],
        "expressionType": expression_type,
        "subString": expression,
        "subVersion": version,
        "tagsSet": tags,
        "topic": topic,
    }


def row_of_subscription(wanted: gateway_pb.TopicSubscription) -> dict[str, object]:
    """The same of a member that the consumer service knows."""
    return subscription_row(wanted.topic, expression_of(wanted.filter) or "*", SQL if wanted.filter.sql else TAG)


def document_of(properties: Mapping[str, str], subscriptions: Iterable[dict[str, object]]) -> dict[str, object]:
    """A ConsumerRunningInfo of a member that tells neither queues nor rates."""
    return {
        "mqPopTable": {},
        "mqTable": {},
        "properties": dict(properties),
        "statusTable": {},
        "subscriptionSet": list(subscriptions),
        "userConsumerInfo": {},
    }
