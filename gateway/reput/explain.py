"""ExplainQuery: runs a query over shards that record what they are asked, and answers with the records.

The messages that the query finds are not part of the answer.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gateway.queries.recorded_shards import HasKey, Lookup, ShardRecord, recorded
from gateway.reput.queries import Call, by_id, by_key, by_offset, by_unique_key, find
from gateway.shards.replica_reads import Reading
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput.message.v1.message_pb2 import StoredMessage
from services.status import to_status
from store.errors import (
    InvalidArgumentError,
    InvalidPageTokenError,
    PermissionDeniedError,
    StoreError,
    UnauthenticatedError,
)
from store.format.derived.index_layout import tag_key

# Rows of an answer: far below the 4 MiB that clients receive by default.
VISIT_COUNT_MAX = 1_000
LOOKUP_COUNT_MAX = 200
REJECTED_COUNT_MAX = 100
# All visits of an answer together, some 60 bytes each.
ALL_VISIT_COUNT_MAX = 20_000

# Rejections that may be faults come first.
TOLD_FIRST = {pb.REJECTION_UNREADABLE: 0, pb.REJECTION_DROPPED: 1}


def _has_key(record: StoredMessage, key: str) -> bool:
    return key in record.keys or key == tag_key(record.tags)


def _has_unique_key(record: StoredMessage, key: str) -> bool:
    return record.unique_key == key


def _has_any(record: StoredMessage, key: str) -> bool:
    return _has_key(record, key) or _has_unique_key(record, key)


# The query and its test for a candidate, by the request's field.
QUERIES: dict[str, tuple[Callable[[Call, Any], Any], HasKey]] = {
    "by_key": (by_key, _has_key),
    "by_unique_key": (by_unique_key, _has_unique_key),
    "by_id": (by_id, _has_any),
    "by_offset": (by_offset, _has_any),
    "find": (find, _has_any),
}


def explained_of(request: pb.ExplainQueryRequest) -> Any:
    """The request of the query that is explained; an empty one where none is named."""
    return getattr(request, request.WhichOneof("query") or "by_key")


def explain_query(
    call: Call,
    request: pb.ExplainQueryRequest,
    reading: Reading,
    clock: Callable[[], float] = time.perf_counter,
) -> pb.ExplainQueryResponse:
    """The explanation of a query. For a query that fails, the response also has its error.

    Args:
        call: the call's shards, tokens and deadline.
        request: names the query.
        reading: the choice by which the call's shards are read.
        clock: seconds, rising.

    Raises:
        InvalidArgumentError, InvalidPageTokenError: the query is not valid.
        UnauthenticatedError, PermissionDeniedError: the caller may not run the query.
    """
    kind = request.WhichOneof("query")
    if kind is None:
        raise InvalidArgumentError("query is missing: name the query that is to be explained.", field="query")
    ask, has_key = QUERIES[kind]
    shards, records = recorded(call.shards, has_key, clock)
    response = pb.ExplainQueryResponse()
    rows: dict[str, pb.ShardOutcome] = {}
    began = clock()
    try:
        answer = ask(replace(call, shards=shards), getattr(request, kind))
    except (InvalidArgumentError, InvalidPageTokenError, UnauthenticatedError, PermissionDeniedError):
        raise
    except StoreError as error:
        response.error.CopyFrom(to_status(reading.judged(error)))
    else:
        reading.tell(answer, message_pb2.COMPLETENESS_PARTIAL)
        _tell_answer(response, answer)
        rows = {row.broker_name: row for row in getattr(answer, "shards", ())}
    response.elapsed_micros = round((clock() - began) * 1e6)
    room = ALL_VISIT_COUNT_MAX
    for record in records:
        row = response.shards.add()
        room = _tell_shard(row, record, room)
        answered = rows.get(record.broker_name)
        if answered is not None:
            row.replicas.extend(answered.replicas)
            row.known_lag_bytes = answered.known_lag_bytes
            if answered.HasField("staleness"):
                row.staleness.CopyFrom(answered.staleness)
        if answered is not None and answered.HasField("error"):
            row.error.CopyFrom(answered.error)
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
    """Fills a shard's row with at most `room` visits; returns the room that is left."""
    row.broker_name = record.broker_name
    row.elapsed_micros = record.elapsed_micros
    for name, step in record.steps.items():
        if record.is_limited and name == "log.read" and not step.item_count:
            continue  # it was of records that the caller may not see
        row.steps.append(step)
        if record.is_limited:
            row.steps[-1].call_count = 1
    shown = record.lookups
    if len(shown) > LOOKUP_COUNT_MAX:  # lookups that found something come first
        shown = sorted(shown, key=lambda lookup: not lookup.candidate_count)[:LOOKUP_COUNT_MAX]
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
    row.passed_over = lookup.passed_over
    row.round_count = 1 if lookup.is_limited else len(lookup.explanations)
    row.candidate_count = lookup.candidate_count
    row.match_count = len(lookup.matches)
    row.rejected_count = len(lookup.rejected)
    row.unread_count = lookup.unread_count
    row.search_micros = sum(explanation.elapsed_micros for explanation in explanations)
    visits = lookup.visits
    row.read_bytes = sum(visit.read_bytes for visit in visits)
    row.visits.extend(visits[: min(VISIT_COUNT_MAX, room)])
    told = sorted(lookup.rejected.values(), key=lambda rejected: TOLD_FIRST.get(rejected.reason, len(TOLD_FIRST)))
    row.rejected.extend(told[:REJECTED_COUNT_MAX])
