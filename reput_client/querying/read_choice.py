"""Which replica of a shard answers a query."""

import datetime
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reput.gateway.v1 import gateway_service_pb2 as pb


class ReadFrom(Enum):
    """Which replica of a shard answers; shards without replicas answer as ever."""

    DEFAULT = pb.READ_FROM_UNSPECIFIED  # as the gateway is set; the leader, if it is not
    LEADER = pb.READ_FROM_LEADER
    ANY = pb.READ_FROM_ANY  # the leader; others for what is cold, and while nobody leads
    REPLICA = pb.READ_FROM_REPLICA  # another one, where one is near enough to the leader


@dataclass(frozen=True, slots=True)
class ReadChoice:
    """What a client allows.

    Attributes:
        read_from: which replica.
        max_staleness: only replicas that lack at most what was confirmed so long ago; None: 10 s beside a leader, and no
            limit while nobody leads.
    """

    read_from: ReadFrom = ReadFrom.DEFAULT
    max_staleness: datetime.timedelta | None = None


def choose(request: Any, choice: ReadChoice) -> None:
    """Put the choice into a request that can have one, or into the query that it asks to explain."""
    if isinstance(request, pb.ExplainQueryRequest):
        request = getattr(request, request.WhichOneof("query") or "by_key")
    if choice == ReadChoice() or "read" not in request.DESCRIPTOR.fields_by_name:
        return
    read: pb.ReadChoice = request.read
    read.read_from = choice.read_from.value
    if choice.max_staleness is not None:
        read.max_staleness.FromTimedelta(choice.max_staleness)
