"""What delivery needs from the consumer service of a shard; the values are its messages (reput.consumer.v1).

The frequent calls of `Delivering` do not wait: each takes a function that gets its outcome later, in any thread, once. The
outcome is the answer or the StoreError of the failure. The other calls wait, and raise it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from gateway.ports.deadline import Deadline
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import DeadlineExceededError, StoreError, TopicNotFoundError

Answer = TypeVar("Answer")

Then: TypeAlias = Callable[[Answer | StoreError], object]


# RocketMQ has no limit of its own; its test suite subscribes to a tag of 10,240 characters.
EXPRESSION_CHARACTERS_MAX = 16_384
# RocketMQ's ExpressionType.
TAG, SQL = "TAG", "SQL92"
# What one KeepClients may name: it has the clients of many callers, so a large one must not make it too large for the service.
KEEP_COUNT_MAX = 1_024
KEEP_BYTES_MAX = 2 << 20
# Of a client, or of a subscription, beside its texts.
OVERHEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class Pulled:
    """Messages of a queue.

    Attributes:
        answer: what the service says beside the messages; `is_whole` and `seen_offset` count only where it sent them.
        messages: in queue order. They may be bytes that are decoded where they are looked at, as no field of a message can.
    """

    answer: pb.PullMessagesResponse
    messages: Sequence[StoredMessage]


def is_absent(error: StoreError) -> bool:
    """Whether a consumer service says that there is no such topic; else it may only have no message of it."""
    return isinstance(error, TopicNotFoundError) and error.metadata.get("isAbsent") == "true"


def pulled_from_no_message(
    request: pb.PullMessagesRequest, error: TopicNotFoundError, *, is_lasting: bool = False
) -> Pulled:
    """The answer of a queue that never had a message, from the error of a service that knows none of its topic.

    Raises the error when the service says that there is no such topic, unless the topic is there without a message.
    """
    if is_absent(error) and not is_lasting:
        raise error
    seen_offset = error.metadata.get("seenOffset")
    return Pulled(
        pb.PullMessagesResponse(
            status=gateway_pb.PULL_STATUS_OFFSET_ILLEGAL if request.queue_offset else gateway_pb.PULL_STATUS_NO_NEW_MSG,
            seen_offset=None if seen_offset is None else int(seen_offset),
        ),
        (),
    )


def changed(
    request: pb.PullMessagesRequest, *, queue_offset: int | None = None, max_bytes: int | None = None
) -> pb.PullMessagesRequest:
    """The same pull from another position, or with another limit."""
    other = pb.PullMessagesRequest()
    other.CopyFrom(request)
    if queue_offset is not None:
        other.queue_offset = queue_offset
    if max_bytes is not None:
        other.max_bytes = max_bytes
    return other


def message_filter(expression: str, *, is_sql: bool = False) -> gateway_pb.MessageFilter:
    """The filter that an expression is; no tags are all messages."""
    return gateway_pb.MessageFilter(sql=expression) if is_sql else gateway_pb.MessageFilter(tags=expression or "*")


def filter_in(wanted: gateway_pb.MessageFilter) -> gateway_pb.MessageFilter:
    """A filter of a request; one that says nothing wants all messages."""
    return wanted if wanted.tags or wanted.HasField("sql") else message_filter("")


def expression_of(wanted: gateway_pb.MessageFilter) -> str:
    """The text of a filter."""
    return wanted.sql or wanted.tags


def takes_all(wanted: gateway_pb.MessageFilter) -> bool:
    """Whether a filter wants all messages."""
    return wanted.tags in ("", "*") and not wanted.HasField("sql")


def filter_key(wanted: gateway_pb.MessageFilter) -> tuple[str, str]:
    """A filter as a key, which a message cannot be: how it is written, and its text."""
    return "sql" if wanted.HasField("sql") else "tags", expression_of(wanted)


class ArrivalStream(Protocol):
    """An open stream of arrivals; iteration raises a StoreError when it ends, for whatever reason."""

    def __iter__(self) -> Iterator[pb.WatchArrivalsResponse]:
        """The arrivals, without end."""

    def cancel(self) -> None:
        """End the stream; from any thread."""


class Delivering(Protocol):
    """The consumer service of a shard."""

    @property
    def broker_name(self) -> str:
        """The shard's name."""

    def pop(self, request: pb.PopMessagesRequest, seconds: float, then: Then[pb.PopMessagesResponse]) -> None:
        """Hand out messages; none: there is nothing now. IllegalFilterError, StoreReadOnlyError, ...

        GroupNotFoundError with `known_only`: see gateway/groups/joining.py.
        """

    def ack(self, request: pb.AckMessagesRequest, seconds: float, then: Then[pb.AckMessagesResponse]) -> None:
        """Say that messages are consumed; an outcome for each handle."""

    def change_invisible(
        self,
        request: pb.ChangeInvisibleDurationRequest,
        seconds: float,
        then: Then[pb.ChangeInvisibleDurationResponse],
    ) -> None:
        """Hide a message for another time, or give it back. ReceiptHandleNotFoundError, InvalidReceiptHandleError."""

    def pull(self, request: pb.PullMessagesRequest, seconds: float, then: Then[Pulled]) -> None:
        """Read messages of a queue. TopicNotFoundError, QueueNotFoundError."""

    def forward_to_dead_letters(self, request: pb.ForwardToDeadLetterTopicRequest, seconds: float) -> None:
        """Give a message up. ReceiptHandleNotFoundError, InvalidReceiptHandleError."""

    def commit_offset(self, consumer_group: str, topic: str, queue_id: int, queue_offset: int, seconds: float) -> None:
        """Set a group's position in a queue."""

    def offsets(self, consumer_group: str, topic: str, seconds: float) -> Mapping[int, int]:
        """A group's positions in a topic, by queue."""

    def keep_clients(
        self, clients: Sequence[pb.Client], seconds: float, delivered: Sequence[str] = ()
    ) -> Sequence[pb.GroupSettings]:
        """Say that clients live, at most 1,024, and what they have, at most 8,192 handles; the settings of their groups."""

    def sync_lite(
        self, request: pb.SyncLiteSubscriptionRequest, seconds: float, then: Then[pb.SyncLiteSubscriptionResponse]
    ) -> None:
        """Say which lite topics a client subscribes to. GroupNotFoundError, InvalidArgumentError, a quota's error."""

    def make_group(self, settings: pb.GroupSettings, caller: str, seconds: float) -> None:
        """As MAKE_GROUP (groups.py), for a caller."""

    def end_client(
        self, client_id: str, consumer_group: str, seconds: float, *, keep_locks: bool = False, address: str = ""
    ) -> None:
        """Say that a client has ended, unless it lives at another address by now.

        With `keep_locks` those that it has stay as long as they would have.
        """

    def arrivals(self) -> ArrivalStream:
        """A new stream; connects with its first answer."""


