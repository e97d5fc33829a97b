"""ExplainQuery: the query's own method, called over shards that note what they are asked, and what they noted as an answer.

The query's own answer is not sent: who wants the messages asks for them.
"""

import time
from collections.abc import Callable
from typing import Any

import grpc

from gateway.ports import FoundRecord
from gateway.queries.explain_ports import HasKey, Lookup, RecordedShards, Rejection, ShardRecord
from gateway.sharding.key_facts import PassedOver
from gateway.shards import Shards, ShardsSource
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.status import to_status
from store.errors import (
    InvalidArgumentError,
    InvalidPageTokenError,
    PermissionDeniedError,
    StoreError,
    UnauthenticatedError,
)

# Rows of an answer: far below the 4 MiB that clients receive by default.
VISIT_COUNT_MAX = 1_000
LOOKUP_COUNT_MAX = 200
REJECTED_COUNT_MAX = 100
DETAIL_CHARACTERS_MAX = 200
# All visits of an answer together, some 60 bytes each.
ALL_VISIT_COUNT_MAX = 20_000

PASSED_OVER = {
    PassedOver.NOT: pb.PASSED_OVER_UNSPECIFIED,
    PassedOver.CURSOR: pb.PASSED_OVER_CURSOR,
    PassedOver.TIME: pb.PASSED_OVER_TIME,
    PassedOver.FILTER: pb.PASSED_OVER_FILTER,
}
REJECTIONS = {
    Rejection.OTHER_TOPIC: pb.REJECTION_OTHER_TOPIC,
    Rejection.OTHER_KEY: pb.REJECTION_OTHER_KEY,
    Rejection.OUT_OF_WINDOW: pb.REJECTION_OUT_OF_WINDOW,
    Rejection.DROPPED: pb.REJECTION_DROPPED,
    Rejection.UNREADABLE: pb.REJECTION_UNREADABLE,
}
# What may be wrong comes before what is as it should be.
TOLD_FIRST = {Rejection.UNREADABLE: 0, Rejection.DROPPED: 1}

# Calls a query's method by its name: over these shards, with its request and its call's context.
Ask = Callable[[str, ShardsSource, Any, grpc.ServicerContext], Any]


def _has_key(record: FoundRecord, key: str) -> bool:
    return key in record.keys


def _has_unique_key(record: FoundRecord, key: str) -> bool:
    return record.unique_key == key


def _has_any(record: FoundRecord, key: str) -> bool:
    return _has_key(record, key) or _has_unique_key(record, key)


# Name of the gateway's method and what makes a candidate a match, by the field of the request.
QUERIES: dict[str, tuple[str, HasKey]] = {
    "by_key": ("QueryMessageByKey", _has_key),
    "by_unique_key": ("QueryMessageByUniqueKey", _has_unique_key),
    "by_id": ("QueryMessageById", _has_any),
    "by_offset": ("QueryMessageByOffset", _has_any),
    "find": ("FindMessage", _has_any),
}


def explain_query(
    request: pb.ExplainQueryRequest,
    context: grpc.ServicerContext,
    shards: Shards,
    ask: Ask,
    clock: Callable[[], float] = time.perf_counter,
) -> pb.ExplainQueryResponse:
    """See the proto.

    Args:
        request: the query.
        context: its call.
        shards: who answers.
        ask: asks it.
        clock: seconds, rising.

    Raises:
        InvalidArgumentError, InvalidPageTokenError: the query is none.
        UnauthenticatedError, PermissionDeniedError: the caller may not ask it.
    """
    kind = request.WhichOneof("query")
    if kind is None:
        raise InvalidArgumentError("query is missing: name the query that is to be explained.", field="query")
    method, has_key = QUERIES[kind]
    recorded = RecordedShards(shards, has_key, clock)
    response = pb.ExplainQueryResponse()
    errors: dict[str, Any] = {}
    began = clock()
    try:
        answer = ask(method, recorded, getattr(request, kind), context)
    except (InvalidArgumentError, InvalidPageTokenError, UnauthenticatedError, PermissionDeniedError):
        raise
    except StoreError as error:
        response.error.CopyFrom(to_status(error))
    else:
        _tell_answer(response, answer)
        errors = {row.broker_name: row.error for row in getattr(answer, "shards", ()) if row.HasField("error")}
    response.elapsed_micros = round((clock() - began) * 1e6)
    room = ALL_VISIT_COUNT_MAX
    for record in recorded.records:
        row = response.shards.add()
        room = _tell_shard(row, record, room)
        if record.broker_name in errors:
            row.error.CopyFrom(errors[record.broker_name])
        elif response.HasField("error") and record.error is not None:
            row.error.CopyFrom(to_status(record.error))
    return response


