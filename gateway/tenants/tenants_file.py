"""The tenants file: what each namespace may use.

    gateway_count = 2                           # gateways that share rates and connections; each lets its part pass

    [namespaces.team-a]
    sent_bytes_per_second = 1_000_000
    sent_messages_per_second = 1_000

What is left out is not limited, and a namespace that is not named has no quota. The file is checked for changes and read as a
whole, as the access file (gateway/auth/access_file.py).
"""

import tomllib
from collections.abc import Mapping
from typing import Annotated, Any

import pydantic

# As many gateways as shards; more is a mistake.
GATEWAY_COUNT_MAX = 1_000
# Each is a few numbers in memory, and some series on the page of metrics.
NAMESPACE_COUNT_MAX = 1_000
NAMESPACE_PATTERN = r"^[|a-zA-Z0-9_-]{1,120}$"

Name = Annotated[str, pydantic.Field(pattern=NAMESPACE_PATTERN)]
# What the numbers of ListTenants hold; a larger one would be no number of floating point either.
LIMIT_MAX = (1 << 63) - 1
Limit = Annotated[int, pydantic.Field(ge=0, le=LIMIT_MAX, strict=True)]


class Quotas(pydantic.BaseModel):
    """What a namespace may use; None: no limit.

    Attributes:
        sent_bytes_per_second: bytes of messages that are sent, as protobuf has them.
        sent_messages_per_second: messages that are sent.
        delivered_messages_per_second: messages that are handed out to consumers.
        topics: topics, without retry and dead-letter topics.
        groups: consumer groups.
        stored_bytes: bytes of records in the logs of all shards.
        connections: clients that name the namespace, in their settings or heartbeats.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    sent_bytes_per_second: Limit | None = None
    sent_messages_per_second: Limit | None = None
    delivered_messages_per_second: Limit | None = None
    topics: Limit | None = None
    groups: Limit | None = None
    stored_bytes: Limit | None = None
    connections: Limit | None = None

    @property
    def need_usage(self) -> bool:
        """Whether the shards have to be asked what the namespace has."""
        return any(each is not None for each in (self.topics, self.groups, self.stored_bytes))


class TenantsFile(pydantic.BaseModel):
    """The file.

    Attributes:
        gateway_count: gateways that share the rates and connections.
        namespaces: quotas by namespace.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    gateway_count: Annotated[int, pydantic.Field(ge=1, le=GATEWAY_COUNT_MAX, strict=True)] = 1
    namespaces: Annotated[dict[Name, Quotas], pydantic.Field(max_length=NAMESPACE_COUNT_MAX)] = {}


def parse_tenants_file(data: bytes) -> TenantsFile:
    """The quotas of a tenants file; ValueError: it is not valid."""
    try:
        table: Mapping[str, Any] = tomllib.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
    return TenantsFile.model_validate(table)
