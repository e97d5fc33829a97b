"""SearchMessages: one call of it, from its request to its answer; so many at once, each given up with its caller."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import grpc

from gateway.completeness import Completeness, ShardOutcome
from gateway.deadline import Deadline
from gateway.fan_out import FanOut
from gateway.page_token import PageTokens
from gateway.ports import FoundRecord
from gateway.queries.search_messages import search_messages
from gateway.search.asking import CallerGoneError
from gateway.search.budgets import Budgets
from gateway.search.cancellation import Cancellation
from gateway.search.cel_sandbox import CelSandbox
from gateway.search.filter import Conditions, hex_needle
from gateway.search.message_view import MessageView
from gateway.search.places import Places
from gateway.search.question import OffsetWindow, SearchAnswer, SearchQuestion
from gateway.shards import Shards
from gateway.wire import completeness_of, message_of, shard_outcome_of, stored_of, timestamp_of, window_of
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.convert import timestamp_to_millis
from store.errors import InvalidArgumentError, ResourceBusyError

# A search may take seconds, the other queries of the same threads milliseconds; and each holds a few MiB.
SEARCH_COUNT_MAX = 4
# As many as run: so each who waits has a turn when each of those has ended once.
WAITING_COUNT_MAX = SEARCH_COUNT_MAX
# For a turn among the steps of consoles, which take 0.14 s each; at most a quarter of the time that is left.
PLACE_SECONDS_MAX = 1.0


class Searches:
    """Runs them.

    Args:
        tokens: what seals page tokens.
        sandbox: where their expressions are evaluated.

    Attributes:
        threads: on which shards are asked, so that a call can leave one that hangs.
    """

    def __init__(self, tokens: PageTokens, sandbox: CelSandbox) -> None:
        self._tokens = tokens
        self._sandbox = sandbox
        self._places = Places(SEARCH_COUNT_MAX, WAITING_COUNT_MAX)
        self.threads = FanOut(SEARCH_COUNT_MAX)

    def close(self) -> None:
        """End their threads, and take no more."""
        self.threads.close()

    def run(
        self,
        shards: Shards,
        question: SearchQuestion,
        budgets: Budgets,
        request: pb.SearchMessagesRequest,
        context: grpc.ServicerContext,
        deadline: Deadline,
    ) -> SearchAnswer | None:
        """One page; None when the caller has gone.

        Args:
            shards: the shards.
            question: what to look for, `question_of(request)`.
            budgets: what the page may cost.
            request: its size and token.
            context: says when the caller goes.
            deadline: of the call.

        Raises:
            ResourceBusyError: SEARCH_COUNT_MAX of them run, and went on doing so.
            StoreError: as `search_messages`.
        """
        cancellation = Cancellation.of(context)
        if not self._places.take(cancellation, min(PLACE_SECONDS_MAX, deadline.remaining_seconds() / 4)):
            if cancellation.is_set:
                return None
            raise ResourceBusyError(
                f"{SEARCH_COUNT_MAX} searches run, the most that this service takes: try again.",
                countMax=SEARCH_COUNT_MAX,
            )
        pending: Future[Any] | None = None
        try:
            return search_messages(
                shards,
                self.threads,
                self._tokens,
                self._sandbox,
                question,
                budgets,
                page_size_asked=request.page_size,
                page_token=request.page_token,
                count_total=request.count_total,
                view_of=view_of,
                cancellation=cancellation,
                deadline=deadline,
            )
        except CallerGoneError as gone:
            pending = gone.pending
            return None
        finally:
            # A place is one of the threads: free once a shard that hangs has let go of it.
            if pending is None:
                self._places.give_back()
            else:
                pending.add_done_callback(lambda _: self._places.give_back())


def question_of(request: pb.SearchMessagesRequest) -> SearchQuestion:
    """What a request asks for; InvalidArgumentError by field."""
    if request.order not in pb.SearchOrder.values():
        raise InvalidArgumentError(f"order {request.order} is no SearchOrder.", field="order")
    properties = {row.name: row.value if row.HasField("value") else None for row in request.properties}
    if len(properties) < len(request.properties):
        raise InvalidArgumentError("a property is asked for twice: `cel` can say more.", field="properties")
    needle = hex_needle(request.body_hex) if request.HasField("body_hex") else request.body_text.encode()

    def number(field: str) -> int | None:
        return getattr(request, field) if request.HasField(field) else None

    return SearchQuestion(
        topic=request.topic,
        broker_name=request.broker_name,
        queue_id=number("queue_id"),
        offsets=OffsetWindow(number("begin_queue_offset"), number("end_queue_offset")),
        times=window_of(request),
        newest_first=request.order == pb.SEARCH_ORDER_NEWEST_FIRST,
        conditions=Conditions(frozenset(request.tags), properties, needle, request.cel),
    )


def view_of(record: FoundRecord) -> MessageView:
    """What a filter sees of a record."""
    message = stored_of(record.payload)
    return MessageView(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        commit_log_offset=message.commit_log_offset,
        store_size_bytes=message.store_size_bytes,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_time_millis=timestamp_to_millis(message.born_time, "born_time"),
        born_host=message.born_host,
        store_time_millis=record.store_time_millis,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        tags=message.tags,
        keys=record.keys,
        unique_key=message.unique_key,
        properties=message.properties,
        body=message.body,
    )


def response_of(
    answer: SearchAnswer, outcomes: Sequence[ShardOutcome], completeness: Completeness, question: SearchQuestion
) -> pb.SearchMessagesResponse:
    """The answer as it is sent.

    Args:
        answer: what was found.
        outcomes: how the shards took part, with what freshness tokens add.
        completeness: of that.
        question: what was asked, for its window.
    """
    return pb.SearchMessagesResponse(
        messages=map(message_of, answer.entries),
        next_page_token=answer.next_page_token,
        completeness=completeness_of(completeness),
        shards=map(shard_outcome_of, outcomes),
        scanned_ranges=[
            pb.SearchMessagesResponse.ScannedRange(
                broker_name=scanned.broker_name,
                queue_id=scanned.queue_id,
                begin_offset=scanned.begin_offset,
                end_offset=scanned.end_offset,
            )
            for scanned in answer.scanned_ranges
        ],
        stop=pb.SearchStop.Name(answer.stop.value),
        scanned_record_count=answer.scanned_record_count,
        scanned_bytes=answer.scanned_bytes,
        unreadable_count=answer.unreadable_count,
        cel_error_count=answer.cel_error_count,
        cel_error=answer.cel_error,
        begin_time=timestamp_of(question.times.begin_millis),
        end_time=timestamp_of(question.times.end_millis),
        total_record_count=answer.total_count,
        passed_record_count=answer.passed_count,
    )
