"""The RPCs of GatewayService about messages that wait. Those that end a wait take no thread (`WaitingCalls`)."""

from typing import Any

import grpc
from google.protobuf.message import DecodeError

from gateway.ports.waiting import LIST_SCHEDULED, LIST_TRANSACTIONS
from gateway.reput.queries import Call
from gateway.reput.requests import Requests
from gateway.reput.wire import shard_outcome_of
from gateway.waiting.endings import Endings
from gateway.waiting.listing import Listing
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from services.methods import QUERY_SECONDS
from services.serving.calls.unary_call import Answerable, AnsweredLater
from services.serving.deadline import answer_seconds
from services.status import to_status
from store.errors import InvalidArgumentError, StoreError

VERDICTS = (pb.TRANSACTION_RESOLUTION_COMMIT, pb.TRANSACTION_RESOLUTION_ROLLBACK)
# The fields of a row beside its texts: numbers, times, tags and lengths.
ROW_OVERHEAD_BYTES = 96


def _transaction_bytes(each: schedule_pb.PendingTransaction) -> int:
    texts = (each.topic, each.unique_key, each.transaction_id, each.producer_group, each.offset_msg_id)
    return ROW_OVERHEAD_BYTES + sum(len(text.encode()) for text in texts)


def _scheduled_bytes(each: schedule_pb.ScheduledMessage) -> int:
    texts = (each.topic, each.unique_key, each.offset_msg_id, each.recall_handle)
    return ROW_OVERHEAD_BYTES + sum(len(text.encode()) for text in texts)


TRANSACTIONS = Listing(
    "ListPendingTransactions",
    LIST_TRANSACTIONS,
    schedule_pb.ListPendingTransactionsRequest,
    lambda page: page.transactions,
    _transaction_bytes,
)
SCHEDULED = Listing(
    "ListScheduledMessages",
    LIST_SCHEDULED,
    schedule_pb.ListScheduledMessagesRequest,
    lambda page: page.messages,
    _scheduled_bytes,
)


class WaitingMethods:
    """The methods that list; `_call` is that of the servicer."""

    def _call(self, context: grpc.ServicerContext) -> Call:
        raise NotImplementedError

    def ListPendingTransactions(
        self, request: pb.ListPendingTransactionsRequest, context: grpc.ServicerContext
    ) -> pb.ListPendingTransactionsResponse:
        """The half messages that wait for a verdict."""
        call = self._call(context)
        page = TRANSACTIONS.page(
            call.shards, call.tokens, request.topic, request.page_size, request.page_token, call.deadline
        )
        return pb.ListPendingTransactionsResponse(
            transactions=[_transaction(broker_name, each) for broker_name, each in page.items],
            next_page_token=page.next_page_token,
            completeness=page.completeness,
            shards=map(shard_outcome_of, page.outcomes),
            pending_count=page.pending_count,
        )

    def ListScheduledMessages(
        self, request: pb.ListScheduledMessagesRequest, context: grpc.ServicerContext
    ) -> pb.ListScheduledMessagesResponse:
        """The messages that wait for a time."""
        call = self._call(context)
        page = SCHEDULED.page(
            call.shards, call.tokens, request.topic, request.page_size, request.page_token, call.deadline
        )
        return pb.ListScheduledMessagesResponse(
            messages=[_scheduled(broker_name, each) for broker_name, each in page.items],
            next_page_token=page.next_page_token,
            completeness=page.completeness,
            shards=map(shard_outcome_of, page.outcomes),
            pending_count=page.pending_count,
        )


class WaitingCalls:
    """Takes the serialized requests that end waits, and those that wait for a reply.

    Args:
        endings: passes verdicts and recalls to the shards.
        requests: sends requests and waits for replies.
    """

    def __init__(self, endings: Endings, requests: Requests) -> None:
        self._endings = endings
        self._requests = requests

    def handlers(self) -> dict[str, Any]:
        """The handlers, without serializers: requests and responses stay bytes."""
        return {
            "RecallMessage": grpc.unary_unary_rpc_method_handler(AnsweredLater(self.recall_message)),
            "SendRequest": grpc.unary_unary_rpc_method_handler(AnsweredLater(self._requests.send_request)),
            "EndTransaction": grpc.unary_unary_rpc_method_handler(AnsweredLater(self.end_transaction)),
        }

    def recall_message(self, request: bytes, caller: Answerable) -> None:
        """RecallMessage. The caller is answered later, or at once when the request is refused."""

        def recalled(outcome: pb.RecallMessageResponse | StoreError) -> None:
            if isinstance(outcome, StoreError):
                caller.fail(to_status(outcome))
                return
            caller.answer(outcome.SerializeToString())

        try:
            parsed = _parse(pb.RecallMessageRequest, request)
            seconds = answer_seconds(caller, QUERY_SECONDS)
            self._endings.recall(parsed.topic, parsed.recall_handle, seconds, recalled)
        except StoreError as error:
            recalled(error)

    def end_transaction(self, request: bytes, caller: Answerable) -> None:
        """EndTransaction, likewise."""

        def ended(outcome: schedule_pb.EndTransactionResponse | StoreError) -> None:
            if isinstance(outcome, StoreError):
                caller.fail(to_status(outcome))
                return
            response = pb.EndTransactionResponse()
            if outcome.result.offset_msg_id:
                response.result.CopyFrom(outcome.result)
            caller.answer(response.SerializeToString())

        try:
            parsed = _parse(pb.EndTransactionRequest, request)
            if parsed.resolution not in VERDICTS:
                raise InvalidArgumentError("resolution is missing: commit or roll back.", field="resolution")
            seconds = answer_seconds(caller, QUERY_SECONDS)
            self._endings.end_transaction(
                parsed.topic,
                parsed.transaction_id,
                parsed.resolution,
                seconds,
                ended,
                is_from_check=parsed.is_from_check,
            )
        except StoreError as error:
            ended(error)


def _transaction(broker_name: str, each: schedule_pb.PendingTransaction) -> pb.PendingTransaction:
    return pb.PendingTransaction(
        broker_name=broker_name,
        topic=each.topic,
        unique_key=each.unique_key,
        transaction_id=each.transaction_id,
        producer_group=each.producer_group,
        offset_msg_id=each.offset_msg_id,
        born_time=each.born_time,
        check_count=each.check_count,
        next_check_time=each.next_check_time if each.HasField("next_check_time") else None,
    )


def _scheduled(broker_name: str, each: schedule_pb.ScheduledMessage) -> pb.ScheduledMessage:
    return pb.ScheduledMessage(
        broker_name=broker_name,
        topic=each.topic,
        unique_key=each.unique_key,
        offset_msg_id=each.offset_msg_id,
        delivery_time=each.delivery_time,
        delay_level=each.delay_level,
        recall_handle=each.recall_handle,
    )


def _parse(message: Any, request: bytes) -> Any:
    try:
        return message.FromString(request)
    except DecodeError as error:
        raise InvalidArgumentError(f"the request cannot be read: {error}", field="request") from error
