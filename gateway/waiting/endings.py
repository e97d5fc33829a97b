"""Verdicts and recalls on their way to the shards that have the messages: a handle names its shard."""

from dataclasses import dataclass
from typing import Generic

from gateway.ports.delivery import Then
from gateway.ports.shard import Message
from gateway.ports.waiting import Receipt, Resolution, SchedulingSource, Verdict
from store.errors import InvalidArgumentError, StoreError
from store.format.delivery.waiting_handles import RECALL, TRANSACTION, WaitingHandle, decode_handle


@dataclass(frozen=True, slots=True)
class Recalled:
    """A message that was taken back: the record that waited, and the message's unique key."""

    offset_msg_id: str
    unique_key: str


class Endings(Generic[Message, Receipt]):
    """Ends waits; nothing waits here.

    Args:
        source: the schedule services.
    """

    def __init__(self, source: SchedulingSource[Message, Receipt]) -> None:
        self._source = source

    def end_transaction(
        self,
        topic: str,
        transaction_id: str,
        resolution: Resolution,
        seconds: float,
        then: Then[Receipt],
        *,
        is_from_check: bool = False,
    ) -> None:
        """End a transaction; `then` gets the receipt of a commit.

        Raises:
            InvalidArgumentError: the id is none, or of another topic.
            BrokerNotFoundError, ServiceUnavailableError: the shard that it names is not here.
        """
        handle = _handle_of(TRANSACTION, transaction_id, "transaction_id", topic)
        verdict = Verdict(topic, handle.unique_key, transaction_id, resolution, is_from_check)
        self._source.named(handle.broker_name).end_transaction(verdict, seconds, then)

    def recall(self, topic: str, recall_handle: str, seconds: float, then: Then[Recalled]) -> None:
        """Take a message back. Errors as `end_transaction`."""
        handle = _handle_of(RECALL, recall_handle, "recall_handle", topic)

        def recalled(outcome: str | StoreError) -> None:
            then(outcome if isinstance(outcome, StoreError) else Recalled(outcome, handle.unique_key))

        scheduling = self._source.named(handle.broker_name)
        scheduling.recall(topic, handle.unique_key, handle.number, seconds, recalled)


def _handle_of(kind: str, text: str, field: str, topic: str) -> WaitingHandle:
    handle = decode_handle(kind, text, field)
    if handle.topic != topic:
        raise InvalidArgumentError(
            f"{field} is that of a message of another topic than {topic!r}: name the message's own topic", field=field
        )
    return handle
