"""GatewayService: the RPCs, each read, asked of the queries and answered; appends take their own way (appends/forwarder.py)."""

import copy
from collections.abc import Iterator
from typing import Any

import grpc

from gateway.appends.forwarder import AppendForwarder
from gateway.completeness import judge
from gateway.explain_answer import explain_query
from gateway.freshness import FreshnessGate, Part
from gateway.limits import BODY_CHUNK_BYTES
from gateway.page_token import PageTokens
from gateway.ports import Boundary
from gateway.queries.by_key import query_by_key
from gateway.queries.by_offset_msg_id import find_record, query_by_offset_msg_id
from gateway.queries.by_queue_offset import query_by_queue_offset
from gateway.queries.by_unique_key import query_by_unique_key
from gateway.queries.find_message import find_message
from gateway.queries.list_topics import TopicChoice, list_topics
from gateway.queries.search_offset import outcome_of, search_offset
from gateway.search.budgets import Budgets
from gateway.search.cel_sandbox import CelSandbox
from gateway.search_call import Searches, question_of, response_of
from gateway.shards import Shards, ShardsSource
from gateway.status_answer import status_of
from gateway.time_window import millis_at_or_after, millis_at_or_before
from gateway.wire import (
    completeness_of,
    deadline_of,
    message_of,
    millis_of,
    shard_outcome_of,
    stored_of,
    timestamp_of,
    window_of,
)
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc
from services.raw_handlers import add_with_raw
from store.errors import InvalidArgumentError

BOUNDARIES = {
    pb.BOUNDARY_UNSPECIFIED: Boundary.LOWER,
    pb.BOUNDARY_LOWER: Boundary.LOWER,
    pb.BOUNDARY_UPPER: Boundary.UPPER,
}


