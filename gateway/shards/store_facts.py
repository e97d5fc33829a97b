"""A shard whose answers say what its store holds elsewhere, and which messages were deleted with their topic.

What is elsewhere is in a feature of RocketMQ that is not read (docs/features.md). Candidates of a topic of which more may be
there, and units and positions before the begin of its queue, have a `problem`, which makes an answer PARTIAL and names the
feature.

A topic was deleted at a byte of the log (ADR 0105). Its records before that byte are marked, wherever they were read. While
nothing says what was deleted, no record is given: the call fails with the reason.

`RemoteStoreFacts` asks the commitlog service of a shard.
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
from gateway.ports.store_facts import ANY_TOPIC, StoreFacts
from gateway.ports.time_window import millis_in
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.message.v1.message_pb2 import StoredMessage
from services.calling.port_calls import port_call
from services.reading.deleted_topics import DeletedTopics
from store.errors import DeadlineExceededError, StoreError, UnsupportedStoreError


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


class RemoteStoreFacts:
    """One call each LOOK_SECONDS at most, whose answer is small while nothing changes.

    Args:
        topics: asks the commit log.
    """

    def __init__(self, topics: DeletedTopics) -> None:
        self._topics = topics
        self._ask = port_call(STORE_FACTS.name)(self._look)
        self._known: tuple[pb.ListTopicsResponse | None, StoreFacts] = None, StoreFacts()

    def facts(self, request: None, deadline: Deadline) -> StoreFacts:
        """STORE_FACTS."""
        table = self._topics.fresh_table()
        if table is None:
            if not deadline.waits:  # a look that fails for want of time would answer other callers, too
                raise DeadlineExceededError(
                    "What the store has is not at hand: allow time to ask the commit log for it."
                )
            table = self._ask(request, deadline)
        seen, facts = self._known  # one field: another caller may have an older table, and put its facts here meanwhile
        if table is not seen:
            facts = _facts(table)
            self._known = table, facts
        return facts

    def _look(self, request: None, deadline: Deadline) -> pb.ListTopicsResponse:
        return self._topics.table(deadline.remaining_seconds())


def _facts(table: pb.ListTopicsResponse) -> StoreFacts:
    held = {topic: _not_read(topic, held) for topic, held in table.held_elsewhere.items()}
    return StoreFacts(held, dict(table.deleted_before))


def _not_read(topic: str, held: pb.ListTopicsResponse.HeldElsewhere) -> UnsupportedStoreError:
    error = UnsupportedStoreError(f"Messages may be missing: {held.text}.", feature=held.feature)
    if topic != ANY_TOPIC:
        error.metadata["topic"] = topic
    return error
