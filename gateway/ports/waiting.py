"""What the gateway needs from the schedule service of a shard; the values are its messages (reput.schedule.v1).

What waits is asked through the chain of the shard (chain.py); a shard without schedule service serves none of these methods.
The calls that end a wait are frequent and go past it: each takes a function that gets its outcome later, in any thread, once.
The outcome is the answer or the StoreError of the failure. The other calls of `Scheduling` wait, and raise it.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from gateway.ports.chain import ShardMethod
from gateway.ports.delivery import Then
from reput.schedule.v1 import schedule_service_pb2 as pb

# Half messages without a verdict, the oldest first. InvalidPageTokenError.
LIST_TRANSACTIONS: ShardMethod[pb.ListPendingTransactionsRequest, pb.ListPendingTransactionsResponse] = ShardMethod(
    "schedule.list-transactions", "schedule"
)
# Messages that wait for a time, the next one that is due first. InvalidPageTokenError.
LIST_SCHEDULED: ShardMethod[pb.ListScheduledMessagesRequest, pb.ListScheduledMessagesResponse] = ShardMethod(
    "schedule.list-scheduled", "schedule"
)
# Records before it are known (bytes); 0 while that is not certain.
KNOWN_OFFSET: ShardMethod[pb.GetStatusRequest, int] = ShardMethod("schedule.get-status", "schedule")
# How long messages of each delay level wait (ms), from level 1 on; never empty.
DELAY_LEVELS: ShardMethod[pb.GetStatusRequest, Sequence[int]] = ShardMethod("schedule.get-status", "schedule")


class CheckStream(Protocol):
    """An open stream of checks; iteration raises a StoreError when it ends, for whatever reason."""

    def __iter__(self) -> Iterator[pb.WatchChecksResponse]:
        """The checks, without end."""

    def cancel(self) -> None:
        """End the stream; from any thread."""


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

    def keep_producers(
        self,
        gateway_id: str,
        topics: Sequence[str],
        producer_groups: Sequence[str],
        seconds: float,
        unasked: Sequence[str] = (),
    ) -> None:
        """Say which topics the producers of a gateway serve, and groups; replaces what it said before.

        `unasked`: transaction ids of checks with which it could ask none of them.
        """

    def checks(self, gateway_id: str) -> CheckStream:
        """A new stream; connects with its first answer."""


class SchedulingSource(Protocol):
    """The schedule services of the shards."""

    def named(self, broker_name: str) -> Scheduling:
        """The one of that shard; BrokerNotFoundError, ServiceUnavailableError."""

    def all(self) -> Sequence[Scheduling]:
        """Those of all shards."""
