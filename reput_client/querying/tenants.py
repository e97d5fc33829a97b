"""Namespaces: what they use, and their quotas at the gateway (docs/tenants.md)."""

from collections.abc import Mapping
from dataclasses import dataclass

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.querying.groups import page_size_of
from reput_client.querying.question import Question


@dataclass(frozen=True, slots=True)
class Tenant:
    """A namespace.

    Attributes:
        namespace: what stands before the `%` in the names of its topics and groups.
        quotas: by the name that the tenants file has; None: the file does not name the namespace.
        topic_count: topics, without retry and dead-letter topics.
        group_count: consumer groups.
        stored_bytes: bytes of its records in the logs of all shards.
        lag_count: messages that its groups have not consumed; None where there are too many groups to ask.
        sent_messages_per_second: messages that the logs got in the last minute.
        sent_bytes_per_second: bytes of their records.
        refused_count: what the gateway has refused because of a quota since it started.
        connection_count: clients that name it at the gateway; 0 when the tenants file does not name it.
    """

    namespace: str
    quotas: Mapping[str, int] | None
    topic_count: int
    group_count: int
    stored_bytes: int
    lag_count: int | None
    sent_messages_per_second: float
    sent_bytes_per_second: float
    refused_count: int
    connection_count: int


def tenants(namespace: str = "", *, limit: int | None = None) -> Question[tuple[Tenant, ...]]:
    """What namespaces use, by name, from as many pages as it takes.

    Args:
        namespace: only this one; empty: all that have topics, groups or quotas.
        limit: the first ones, at most so many; None: all.
    """
    return Question(
        "ListTenants",
        pb.ListTenantsRequest(namespace=namespace, page_size=page_size_of(limit)),
        lambda answer: tuple(map(_tenant_of, answer.tenants)),
        paged_field="tenants",
        item_count_max=limit,
    )


def _tenant_of(row: pb.Tenant) -> Tenant:
    quotas = {field.name: value for field, value in row.quotas.ListFields()} if row.HasField("quotas") else None
    return Tenant(
        row.namespace,
        quotas,
        row.topic_count,
        row.group_count,
        row.stored_bytes,
        row.lag_count if row.HasField("lag_count") else None,
        row.sent_messages_per_second,
        row.sent_bytes_per_second,
        row.refused_count,
        row.connection_count,
    )
