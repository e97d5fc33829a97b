"""Serves reput.schedule.v1: translates between the proto messages and the domain."""

from collections.abc import Callable, Iterator

import grpc

from reput.schedule.v1 import schedule_service_pb2 as pb
from reput.schedule.v1 import schedule_service_pb2_grpc as pb_grpc
from schedule_svc.kinds import Kinds
from schedule_svc.listing import ScheduledOne, topics_asked
from schedule_svc.transactions.checker import CheckGateways
from schedule_svc.transactions.verdicts import Verdict, verdict_of
from services.convert import millis_to_timestamp, timestamp_to_millis
from services.following.follower_process import FollowerState
from services.following.follower_progress import FollowerProgress
from services.replica_role import not_leading
from services.serving.deadline import ANSWER_SHARE, remaining_seconds
from services.status import to_status
from store.errors import InvalidArgumentError, StoreError, StoreRecoveringError
from store.format.delivery.waiting_handles import RECALL, WaitingHandle, encode_handle
from store.format.properties import REAL_TOPIC

HEARTBEAT_SECONDS = 1.0
PAGE_SIZE_DEFAULT = 64
PAGE_SIZE_MAX = 1_000
# What one request to the log takes (transactions.py).
VERDICT_COUNT_MAX = 256


class ScheduleServicer(pb_grpc.ScheduleServiceServicer):
    """The service; all calls but GetStatus, KeepProducers and WatchChecks fail with StoreRecoveringError until `open`.

    Args:
        progress: of the follower.
        gateways: can ask producers for verdicts.
        is_stopping: whether the process ends.

    Attributes:
        state: of the follower.
    """

    def __init__(self, progress: FollowerProgress, gateways: CheckGateways, is_stopping: Callable[[], bool]) -> None:
        self.state: Callable[[], FollowerState] = lambda: FollowerState("waiting", 0, "")
        self._progress = progress
        self._gateways = gateways
        self._is_stopping = is_stopping
        self._open: Kinds | None = None

    def open(self, kinds: Kinds) -> None:
        """Serve this life from now on."""
        self._open = kinds

    def shut(self) -> None:
        """Serve nothing until the next `open`: what waits is being read."""
        self._open = None

    def EndTransaction(
        self, request: pb.EndTransactionRequest, context: grpc.ServicerContext
    ) -> pb.EndTransactionResponse:
        """See the proto."""
        kinds = self._kinds
        result = kinds.transactions.end(verdict_of(request, kinds.rules.broker_name))
        return pb.EndTransactionResponse(result=result)

    def EndTransactions(self, request: pb.EndTransactionsRequest, _context: object) -> pb.EndTransactionsResponse:
        """See the proto."""
        if not 1 <= len(request.verdicts) <= VERDICT_COUNT_MAX:
            raise InvalidArgumentError(
                f"a request holds 1 to {VERDICT_COUNT_MAX} verdicts, not {len(request.verdicts)}: split it",
                field="verdicts",
            )
        kinds = self._kinds
        outcomes: list[pb.EndTransactionResponse | StoreError | None] = []
        verdicts: list[Verdict] = []
        for one in request.verdicts:
            try:
                verdicts.append(verdict_of(one, kinds.rules.broker_name))
                outcomes.append(None)
            except StoreError as error:
                outcomes.append(error)
        ended = iter(kinds.transactions.end_all(verdicts))
        return pb.EndTransactionsResponse(
            outcomes=[_outcome(next(ended) if outcome is None else outcome) for outcome in outcomes]
        )

    def ListPendingTransactions(
        self, request: pb.ListPendingTransactionsRequest, context: grpc.ServicerContext
    ) -> pb.ListPendingTransactionsResponse:
        """See the proto."""
        return self._current.transactions.list(request)

    def KeepProducers(
        self, request: pb.KeepProducersRequest, context: grpc.ServicerContext
    ) -> pb.KeepProducersResponse:
        """See the proto."""
        self._gateways.keep(request.gateway_id, request.topics, request.producer_groups)
        self._gateways.put_back(request.unasked_transaction_ids)
        return pb.KeepProducersResponse()

    def WatchChecks(
        self, request: pb.WatchChecksRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.WatchChecksResponse]:
        """See the proto."""
        stream = self._gateways.watch(request.gateway_id)
        try:
            while context.is_active() and not self._is_stopping():
                yield pb.WatchChecksResponse(checks=stream.take(HEARTBEAT_SECONDS))
        finally:
            self._gateways.forget(stream)

    def RecallMessage(
        self, request: pb.RecallMessageRequest, context: grpc.ServicerContext
    ) -> pb.RecallMessageResponse:
        """See the proto."""
        for field in ("topic", "unique_key"):
            if not getattr(request, field):
                raise InvalidArgumentError(f"{field} is empty: use those of the recall handle", field=field)
        delivery_millis = timestamp_to_millis(request.delivery_time, "delivery_time")
        message = self._kinds.recalls.recall(request.topic, request.unique_key, delivery_millis)
        return pb.RecallMessageResponse(offset_msg_id=message.offset_msg_id)

    def ListScheduledMessages(
        self, request: pb.ListScheduledMessagesRequest, context: grpc.ServicerContext
    ) -> pb.ListScheduledMessagesResponse:
        """See the proto."""
        if request.page_size < 0:
            raise InvalidArgumentError("page_size is negative: use 1 to 1,000", field="page_size")
        kinds = self._current
        count = min(request.page_size or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)
        seconds_min = remaining_seconds(context) * (1 - ANSWER_SHARE)
        found, token = kinds.listing.page(
            request.topic,
            count,
            request.page_token,
            lambda: remaining_seconds(context) < seconds_min,
            topics_asked(request.topic_patterns),
        )
        broker_name = kinds.rules.broker_name
        return pb.ListScheduledMessagesResponse(
            messages=[_scheduled(one, broker_name) for one in found],
            next_page_token=token,
            pending_count=kinds.pending_count(),
        )

    def GetStatus(self, request: pb.GetStatusRequest, context: grpc.ServicerContext) -> pb.GetStatusResponse:
        """See the proto."""
        state = self.state()
        answer = pb.GetStatusResponse(
            next_offset=max(self._progress.next_offset, 0),
            log_end_offset=self._progress.log_end_offset,
            catching_up=self._progress.catching_up,
            state=state.state,
            last_error=state.last_error,
            failure_count=state.failure_count,
        )
        kinds = self._open
        if kinds is not None and _is_current(kinds):
            book = kinds.timers.book
            answer.catching_up = answer.catching_up or not book.is_known
            answer.last_error = state.last_error or kinds.reader.problem
            answer.delay_levels_millis.extend(kinds.rules.delays_millis)
            answer.delayed_count = kinds.levels.pending_count()
            for level, next_offset, max_offset in kinds.levels.positions():
                answer.delay_levels.add(level=level, next_offset=next_offset, max_offset=max_offset)
            answer.timer_count = kinds.timers.pending_count()
            answer.delivered_count = kinds.levels.delivered_count + book.delivered_count
            answer.recalled_count = book.recalled_count
            answer.skipped_count = kinds.levels.skipped_count + book.skipped_count
            kinds.transactions.describe(answer)
            oldest_millis = kinds.oldest_due_millis()
            if oldest_millis <= kinds.life.clock.millis():
                answer.oldest_due_time.CopyFrom(millis_to_timestamp(oldest_millis))
        return answer

    @property
    def _kinds(self) -> Kinds:
        kinds = self._open
        if kinds is None:
            raise StoreRecoveringError("the messages that wait are being read from the log: try again")
        return kinds

    @property
    def _current(self) -> Kinds:
        """For lists: NotLeaderError on a replica that does not lead."""
        kinds = self._kinds
        if not _is_current(kinds):
            raise not_leading()
        return kinds


def _is_current(kinds: Kinds) -> bool:
    """Whether this replica leads: a life on another one does not follow what waits, so what it knows grows old."""
    return kinds.life.refusal is not not_leading


def _outcome(outcome: pb.EndTransactionResponse | StoreError | None) -> pb.EndTransactionsResponse.Outcome:
    if isinstance(outcome, StoreError):
        return pb.EndTransactionsResponse.Outcome(error=to_status(outcome))
    return pb.EndTransactionsResponse.Outcome(ended=outcome)


def _scheduled(one: ScheduledOne, broker_name: str) -> pb.ScheduledMessage:
    message = one.message
    topic = message.properties.get(REAL_TOPIC, "")
    scheduled = pb.ScheduledMessage(
        topic=topic,
        unique_key=message.unique_key,
        offset_msg_id=message.offset_msg_id,
        delivery_time=millis_to_timestamp(one.due_millis),
        delay_level=one.level,
    )
    if recall_millis := one.recall_millis():
        handle = WaitingHandle(topic, broker_name, recall_millis, message.unique_key)
        scheduled.recall_handle = encode_handle(RECALL, handle)
    return scheduled
