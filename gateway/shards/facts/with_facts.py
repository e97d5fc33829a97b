"""A shard whose answers say what its store holds elsewhere, and which messages were deleted with their topic.

What is elsewhere is in a feature of RocketMQ that is not read (docs/features.md). Candidates of a topic of which more may be
there, and units and positions before the begin of its queue, have a `problem`, which makes an answer PARTIAL and names the
feature.

A topic was deleted at a byte of the log (ADR 0105). Its records before that byte are marked, wherever they were read. While
nothing says what was deleted, no record is given: the call fails with the reason.
"""

from collections.abc import Mapping
from typing import Any

from gateway.ports.chain import Answering, Concern, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    GET_RECORD,
    GET_RECORDS,
    GET_UNITS,
    SEARCH_KEY,
    SEARCH_OFFSET,
    STORE_FACTS,
    Built,
    Shard,
    elsewhere,
    is_at_front,
)
from gateway.ports.time_window import millis_in
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import StoreError


def with_facts(shard: Shard) -> Shard:
    """The shard, with what its store says; unchanged when it says nothing."""
    if not shard.has(STORE_FACTS):
        return shard
    return shard.with_link(Concern.FACTS, link)


def _marked(record: StoredMessage | StoreError, deleted_before: Mapping[str, int]) -> StoredMessage | StoreError:
    if isinstance(record, StoreError):
        return record
    if record.commit_log_offset < deleted_before.get(record.topic, 0):
        record.deleted_with_topic = True
    return record


def link(method: ShardMethod[Any, Any], request: Any, deadline: Deadline, below: Answering) -> Any:
    """The link of the calls to such a shard."""
    answer = below(method, request, deadline)
    if method is GET_RECORD:
        return _marked(answer, below(STORE_FACTS, None, deadline).deleted_before)
    if method is GET_RECORDS:
        if all(isinstance(each, StoreError) for each in answer):
            return answer
        deleted = below(STORE_FACTS, None, deadline).deleted_before
        return [_marked(each, deleted) for each in answer] if deleted else answer
    if method in (SEARCH_KEY, GET_UNITS, SEARCH_OFFSET) and answer.problem is None and _may_lack(request, answer):
        answer.problem = elsewhere(below, request.topic, deadline)
    return answer


def _may_lack(request: Any, found: Built[Any]) -> bool:
    """Whether messages that are elsewhere may belong to the answer: those of queues lie before the begin of the queue."""
    if isinstance(request, queue_pb.GetQueueUnitsRequest):
        return request.queue_offset < int(found.answer.min_offset)
    if isinstance(request, queue_pb.SearchOffsetRequest):
        front = is_at_front(found.answer, millis_in(request, "time") or 0, request.boundary)
        return bool(found.answer.min_offset) and front
    return True