def _tell_answer(response: pb.ExplainQueryResponse, answer: Any) -> None:
    if isinstance(answer, pb.QueryMessageByIdResponse):
        response.message_count, response.completeness = 1, message_pb2.COMPLETENESS_COMPLETE
        return
    is_find = isinstance(answer, pb.FindMessageResponse)
    response.message_count = len(answer.matches if is_find else answer.messages)
    response.completeness = answer.completeness
    response.next_page_token = getattr(answer, "next_page_token", "")


def _tell_shard(row: pb.ShardExplanation, record: ShardRecord, room: int) -> int:
    """Fills a shard's row with at most `room` visits; how many more there is room for."""
    row.broker_name = record.broker_name
    row.elapsed_micros = record.elapsed_micros
    for name, step in record.steps.items():
        row.steps.add(
            name=name,
            call_count=step.call_count,
            item_count=step.item_count,
            message_bytes=step.message_bytes,
            elapsed_micros=step.elapsed_micros,
        )
    shown = record.lookups
    if len(shown) > LOOKUP_COUNT_MAX:  # those that found something are what one looks for
        shown = sorted(shown, key=lambda lookup: not lookup.candidates)[:LOOKUP_COUNT_MAX]
    for lookup in shown:
        _tell_lookup(row.lookups.add(), lookup, room)
        room -= len(row.lookups[-1].visits)
    row.omitted_lookup_count = len(record.lookups) - len(shown)
    return room


def _tell_lookup(row: pb.ShardExplanation.Lookup, lookup: Lookup, room: int) -> None:
    explanations = [explanation for explanation in lookup.explanations if explanation is not None]
    if explanations:
        first = explanations[0]
        row.key_hash, row.slot, row.slot_count = first.key_hash, first.slot, first.slot_count
    row.topic, row.key = lookup.topic, lookup.key
    row.passed_over = PASSED_OVER[lookup.passed_over]
    row.round_count = len(lookup.explanations)
    row.candidate_count = len(lookup.candidates)
    row.match_count = len(lookup.matches)
    row.rejected_count = len(lookup.rejected)
    row.unread_count = lookup.unread_count
    row.search_micros = sum(explanation.elapsed_micros for explanation in explanations)
    visits = lookup.visits
    row.read_bytes = sum(visit.read_bytes for visit in visits)
    for visit in visits[: min(VISIT_COUNT_MAX, room)]:
        row.visits.add(
            name=visit.name,
            passed_over=PASSED_OVER[visit.passed_over],
            entry_count=visit.entry_count,
            chain_entry_count=visit.chain_entry_count,
            same_hash_count=visit.same_hash_count,
            outside_count=visit.outside_count,
            candidate_count=visit.candidate_count,
            damaged=visit.is_damaged,
            read_bytes=visit.read_bytes,
        )
    told = sorted(lookup.rejected.values(), key=lambda rejected: TOLD_FIRST.get(rejected.reason, len(TOLD_FIRST)))
    for rejected in told[:REJECTED_COUNT_MAX]:
        row.rejected.add(
            commit_log_offset=rejected.commit_log_offset,
            reason=REJECTIONS[rejected.reason],
            detail=rejected.detail[:DETAIL_CHARACTERS_MAX],
        )
