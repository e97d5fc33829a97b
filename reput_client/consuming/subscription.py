"""Subscriptions: the messages that a consumer wants, in the words of both contracts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput.gateway.v1 import gateway_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class Sql:
    """A filter in RocketMQ's SQL92 over the properties of messages, such as `size > 3 AND TAGS IN ('a', 'b')`.

    Attributes:
        expression: the text.
    """

    expression: str


# Topic to filter: `a || b` takes messages with one of these tags, `*` all.
Subscriptions = Mapping[str, "str | Sql"]


class Member(NamedTuple):
    """A consumer as its group knows it, or a producer that is asked about its transactions.

    Attributes:
        client_id: its identity, on whatever connection.
        consumer_group: its group; empty for a producer.
        subscriptions: what it wants; the topics of a producer.
        client_type: `v2.PUSH_CONSUMER` or the like.
    """

    client_id: str
    consumer_group: str
    subscriptions: Subscriptions
    client_type: int


def checked(subscriptions: Subscriptions) -> dict[str, "str | Sql"]:
    """A copy.

    Raises:
        ValueError: no topic is named.
        TypeError: a filter is neither text nor Sql.
    """
    if not subscriptions:
        raise ValueError("subscriptions is empty: name a topic, such as {'Orders': '*'}")
    for topic, wanted in subscriptions.items():
        if not isinstance(wanted, str | Sql):
            raise TypeError(f"the filter of {topic} is a {type(wanted).__name__}: give 'a || b', '*' or Sql(...)")
    return dict(subscriptions)


def expression_of(wanted: "str | Sql") -> v2.FilterExpression:
    """A filter as RocketMQ's contract has it."""
    if isinstance(wanted, Sql):
        return v2.FilterExpression(type=v2.SQL, expression=wanted.expression)
    return v2.FilterExpression(type=v2.TAG, expression=wanted or "*")


def message_filter_of(wanted: "str | Sql") -> pb.MessageFilter:
    """A filter as `reput.gateway.v1` has it."""
    return pb.MessageFilter(sql=wanted.expression) if isinstance(wanted, Sql) else pb.MessageFilter(tags=wanted or "*")


def endpoints_of(target: str) -> v2.Endpoints:
    """The address that a client called, in RocketMQ's form; a gateway gives it back for its queues."""
    name = target.rpartition("/")[2] if "://" in target else target
    host, colon, port = name.rpartition(":")
    if target.startswith("unix:") or not colon or not port.isdecimal():
        host, port = "localhost", "8081"  # an address that this form cannot hold; only given back
    host = host.strip("[]")
    scheme = v2.IPv6 if ":" in host else v2.IPv4 if host.replace(".", "").isdecimal() else v2.DOMAIN_NAME
    return v2.Endpoints(scheme=scheme, addresses=[v2.Address(host=host, port=int(port))])


def target_of(endpoints: v2.Endpoints) -> str:
    """The address to dial; with several, the first."""
    address = endpoints.addresses[0]
    return f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"


def settings_of(member: Member, endpoints: v2.Endpoints, request_seconds: float) -> v2.Settings:
    """The settings that a client sends to a gateway."""
    settings = v2.Settings(access_point=endpoints)
    settings.client_type = member.client_type  # type: ignore[assignment]  # numbers are enum values here
    settings.request_timeout.FromMilliseconds(int(request_seconds * 1000))
    if member.client_type == v2.PRODUCER:
        settings.publishing.topics.extend(v2.Resource(name=topic) for topic in member.subscriptions)
        return settings
    settings.subscription.group.name = member.consumer_group
    for topic, wanted in member.subscriptions.items():
        entry = settings.subscription.subscriptions.add()
        entry.topic.name = topic
        entry.expression.CopyFrom(expression_of(wanted))
    return settings
