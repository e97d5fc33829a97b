"""A shard is one thing that can be called; what is done around a call stands in one list.

    query ──▶ ARRIVAL ──▶ RECORDING ──▶ SIGN_IN ──▶ ... ──▶ SUMMARIES ──▶ the table of the shard's services
                each is one function: (method, request, deadline, below) -> answer, and calls `below` once, never or often

`Concern` is the list. A link is added by its concern (`Shard.with_link`), so the order is that of the list, not that of adding:
some links stay as long as the shard, others serve one query. A link passes on every method that it has no part in.

Requests and answers are messages of the internal contracts (ADR 0124). A request belongs to its caller, and is
not changed below: several shards may get the same one at once. An answer belongs to its caller, too: a link may change it in
place. Calls raise StoreErrors: ServiceUnavailableError when the service does not answer, DeadlineExceededError when the
time is over, and those that the method names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from gateway.ports.deadline import Deadline

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class ShardMethod(Generic[Request, Answer_co]):
    """A method of a shard; the types of its request and answer are those of the handle.

    Attributes:
        name: `<service>.<verb>`, the label of its time in metrics and of its span.
        service: the service that answers.
        is_guarded: whether the call is refused while the service hangs. Commands are not: they are rare, and each is one call
            that its caller waits for. What makes no call is not, either.
    """

    name: str
    service: str
    is_guarded: bool = True


class Answering(Protocol):
    """A shard, or what lies below a link of its chain."""

    def __call__(self, method: ShardMethod[Request, Answer], request: Request, deadline: Deadline, /) -> Answer:
        """The answer; see the top of this file."""


class Concern(Enum):
    """What is done around the calls of a shard, from the caller down to the services."""

    ARRIVAL = "judges each answer by the end that the log had when the query arrived (queries/freshness.py)"
    RECORDING = "records calls and their time, for ExplainQuery (queries/recorded_shards.py)"
    SIGN_IN = "leaves out topics and groups that the caller may not see (auth/caller_shards.py)"
    QUOTAS = "refuses topics and groups beyond the quotas of their namespace (tenants/tenants.py)"
    FACTS = "marks what the store holds elsewhere or deleted with its topic (shards/store_facts.py)"
    REPLICAS = "asks a replica where the caller allows it or the leader is gone (shards/replica_reads.py)"
    GUARD = "refuses calls to a service that hangs (shards/guard.py)"
    ARCHIVE = "goes on in the archive or cold tier where the log was removed (shards/archived_shard.py)"
    SUMMARIES = "skips the index where its summary says that it holds no match (shards/summaries.py)"


class Link(Protocol):
    """What one concern does around a call.

    The types of a method's request and answer are proven where it is called and where it is served; a link tells them by the
    method.
    """

    def __call__(self, method: ShardMethod[Any, Any], request: Any, deadline: Deadline, below: Answering) -> Any:
        """The answer; asks `below` for that of the shard."""


Links: TypeAlias = Mapping[Concern, Link]


class MethodTable:
    """The bottom of a chain: the methods that a shard answers."""

    def __init__(self) -> None:
        self._answers: dict[ShardMethod[Any, Any], Callable[[Any, Deadline], Any]] = {}

    def serve(self, method: ShardMethod[Request, Answer], answer: Callable[[Request, Deadline], Answer]) -> None:
        """Answer a method so, also instead of an earlier answer."""
        self._answers[method] = answer

    def copy(self) -> "MethodTable":
        """A table of its own with the same answers."""
        other = MethodTable()
        other._answers.update(self._answers)
        return other

    def __contains__(self, method: ShardMethod[Any, Any]) -> bool:
        return method in self._answers

    def __call__(self, method: ShardMethod[Request, Answer], request: Request, deadline: Deadline, /) -> Answer:
        """The answer of the method's function; KeyError for a method that the shard does not have."""
        answer: Answer = self._answers[method](request, deadline)
        return answer


def chained(links: Links, table: MethodTable) -> Answering:
    """The links over the table, in the order of Concern."""
    answering: Answering = table
    for concern in reversed(Concern):
        if concern in links:
            answering = partial(links[concern], below=answering)
    return answering
