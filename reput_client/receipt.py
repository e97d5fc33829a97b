"""The receipt for one stored message."""

from datetime import datetime

from reput.message.v1 import message_pb2
from reput_client.encoding import from_timestamp


class SendReceipt:
    """The place of a stored message. Immutable; fields are decoded when they are read, which most never are.

    Args:
        result: the service's answer for the message.
    """

    __slots__ = ("_result",)

    def __init__(self, result: message_pb2.AppendResult) -> None:
        self._result = result

    @property
    def offset_msg_id(self) -> str:
        """The id made of store host and commit-log offset; `QueryClient.by_id` takes it."""
        return self._result.offset_msg_id

    @property
    def unique_key(self) -> str:
        """The message's own id; `QueryClient.by_unique_key` takes it."""
        return self._result.unique_key

    @property
    def queue_id(self) -> int:
        """The queue that took the message."""
        return self._result.queue_id

    @property
    def queue_offset(self) -> int:
        """Its position in that queue, in messages."""
        return self._result.queue_offset

    @property
    def commit_log_offset(self) -> int:
        """Its position in the commit log, in bytes."""
        return self._result.commit_log_offset

    @property
    def store_time(self) -> datetime:
        """The time of writing, UTC."""
        return from_timestamp(self._result.store_time)

    @property
    def broker_name(self) -> str:
        """The shard that took it."""
        return self._result.broker_name

    @property
    def deduplicated(self) -> bool:
        """True when the store had a message of this unique key already: this is that one's receipt.

        Usual after a lost answer, when the library sends again.
        """
        return self._result.deduplicated

    @property
    def freshness_token(self) -> str:
        """Makes a query that brings it see this message: queries take it, or the receipt itself, as `after`."""
        return self._result.freshness_token

    @property
    def recall_handle(self) -> str:
        """Takes the message back while it waits for its time: `Producer.recall` takes it. Empty when it does not wait."""
        return self._result.recall_handle

    @property
    def transaction_id(self) -> str:
        """Names the transaction of a half message; empty for other messages."""
        return self._result.transaction_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SendReceipt) and self._result == other._result

    def __hash__(self) -> int:
        return hash(self._result.offset_msg_id)

    def __repr__(self) -> str:
        return (
            f"SendReceipt(offset_msg_id={self.offset_msg_id!r}, unique_key={self.unique_key!r}, "
            f"queue_id={self.queue_id}, queue_offset={self.queue_offset}, broker_name={self.broker_name!r})"
        )
