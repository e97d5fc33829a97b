"""What the gateway needs from the schedule service of a shard, and the values it passes. Times are milliseconds since 1970.

The calls that end a wait are frequent and do not wait: each takes a function that gets its outcome later, in any thread, once.
The outcome is the answer or the StoreError of the failure. The other calls wait, and raise it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from gateway.ports.deadline import Deadline
from gateway.ports.delivery import Then
from reput.schedule.v1 import schedule_service_pb2 as pb

Item_co = TypeVar("Item_co", covariant=True)


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A half message that waits for a verdict.

    Attributes:
        topic, unique_key: of the message.
        transaction_id: names it for the verdict.
        producer_group: that it names; may be empty.
        offset_msg_id: of the record of the half message.
        born_millis: when it was made.
        check_count: how often producers were asked.
        next_check_millis: when they are asked next; None: when one is there.
    """

    topic: str
    unique_key: str
    transaction_id: str
    producer_group: str
    offset_msg_id: str
    born_millis: int
    check_count: int
    next_check_millis: int | None


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """A message that waits for a time.

    Attributes:
        topic, unique_key: of the message.
        offset_msg_id: of the record that waits.
        due_millis: when it is due.
        delay_level: 0: it waits by the timer.
        recall_handle: recalls it; empty when it waits by a delay level.
    """

    topic: str
    unique_key: str
    offset_msg_id: str
    due_millis: int
    delay_level: int = 0
    recall_handle: str = ""


@dataclass(frozen=True, slots=True)
class WaitingPage(Generic[Item_co]):
    """Some of what waits in a shard, the token of the next page (empty at the end), and how much waits of every topic."""

    items: Sequence[Item_co]
    next_page_token: str
    pending_count: int


class CheckStream(Protocol):
    """An open stream of checks; iteration raises a StoreError when it ends, for whatever reason."""

    def __iter__(self) -> Iterator[pb.WatchChecksResponse]:
        """The checks, without end."""

    def cancel(self) -> None:
        """End the stream; from any thread."""


@dataclass(frozen=True, slots=True)
class WaitingQuestion:
    """Asks what waits in a shard.

    Attributes:
        topic: only this topic's; empty: all.
        page_size: 1 to 1,000.
        page_token: from the page before.
        topic_patterns: only topics that fit one of them, `*` for any characters; empty: all.
    """

    topic: str = ""
    page_size: int = 64
    page_token: str = ""
    topic_patterns: tuple[str, ...] = ()


class WaitingLists(Protocol):
    """Tells what waits in a shard. InvalidPageTokenError."""

    def known_offset(self, deadline: Deadline) -> int:
        """Records before it are known (bytes); 0 while that is not certain."""

    def delay_levels_millis(self, deadline: Deadline) -> Sequence[int]:
        """How long messages of each delay level wait, from level 1 on; never empty."""

    def transactions(self, question: WaitingQuestion, deadline: Deadline) -> WaitingPage[PendingTransaction]:
        """Half messages, the oldest first."""

    def scheduled(self, question: WaitingQuestion, deadline: Deadline) -> WaitingPage[ScheduledMessage]:
        """Messages that wait for a time, the next one that is due first."""


class Scheduling(Protocol):
    """The schedule service of a shard, as the room of transactions and recalls needs it."""

    @property
    def broker_name(self) -> str:
        """The shard's name."""

    def end_transaction(
        self, request: pb.EndTransactionRequest, seconds: float, then: Then[pb.EndTransactionResponse]
    ) -> None:
        """End a transaction. TransactionNotFoundError, StoreReadOnlyError."""

    def recall(self, request: pb.RecallMessageRequest, seconds: float, then: Then[pb.RecallMessageResponse]) -> None:
        """Take a message back. ScheduledMessageNotFoundError, StoreReadOnlyError."""

    def keep_producers(self, gateway_id: str, topics: Sequence[str], seconds: float) -> None:
        """Say which topics the producers of a gateway serve; replaces what it said before."""

    def checks(self, gateway_id: str) -> CheckStream:
        """A new stream; connects with its first answer."""


class SchedulingSource(Protocol):
    """The schedule services of the shards."""

    def named(self, broker_name: str) -> Scheduling:
        """The one of that shard; BrokerNotFoundError, ServiceUnavailableError."""

    def all(self) -> Sequence[Scheduling]:
        """Those of all shards."""