class GatewayServicer(pb_grpc.GatewayServiceServicer):
    """Serves the queries over all shards.

    Args:
        shards: the shards.
        tokens: what seals page tokens.
        sandbox: where searches evaluate their expressions; an own one when absent.
        freshness: where queries wait that bring freshness tokens; an own one when absent.
    """

    def __init__(
        self,
        shards: ShardsSource,
        tokens: PageTokens,
        sandbox: CelSandbox | None = None,
        freshness: FreshnessGate | None = None,
    ) -> None:
        self._source = shards
        self._tokens = tokens
        self._freshness = freshness or FreshnessGate()
        self._searches = Searches(tokens, sandbox or CelSandbox())

    def close(self) -> None:
        """End the threads of searches, and take no more."""
        self._searches.close()

    @property
    def _shards(self) -> Shards:
        """Those of this moment; to be asked for once a call."""
        return self._source.now()

    def QueryMessageByKey(
        self, request: pb.QueryMessageByKeyRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByKeyResponse:
        """See the proto."""
        window = window_of(request)
        shards, deadline = self._shards, deadline_of(context)
        freshness = self._freshness.wait(shards, request.freshness_tokens, Part.INDEX, deadline)
        answer = query_by_key(
            shards,
            self._tokens,
            request.topic,
            request.key,
            window,
            page_size_asked=request.page_size,
            page_token=request.page_token,
            deadline=deadline,
        )
        outcomes, completeness = freshness.judge(answer.outcomes, answer.completeness)
        return pb.QueryMessageByKeyResponse(
            messages=map(message_of, answer.entries),
            next_page_token=answer.next_page_token,
            completeness=completeness_of(completeness),
            shards=map(shard_outcome_of, outcomes),
            begin_time=timestamp_of(window.begin_millis),
            end_time=timestamp_of(window.end_millis),
        )

    def QueryMessageById(
        self, request: pb.QueryMessageByIdRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByIdResponse:
        """See the proto."""
        entry = query_by_offset_msg_id(
            self._shards, request.offset_msg_id, request.topic, request.broker_name, deadline_of(context)
        )
        return pb.QueryMessageByIdResponse(message=message_of(entry))

    def QueryMessageByUniqueKey(
        self, request: pb.QueryMessageByUniqueKeyRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByUniqueKeyResponse:
        """See the proto."""
        shards, deadline = self._shards, deadline_of(context)
        freshness = self._freshness.wait(shards, request.freshness_tokens, Part.INDEX, deadline)
        answer = query_by_unique_key(
            shards,
            self._tokens,
            request.topic,
            request.unique_key,
            page_size_asked=request.page_size,
            page_token=request.page_token,
            deadline=deadline,
        )
        outcomes, completeness = freshness.judge(answer.outcomes, answer.completeness)
        return pb.QueryMessageByUniqueKeyResponse(
            messages=map(message_of, answer.entries),
            next_page_token=answer.next_page_token,
            completeness=completeness_of(completeness),
            shards=map(shard_outcome_of, outcomes),
        )

    def QueryMessageByOffset(
        self, request: pb.QueryMessageByOffsetRequest, context: grpc.ServicerContext
    ) -> pb.QueryMessageByOffsetResponse:
        """See the proto."""
        shards, deadline = self._shards, deadline_of(context)
        freshness = self._freshness.wait(shards, request.freshness_tokens, Part.QUEUES, deadline)
        answer = query_by_queue_offset(
            shards,
            request.topic,
            request.queue_id,
            request.queue_offset,
            broker_name=request.broker_name,
            max_messages_asked=request.max_messages,
            deadline=deadline,
        )
        outcomes, completeness = freshness.judge([answer.outcome], answer.completeness)
        return pb.QueryMessageByOffsetResponse(
            messages=map(message_of, answer.entries),
            min_offset=answer.min_offset,
            max_offset=answer.max_offset,
            next_queue_offset=answer.next_queue_offset,
            completeness=completeness_of(completeness),
            shards=map(shard_outcome_of, outcomes),
        )

    def FindMessage(self, request: pb.FindMessageRequest, context: grpc.ServicerContext) -> pb.FindMessageResponse:
        """See the proto."""
        window = window_of(request)
        shards, deadline = self._shards, deadline_of(context)
        freshness = self._freshness.wait(shards, request.freshness_tokens, Part.INDEX, deadline)
        answer = find_message(
            shards,
            self._tokens,
            request.text,
            request.topic,
            window,
            page_size_asked=request.page_size,
            page_token=request.page_token,
            max_millis=request.max_millis,
            deadline=deadline,
        )
        outcomes, completeness = freshness.judge(answer.outcomes, answer.completeness)
        return pb.FindMessageResponse(
            matches=[
                pb.FindMessageResponse.Match(message=message_of(entry), matched_by=matched_by.value)
                for entry, matched_by in answer.entries
            ],
            completeness=completeness_of(completeness),
            shards=map(shard_outcome_of, outcomes),
            topic_count=answer.topic_count,
            begin_time=timestamp_of(window.begin_millis),
            end_time=timestamp_of(window.end_millis),
            next_page_token=answer.next_page_token,
        )

    def ExplainQuery(self, request: pb.ExplainQueryRequest, context: grpc.ServicerContext) -> pb.ExplainQueryResponse:
        """See the proto."""

        def ask(method: str, shards: ShardsSource, query: Any, context: grpc.ServicerContext) -> Any:
            over_these = copy.copy(self)
            over_these._source = shards
            # The class's own: what is set on this object, such as a timer, would ask its shards.
            return getattr(type(self), method)(over_these, query, context)

        return explain_query(request, context, self._shards, ask)

    def SearchMessages(
        self, request: pb.SearchMessagesRequest, context: grpc.ServicerContext
    ) -> pb.SearchMessagesResponse:
        """See the proto."""
        shards, deadline = self._shards, deadline_of(context)
        question = question_of(request)
        budgets = Budgets(request.max_records, request.max_bytes, request.max_millis)
        freshness = self._freshness.wait(shards, request.freshness_tokens, Part.QUEUES, deadline)
        answer = self._searches.run(shards, question, budgets, request, context, deadline)
        if answer is None:
            return pb.SearchMessagesResponse()  # to nobody
        return response_of(answer, *freshness.judge(answer.outcomes, answer.completeness), question)

    def DownloadBody(
        self, request: pb.DownloadBodyRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.DownloadBodyResponse]:
        """See the proto. An empty body is one empty chunk."""
        found = find_record(self._shards, request.offset_msg_id, request.broker_name, deadline_of(context))
        body = stored_of(found.record.payload).body  # all that stays while the reader takes its time

        def chunk(begin: int) -> pb.DownloadBodyResponse:
            return pb.DownloadBodyResponse(chunk=body[begin : begin + BODY_CHUNK_BYTES], body_size_bytes=len(body))

        return map(chunk, range(0, max(len(body), 1), BODY_CHUNK_BYTES))

    def SearchOffset(self, request: pb.SearchOffsetRequest, context: grpc.ServicerContext) -> pb.SearchOffsetResponse:
        """See the proto."""
        if request.boundary not in BOUNDARIES:
            raise InvalidArgumentError(f"boundary {request.boundary} is no Boundary.", field="boundary")
        boundary = BOUNDARIES[request.boundary]
        time_millis = millis_of(
            request, "time", millis_at_or_after if boundary is Boundary.LOWER else millis_at_or_before
        )
        if time_millis is None:
            raise InvalidArgumentError("time is missing.", field="time")
        shards, deadline = self._shards, deadline_of(context)
        freshness = self._freshness.wait(shards, request.freshness_tokens, Part.QUEUES, deadline)
        found = search_offset(
            shards,
            request.topic,
            request.queue_id,
            time_millis,
            boundary=boundary,
            broker_name=request.broker_name,
            deadline=deadline,
        )
        outcome = outcome_of(shards.named(request.broker_name).broker_name, found, boundary)
        outcomes, completeness = freshness.judge([outcome], judge([outcome], more=False))
        return pb.SearchOffsetResponse(
            queue_offset=found.queue_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            completeness=completeness_of(completeness),
            shards=map(shard_outcome_of, outcomes),
            first_store_time=timestamp_of(found.first_store_time_millis),
            last_store_time=timestamp_of(found.last_store_time_millis),
        )

    def ListTopics(self, request: pb.ListTopicsRequest, context: grpc.ServicerContext) -> pb.ListTopicsResponse:
        """See the proto."""
        choice = TopicChoice(request.topic, request.name_contains)
        answer = list_topics(
            self._shards, self._tokens, request.page_size, request.page_token, deadline_of(context), choice
        )
        response = pb.ListTopicsResponse(
            next_page_token=answer.next_page_token,
            completeness=completeness_of(answer.completeness),
            shards=map(shard_outcome_of, answer.outcomes),
        )
        for row in answer.topics:
            topic = response.topics.add(topic=row.topic)
            for broker_name, queue in row.queues:
                topic.queues.add(
                    broker_name=broker_name,
                    queue_id=queue.queue_id,
                    min_offset=queue.min_offset,
                    max_offset=queue.max_offset,
                )
        return response

    def GetStatus(self, request: pb.GetStatusRequest, context: grpc.ServicerContext) -> pb.GetStatusResponse:
        """See the proto. A service that does not answer has its error in its row."""
        return status_of(self._shards, deadline_of(context))


def add_to_server(servicer: GatewayServicer, server: grpc.Server, forwarder: AppendForwarder) -> None:
    """Serve the queries by the generated handlers and the appends by the forwarder's.

    The generated ones must not get to the server for an append: they would be asked first, and decode every message.
    """
    add_with_raw(pb_grpc.add_GatewayServiceServicer_to_server, servicer, forwarder.handlers(), server)