class DeliveringSource(Protocol):
    """The consumer services of the shards."""

    def named(self, broker_name: str) -> Delivering:
        """The one of that shard, or the only one when the name is empty; BrokerNotFoundError."""

    def all(self) -> Sequence[Delivering]:
        """Those of all shards."""


def client_bytes(facts: pb.Client) -> int:
    """What the facts of a client take in a KeepClients, nearly."""
    return facts.ByteSize() + OVERHEAD_BYTES * (1 + len(facts.subscriptions))


def count_in_one_call(clients: Sequence[pb.Client]) -> int:
    """How many of the first clients one KeepClients may name; 1 at least, unless there is none."""
    size_bytes = 0
    for count, facts in enumerate(clients[:KEEP_COUNT_MAX]):
        size_bytes += client_bytes(facts)
        if count and size_bytes > KEEP_BYTES_MAX:
            return count
    return min(len(clients), KEEP_COUNT_MAX)


def pull_now(
    source: DeliveringSource,
    broker_name: str,
    question: pb.PullMessagesRequest,
    deadline: Deadline,
) -> Pulled:
    """One pull, waited for; its errors."""
    outcome: Future[Pulled | StoreError] = Future()
    seconds = deadline.remaining_seconds()
    source.named(broker_name).pull(question, seconds, outcome.set_result)
    try:
        pulled = outcome.result(seconds + 1.0)  # the call has its own deadline; this is only the last resort
    except FutureTimeoutError as error:
        raise DeadlineExceededError("The consumer service did not answer in time.") from error
    if isinstance(pulled, StoreError):
        raise pulled
    return pulled
