"""SearchMessages: reads the request, runs one search and makes the response. A search ends when its call is cancelled."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import grpc

from gateway.ports.shard import store_millis
from gateway.ports.shards import FanOut
from gateway.queries.completeness import ShardOutcome
from gateway.queries.freshness import Part
from gateway.reput.queries import Call
from gateway.reput.wire import message_of, shard_outcome_of, timestamp_of, window_of
from gateway.search.cel_sandbox import CelSandbox
from gateway.search.filter import Conditions, hex_needle
from gateway.search.message_view import MessageView
from gateway.search.question import Budgets, OffsetWindow, SearchAnswer, SearchQuestion
from gateway.search.scan import CallerGoneError
from gateway.search.search_messages import search_messages
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput.message.v1.message_pb2 import StoredMessage
from services.convert import timestamp_to_millis
from services.serving.admission.callers import client_here
from services.serving.admission.shares import Client
from services.serving.calls.cancellation import Cancellation
from services.serving.places import Places
from store.errors import InvalidArgumentError, ResourceBusyError

# Of a client that is alone. A search may take seconds, other queries on the same threads milliseconds. Each holds a few MiB.
SEARCH_COUNT_MAX = 4
# Of all clients: one that is alone gets half of them (services/serving/admission/shares.py).
ALL_SEARCH_COUNT_MAX = 2 * SEARCH_COUNT_MAX
# One waiting search for each running one: each waiting search gets a place when every running one has ended once.
WAITING_COUNT_MAX = ALL_SEARCH_COUNT_MAX
# The wait for a place: the steps of the console's searches take 0.14 s each. At most a quarter of the time that is left.
PLACE_SECONDS_MAX = 1.0


class Searches:
    """Runs searches; thread-safe.

    Args:
        sandbox: evaluates their expressions.

    Attributes:
        threads: call the shards, so a cancelled call does not wait for a shard that hangs.
    """

    def __init__(self, sandbox: CelSandbox) -> None:
        self._sandbox = sandbox
        self._places = Places(ALL_SEARCH_COUNT_MAX, WAITING_COUNT_MAX)
        self.threads = FanOut(ALL_SEARCH_COUNT_MAX)

    def close(self) -> None:
        """End the threads; later searches fail."""
        self.threads.close()

    def answer(
        self, call: Call, request: pb.SearchMessagesRequest, context: grpc.ServicerContext
    ) -> pb.SearchMessagesResponse:
        """One page; an empty response when the call was cancelled.

        Raises:
            ResourceBusyError: all places of the caller's share were in use for as long as this search could wait.
            StoreError: as `question_of` and `search_messages`.
        """
        question = question_of(request)
        budgets = Budgets(request.max_records, request.max_bytes, request.max_millis)
        # A scan may take seconds, so it is not made twice: it waits before, also for a commitlog's word.
        freshness = call.waits.wait(
            call.shards, request.freshness_tokens, Part.QUEUES, call.deadline, request.broker_name, before=True
        )
        seen = replace(call, shards=freshness.shards)
        answer = self._run(seen, question, budgets, request, Cancellation.of(context), client_here(context))
        if answer is None:
            return pb.SearchMessagesResponse()
        return response_of(answer, *freshness.judge(answer.outcomes, answer.completeness), question)

    def _run(
        self,
        call: Call,
        question: SearchQuestion,
        budgets: Budgets,
        request: pb.SearchMessagesRequest,
        cancellation: Cancellation,
        client: Client,
    ) -> SearchAnswer | None:
        """One page; None when the call was cancelled."""
        deadline = call.deadline
        if not self._places.take(cancellation, min(PLACE_SECONDS_MAX, deadline.remaining_seconds() / 4), client):
            if cancellation.is_set:
                return None
            raise ResourceBusyError(
                f"{SEARCH_COUNT_MAX} searches of this client run, which is its share, or all places for searches are in use: "
                "try again.",
                countMax=SEARCH_COUNT_MAX,
            )
        pending: Future[Any] | None = None
        try:
            return search_messages(
                call.shards,
                self.threads,
                call.tokens,
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
            # The call to a shard that hangs still holds a thread: the place is free when that call has ended.
            if pending is None:
                self._places.give_back(client)
            else:
                pending.add_done_callback(lambda _: self._places.give_back(client))


def question_of(request: pb.SearchMessagesRequest) -> SearchQuestion:
    """The question of a request; InvalidArgumentError by field."""
    if request.order not in pb.SearchOrder.values():
        raise InvalidArgumentError(
            f"order {request.order} is not a SearchOrder: use SEARCH_ORDER_OLDEST_FIRST or ..._NEWEST_FIRST.",
            field="order",
        )
    properties = {row.name: row.value if row.HasField("value") else None for row in request.properties}
    if len(properties) < len(request.properties):
        raise InvalidArgumentError(
            "a property is given twice: give each once, or combine the conditions in `cel`.", field="properties"
        )
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


def view_of(message: StoredMessage) -> MessageView:
    """The fields of a record that a filter reads."""
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
        store_time_millis=store_millis(message),
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        tags=message.tags,
        keys=tuple(message.keys),
        unique_key=message.unique_key,
        properties=message.properties,
        body=message.body,
    )


def response_of(
    answer: SearchAnswer,
    outcomes: Sequence[ShardOutcome],
    completeness: message_pb2.Completeness,
    question: SearchQuestion,
) -> pb.SearchMessagesResponse:
    """The response.

    Args:
        answer: the page.
        outcomes: how the shards took part; a shard that is behind a freshness token is incomplete.
        completeness: that of the whole answer.
        question: gives the time window.
    """
    return pb.SearchMessagesResponse(
        messages=map(message_of, answer.entries),
        next_page_token=answer.next_page_token,
        completeness=completeness,
        shards=map(shard_outcome_of, outcomes),
        scanned_ranges=answer.scanned_ranges,
        stop=answer.stop,
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
