"""Typed client of the schedule service; errors are raised as the classes that the service raised."""

from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from reput.schedule.v1 import schedule_service_pb2 as pb
from reput.schedule.v1 import schedule_service_pb2_grpc as pb_grpc
from services import retry
from services.calling.channel import open_channel
from services.calling.endless_stream import EndlessStream
from services.calling.later import Done, call_later
from services.calling.local_later import LocalCalls
from services.calling.verdict_batches import CALL_COUNT_MAX, VerdictBatches
from services.local.client import LocalClient
from services.local.wire import VERDICTS, LocalMethod
from services.serving.deadline import SECONDS_DEFAULT
from services.serving.tls import TlsIdentity

SERVICE = "schedule"
Answer = TypeVar("Answer", bound=Message)


CheckStream = EndlessStream[pb.WatchChecksResponse]


class ScheduleClient:
    """Calls one schedule service. Each method is an RPC of reput.schedule.v1; see the proto.

    Calls are repeated as `services/methods.py` allows: not EndTransaction and RecallMessage, which are refused once they had
    their effect. The methods that end with `_later` make one attempt; their caller waits in no thread
    (services/calling/later.py).

    Args:
        target: `HOST:PORT` or `unix:/path`.
        channel: used for all calls instead of a channel of its own.
        tls: our certificate for its own channel; None: no TLS.
    """

    def __init__(self, target: str, channel: grpc.Channel | None = None, tls: TlsIdentity | None = None) -> None:
        self.target = target
        self.channel = channel or open_channel(target, tls)
        self._stub: Any = pb_grpc.ScheduleServiceStub(self.channel)
        self._local = LocalClient(VERDICTS, target if channel is None else "", SERVICE)
        self._local_calls = LocalCalls(self._local, CALL_COUNT_MAX)
        self._verdicts = VerdictBatches(self._end_all, self._end_one)

    def end_transaction(
        self, request: pb.EndTransactionRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.EndTransactionResponse:
        """Ends a transaction."""
        response: pb.EndTransactionResponse = retry.call_once(
            lambda seconds: self._stub.EndTransaction(request, timeout=seconds), timeout_seconds, SERVICE
        )
        return response

    def recall(
        self, request: pb.RecallMessageRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.RecallMessageResponse:
        """Takes back a message that waits."""
        response: pb.RecallMessageResponse = retry.call_once(
            lambda seconds: self._stub.RecallMessage(request, timeout=seconds), timeout_seconds, SERVICE
        )
        return response

    def end_transaction_later(
        self, request: pb.EndTransactionRequest, timeout_seconds: float, done: Done[pb.EndTransactionResponse]
    ) -> None:
        """Ends a transaction, together with others; the outcome goes to `done`."""
        self._verdicts.end(request, timeout_seconds, done)

    def recall_later(
        self, request: pb.RecallMessageRequest, timeout_seconds: float, done: Done[pb.RecallMessageResponse]
    ) -> None:
        """Takes back a message that waits; the outcome goes to `done`."""
        call_later(self._stub.RecallMessage, request, timeout_seconds, SERVICE, done)

    def list_transactions(
        self, request: pb.ListPendingTransactionsRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.ListPendingTransactionsResponse:
        """Half messages without a verdict."""
        return self._call(
            self._stub.ListPendingTransactions, request, pb.ListPendingTransactionsResponse, timeout_seconds
        )

    def list_scheduled(
        self, request: pb.ListScheduledMessagesRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.ListScheduledMessagesResponse:
        """Messages that wait for a time."""
        return self._call(self._stub.ListScheduledMessages, request, pb.ListScheduledMessagesResponse, timeout_seconds)

    def keep_producers(
        self, request: pb.KeepProducersRequest, *, timeout_seconds: float = SECONDS_DEFAULT
    ) -> pb.KeepProducersResponse:
        """Says which topics this gateway's producers serve."""
        return self._call(self._stub.KeepProducers, request, pb.KeepProducersResponse, timeout_seconds)

    def watch_checks(self, gateway_id: str) -> CheckStream:
        """Follows the half messages to ask about."""
        return EndlessStream(self._stub.WatchChecks(pb.WatchChecksRequest(gateway_id=gateway_id)), SERVICE, "checks")

    def get_status(self, *, timeout_seconds: float = SECONDS_DEFAULT) -> pb.GetStatusResponse:
        """Progress and counts."""
        return self._call(self._stub.GetStatus, pb.GetStatusRequest(), pb.GetStatusResponse, timeout_seconds)

    def close(self) -> None:
        """Close the channel."""
        self._local_calls.close()
        self._local.close()
        self.channel.close()

    def _end_all(
        self, request: pb.EndTransactionsRequest, timeout_seconds: float, done: Done[pb.EndTransactionsResponse]
    ) -> None:
        self._local_calls.call(
            LocalMethod.END_TRANSACTIONS,
            request,
            pb.EndTransactionsResponse.FromString,
            timeout_seconds,
            done,
            lambda seconds: call_later(self._stub.EndTransactions, request, seconds, SERVICE, done),
        )

    def _end_one(
        self, request: pb.EndTransactionRequest, timeout_seconds: float, done: Done[pb.EndTransactionResponse]
    ) -> None:
        call_later(self._stub.EndTransaction, request, timeout_seconds, SERVICE, done)

    def _call(self, method: Any, request: Message, _answer: type[Answer], timeout_seconds: float) -> Answer:
        """An idempotent call; `_answer` types its response."""
        response: Answer = retry.call_idempotent(
            lambda seconds: method(request, timeout=seconds), timeout_seconds, SERVICE
        )
        return response
