"""Verdicts and recalls on their way to the shards that have the messages: a handle names its shard."""

from google.protobuf.timestamp_pb2 import Timestamp

from gateway.ports.delivery import Then
from gateway.ports.time_window import TIME_MILLIS_MAX
from gateway.ports.waiting import SchedulingSource
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.schedule.v1 import schedule_service_pb2 as pb
from store.errors import InvalidArgumentError, StoreError
from store.format.delivery.waiting_handles import RECALL, TRANSACTION, WaitingHandle, decode_handle


class Endings:
    """Ends waits; nothing waits here.

    Args:
        source: the schedule services.
    """

    def __init__(self, source: SchedulingSource) -> None:
        self._source = source

    def end_transaction(
        self,
        topic: str,
        transaction_id: str,
        resolution: gateway_pb.TransactionResolution,
        seconds: float,
        then: Then[pb.EndTransactionResponse],
        *,
        is_from_check: bool = False,
    ) -> None:
        """End a transaction; `then` gets the answer, with the receipt of a commit.

        Raises:
            InvalidArgumentError: the id is none, or of another topic.
            BrokerNotFoundError, ServiceUnavailableError: the shard that it names is not here.
        """
        handle = _handle_of(TRANSACTION, transaction_id, "transaction_id", topic)
        request = pb.EndTransactionRequest(
            topic=topic,
            unique_key=handle.unique_key,
            transaction_id=transaction_id,
            resolution=resolution,
            is_from_check=is_from_check,
        )
        self._source.named(handle.broker_name).end_transaction(request, seconds, then)

    def recall(
        self, topic: str, recall_handle: str, seconds: float, then: Then[gateway_pb.RecallMessageResponse]
    ) -> None:
        """Take a message back. Errors as `end_transaction`."""
        handle = _handle_of(RECALL, recall_handle, "recall_handle", topic)

        def recalled(outcome: pb.RecallMessageResponse | StoreError) -> None:
            if isinstance(outcome, StoreError):
                then(outcome)
            else:
                offset_msg_id, unique_key = outcome.offset_msg_id, handle.unique_key
                then(gateway_pb.RecallMessageResponse(offset_msg_id=offset_msg_id, unique_key=unique_key))

        due_millis = min(handle.number, TIME_MILLIS_MAX)  # a forged handle may hold any number of 18 digits
        due_time = Timestamp(seconds=due_millis // 1000, nanos=due_millis % 1000 * 1_000_000)
        request = pb.RecallMessageRequest(topic=topic, unique_key=handle.unique_key, delivery_time=due_time)
        self._source.named(handle.broker_name).recall(request, seconds, recalled)


def _handle_of(kind: str, text: str, field: str, topic: str) -> WaitingHandle:
    handle = decode_handle(kind, text, field)
    if handle.topic != topic:
        raise InvalidArgumentError(
            f"{field} is that of a message of another topic than {topic!r}: name the message's own topic", field=field
        )
    return handle
