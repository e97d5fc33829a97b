"""EndTransaction and RecallMessage: what ends the wait of a message. They are frequent, so they take no thread."""

from typing import Any

from google.protobuf.message import DecodeError

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq.names import topic_of
from gateway.rocketmq.status import RefusedError, ok, status_of
from gateway.waiting.endings import Endings
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.schedule.v1 import schedule_service_pb2 as pb
from services.methods import QUERY_SECONDS
from services.serving.calls.unary_call import Answerable
from services.serving.deadline import answer_seconds
from store.errors import InvalidArgumentError, StoreError

ENDED = v2.EndTransactionResponse(status=ok()).SerializeToString()
RESOLUTIONS = {
    v2.COMMIT: gateway_pb.TRANSACTION_RESOLUTION_COMMIT,
    v2.ROLLBACK: gateway_pb.TRANSACTION_RESOLUTION_ROLLBACK,
}


class Ending:
    """Takes serialized requests.

    Args:
        endings: passes verdicts and recalls to the shards.
    """

    def __init__(self, endings: Endings) -> None:
        self._endings = endings

    def end_transaction(self, request: bytes, caller: Answerable) -> None:
        """EndTransaction. The caller is answered later, or at once when the request is refused."""

        def ended(outcome: pb.EndTransactionResponse | StoreError) -> None:
            if isinstance(outcome, StoreError):
                response = v2.EndTransactionResponse(status=transaction_status_of(outcome)).SerializeToString()
            else:
                response = ENDED
            caller.answer(response)

        try:
            parsed = _parse(v2.EndTransactionRequest, request)
            topic = topic_of(parsed.topic)
            if not parsed.transaction_id.strip():
                raise RefusedError(
                    v2.INVALID_TRANSACTION_ID, "transaction_id is empty: use that of the answer to the message"
                )
            resolution = RESOLUTIONS.get(parsed.resolution)
            if resolution is None:  # no verdict yet: the transaction stays as it is
                caller.answer(ENDED)
                return
            self._endings.end_transaction(
                topic,
                parsed.transaction_id,
                resolution,
                answer_seconds(caller, QUERY_SECONDS),
                ended,
                is_from_check=parsed.source == v2.SOURCE_SERVER_CHECK,
            )
        except RefusedError as error:
            caller.answer(v2.EndTransactionResponse(status=status_of(error)).SerializeToString())
        except StoreError as error:
            ended(error)

    def recall_message(self, request: bytes, caller: Answerable) -> None:
        """RecallMessage, likewise."""

        def recalled(outcome: gateway_pb.RecallMessageResponse | StoreError) -> None:
            if isinstance(outcome, StoreError):
                response = v2.RecallMessageResponse(status=status_of(outcome))
            else:
                response = v2.RecallMessageResponse(status=ok(), message_id=outcome.unique_key)
            caller.answer(response.SerializeToString())

        try:
            parsed = _parse(v2.RecallMessageRequest, request)
            topic = topic_of(parsed.topic)
            seconds = answer_seconds(caller, QUERY_SECONDS)
            self._endings.recall(topic, parsed.recall_handle, seconds, recalled)
        except RefusedError as error:
            caller.answer(v2.RecallMessageResponse(status=status_of(error)).SerializeToString())
        except StoreError as error:
            recalled(error)


def transaction_status_of(error: StoreError) -> v2.Status:
    """The Status of a verdict that has failed. RocketMQ's proxy has one code for every id that it does not know."""
    if isinstance(error, InvalidArgumentError) and error.metadata.get("field") == "transaction_id":
        return v2.Status(code=v2.INTERNAL_SERVER_ERROR, message=error.message)
    return status_of(error)


def _parse(message: Any, request: bytes) -> Any:
    try:
        return message.FromString(request)
    except DecodeError as error:
        raise InvalidArgumentError(f"the request cannot be read: {error}", field="request") from error
