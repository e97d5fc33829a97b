"""What is done around each query method of GatewayServicer: its time is taken, and the request's choice of replicas followed.

The time is a histogram by mode (services/methods.py) and by the completeness of the answer:

complete | truncated | partial   as in the answer; an answer without the field is complete
refused                          the caller's mistake, or nothing was found: no reason for an alert
failed                           a failure of the services: the codes below
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from gateway.shards.replica_choice import Choice, ReadFrom
from gateway.shards.replica_reads import Reading, ReplicaReads
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.methods import GATEWAY_SERVICE, METHODS
from services.observing.meters import SECONDS_BOUNDS, HistogramFamily
from services.serving.calls.at_once import AttemptContext
from services.status import to_status
from store.errors import InvalidArgumentError, StoreError

# Shown by each process that adds it to its meters.
QUERY_SECONDS = HistogramFamily(
    "gateway_query_seconds", "Time of a query in the gateway.", ("mode", "completeness"), SECONDS_BOUNDS
)
WORDS = {
    message_pb2.COMPLETENESS_UNSPECIFIED: "complete",
    message_pb2.COMPLETENESS_COMPLETE: "complete",
    message_pb2.COMPLETENESS_TRUNCATED: "truncated",
    message_pb2.COMPLETENESS_PARTIAL: "partial",
}
# google.rpc.Code: UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE, DATA_LOSS.
FAILURE_CODES = frozenset({2, 4, 8, 13, 14, 15})
REFUSED, FAILED = "refused", "failed"

Answer = TypeVar("Answer")
Query = Callable[[Any, Any, Any], Answer]


def timed_query(
    method: Query[Answer], family: HistogramFamily = QUERY_SECONDS, clock: Callable[[], float] = time.perf_counter
) -> Query[Answer]:
    """Decorates a query method of the gateway's servicer: its calls are timed under its query mode."""
    mode = METHODS[GATEWAY_SERVICE + method.__name__].query_mode
    assert mode, f"{method.__name__} has no query mode in services/methods.py"

    @functools.wraps(method)
    def timed(servicer: Any, request: Any, context: Any) -> Answer:
        began = clock()
        word = FAILED
        is_attempt = isinstance(context, AttemptContext)
        try:
            answer = method(servicer, request, context)
            word = WORDS[getattr(answer, "completeness", message_pb2.COMPLETENESS_COMPLETE)]
            return answer
        except StoreError as error:
            if to_status(error).code not in FAILURE_CODES:
                word = REFUSED
            raise
        finally:
            if not is_attempt or word not in (REFUSED, FAILED):  # else a thread asks again, and counts
                family.of(mode, word).observe(clock() - began)

    return timed


# google.protobuf.Duration's own limit: about 10,000 years.
DURATION_SECONDS_MAX = 315_576_000_000
NANOS_MAX = 999_999_999
READ_FROM = {
    pb.READ_FROM_LEADER: ReadFrom.LEADER,
    pb.READ_FROM_ANY: ReadFrom.ANY,
    pb.READ_FROM_REPLICA: ReadFrom.REPLICA,
}


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
        if servicer.read_from is ReadFrom.LEADER and not request.HasField("read"):
            return method(servicer, request, context)  # the usual case: there is nothing to follow, judge or tell
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
