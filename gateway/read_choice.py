"""The choice of replicas in a request of `reput.gateway.v1`, and the decorator of the queries that follow it."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from gateway.shards.replica_choice import Choice, ReadFrom
from gateway.shards.replica_reads import Reading, ReplicaReads
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import InvalidArgumentError, StoreError

# google.protobuf.Duration's own limit: about 10,000 years.
DURATION_SECONDS_MAX = 315_576_000_000
NANOS_MAX = 999_999_999
READ_FROM = {
    pb.READ_FROM_LEADER: ReadFrom.LEADER,
    pb.READ_FROM_ANY: ReadFrom.ANY,
    pb.READ_FROM_REPLICA: ReadFrom.REPLICA,
}

Answer = TypeVar("Answer")


class Readable(Protocol):
    """A servicer whose queries follow the choice.

    Attributes:
        reads: the shards by choice; None: always the leader.
        read_from: what a request means that does not choose.
    """

    reads: ReplicaReads | None
    read_from: ReadFrom


def choice_of(request: Any, default: ReadFrom) -> Choice:
    """The choice of a request; InvalidArgumentError by field."""
    read: pb.ReadChoice = request.read
    if read.read_from not in (pb.READ_FROM_UNSPECIFIED, *READ_FROM):
        raise InvalidArgumentError(
            f"read_from {read.read_from} is not a ReadFrom: use READ_FROM_LEADER, READ_FROM_ANY or READ_FROM_REPLICA.",
            field="read.read_from",
        )
    seconds = None
    if read.HasField("max_staleness"):
        limit = read.max_staleness
        if not (0 <= limit.seconds <= DURATION_SECONDS_MAX and 0 <= limit.nanos <= NANOS_MAX):
            raise InvalidArgumentError(
                f"max_staleness of {limit.seconds} s and {limit.nanos} ns is no time from 0 to 10,000 years.",
                field="read.max_staleness",
            )
        seconds = limit.seconds + limit.nanos / 1e9
    return Choice(READ_FROM.get(read.read_from, default), seconds)


@contextlib.contextmanager
def reading_by(servicer: Readable, request: Any, *, lists: bool = False) -> Iterator[Reading]:
    """Inside the block the shards of the servicer follow the choice of a request; see ReplicaReads.reading.

    Raises:
        InvalidArgumentError: by field.
    """
    choice = choice_of(request, servicer.read_from)
    if servicer.reads is None or choice.read_from is ReadFrom.LEADER:
        yield Reading(choice)
        return
    has_tokens = bool(getattr(request, "freshness_tokens", ()))
    with servicer.reads.reading(choice, has_tokens=has_tokens, lists=lists) as reading:
        yield reading


def by_choice(method: Callable[[Any, Any, Any], Answer], *, lists: bool = False) -> Callable[[Any, Any, Any], Answer]:
    """Decorates a query method of a Readable: its shards follow the request's `read`, its answer says what they may lack."""

    @functools.wraps(method)
    def asked(servicer: Readable, request: Any, context: Any) -> Answer:
        with reading_by(servicer, request, lists=lists) as reading:
            try:
                answer = method(servicer, request, context)
            except StoreError as error:
                judged = reading.judged(error)
                if judged is error:
                    raise
                raise judged from error
            reading.tell(answer, message_pb2.COMPLETENESS_PARTIAL)
            return answer

    return asked
