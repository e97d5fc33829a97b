"""The ports of what waits over a schedule service."""

import time
from collections.abc import Callable, Sequence

from gateway.ports.deadline import Deadline
from gateway.ports.delivery import Then
from gateway.ports.waiting import (
    PendingTransaction,
    ScheduledMessage,
    WaitingPage,
    WaitingQuestion,
)
from gateway.shards.remote_services import optional_millis
from reput.schedule.v1 import schedule_service_pb2 as pb
from services.calling.client import EndlessStream, ServiceClient
from services.calling.port_calls import port_call
from services.calling.verdict_batches import batches_over
from services.convert import timestamp_to_millis
from services.rpcs import schedule as rpc
from store.format.delivery.delay_levels import DELAY_LEVELS_MILLIS

# How long a list of delay levels is taken for granted.
LEVELS_SECONDS = 60.0


class RemoteWaiting:
    """WaitingLists.

    Args:
        client: calls the schedule service.
        clock: seconds, rising.
    """

    def __init__(self, client: ServiceClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._levels: Sequence[int] = ()
        self._levels_until = 0.0

    @port_call("schedule.get-status")
    def known_offset(self, deadline: Deadline) -> int:
        """See the port."""
        status = self._client.call(rpc.GET_STATUS, pb.GetStatusRequest(), deadline.remaining_seconds())
        return 0 if status.catching_up else status.next_offset

    @port_call("schedule.get-status")
    def delay_levels_millis(self, deadline: Deadline) -> Sequence[int]:
        """See the port; asked for again after a while, as the list changes with a restart only."""
        now = self._clock()
        if now >= self._levels_until:
            status = self._client.call(rpc.GET_STATUS, pb.GetStatusRequest(), deadline.remaining_seconds())
            self._levels = tuple(status.delay_levels_millis)
            self._levels_until = now + LEVELS_SECONDS
            if not self._levels:  # what waits is being read, or the service is of a release that does not tell
                self._levels, self._levels_until = DELAY_LEVELS_MILLIS, now
        return self._levels

    @port_call("schedule.list-transactions")
    def transactions(self, question: WaitingQuestion, deadline: Deadline) -> WaitingPage[PendingTransaction]:
        """See the port."""
        request = pb.ListPendingTransactionsRequest(
            topic=question.topic,
            page_size=question.page_size,
            page_token=question.page_token,
            topic_patterns=question.topic_patterns,
        )
        answer = self._client.call(rpc.LIST_PENDING_TRANSACTIONS, request, deadline.remaining_seconds())
        items = [
            PendingTransaction(
                each.topic,
                each.unique_key,
                each.transaction_id,
                each.producer_group,
                each.offset_msg_id,
                timestamp_to_millis(each.born_time, "born_time"),
                each.check_count,
                optional_millis(each, "next_check_time"),
            )
            for each in answer.transactions
        ]
        return WaitingPage(items, answer.next_page_token, answer.pending_count)

    @port_call("schedule.list-scheduled")
    def scheduled(self, question: WaitingQuestion, deadline: Deadline) -> WaitingPage[ScheduledMessage]:
        """See the port."""
        request = pb.ListScheduledMessagesRequest(
            topic=question.topic,
            page_size=question.page_size,
            page_token=question.page_token,
            topic_patterns=question.topic_patterns,
        )
        answer = self._client.call(rpc.LIST_SCHEDULED_MESSAGES, request, deadline.remaining_seconds())
        items = [
            ScheduledMessage(
                each.topic,
                each.unique_key,
                each.offset_msg_id,
                timestamp_to_millis(each.delivery_time, "delivery_time"),
                each.delay_level,
                each.recall_handle,
            )
            for each in answer.messages
        ]
        return WaitingPage(items, answer.next_page_token, answer.pending_count)


class RemoteScheduling:
    """Scheduling.

    Args:
        broker_name: the shard's name.
        client: calls its schedule service.
    """

    def __init__(self, broker_name: str, client: ServiceClient) -> None:
        self.broker_name = broker_name
        self._client = client
        self._verdicts = batches_over(client)

    def end_transaction(
        self, request: pb.EndTransactionRequest, seconds: float, then: Then[pb.EndTransactionResponse]
    ) -> None:
        """See the port."""
        self._verdicts.end(request, seconds, then)

    def recall(self, request: pb.RecallMessageRequest, seconds: float, then: Then[pb.RecallMessageResponse]) -> None:
        """See the port."""
        self._client.later(rpc.RECALL_MESSAGE, request, seconds, then)

    def keep_producers(self, gateway_id: str, topics: Sequence[str], seconds: float) -> None:
        """See the port."""
        request = pb.KeepProducersRequest(gateway_id=gateway_id, topics=topics)
        self._client.call(rpc.KEEP_PRODUCERS, request, seconds)

    def checks(self, gateway_id: str) -> EndlessStream[pb.WatchChecksResponse]:
        """See the port."""
        return self._client.follow(rpc.WATCH_CHECKS, pb.WatchChecksRequest(gateway_id=gateway_id))
