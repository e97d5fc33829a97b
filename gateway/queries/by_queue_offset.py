"""Queries of one queue: its messages in order, from a position on, and its position at a store time.

They tell a queue without messages from a queue whose messages are not built yet; neither has a file.

    unknown ──▶ how far are the queues? ──▶ ask once more ──▶ known: the answer
                                              │ unknown still
                                              ▼
                                            behind: messages may be missing      at the log's end: there is none

The progress is asked first. Otherwise a queue that is built meanwhile would look like one without messages.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from gateway.ports.chain import Answering
from gateway.ports.deadline import Deadline
from gateway.ports.shard import QUEUES_PROGRESS, BuildProgress, Built, Shard, get_records, get_units, held_elsewhere
from gateway.ports.shard import search_offset as ask_for_offset
from gateway.ports.shards import Shards, has_unwritten_queue
from gateway.queries.completeness import ShardOutcome, judge, was_dropped
from gateway.queries.page import PAGE_BYTES_MAX, Page, PageEntry, check_not_negative, check_topic, page_size
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumequeue.v1.consumequeue_service_pb2 import GetQueueUnitsResponse, QueueUnit
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import (
    OffsetOutOfRangeError,
    QueueNotFoundError,
    RecordNotFoundError,
    ServiceUnavailableError,
    StoreCorruptedError,
    StoreError,
    TopicNotFoundError,
    UnsupportedStoreError,
)
from store.format.properties import stands_at
from store.format.topic import is_light_queue

Answer = TypeVar("Answer")


def ask_once_more(call: Answering, ask: Callable[[], Answer], deadline: Deadline) -> Answer | BuildProgress:
    """Asks again about a queue without a file; the builder's progress when it still has none.

    Args:
        call: asks the shard.
        ask: asks them; TopicNotFoundError or QueueNotFoundError without a file.
        deadline: the caller's.
    """
    progress = call(QUEUES_PROGRESS, queue_pb.GetStatusRequest(past_offset=0), deadline).progress
    try:
        return ask()
    except (TopicNotFoundError, QueueNotFoundError):
        return progress


METHOD = "QueryMessageByOffset"


@dataclass(frozen=True, slots=True)
class QueueAnswer:
    """Messages in queue order, the queue's range `[min_offset, max_offset)`, and where to go on."""

    entries: tuple[PageEntry, ...]
    min_offset: int
    max_offset: int
    next_queue_offset: int
    completeness: message_pb2.Completeness
    outcome: ShardOutcome

    @property
    def has_more(self) -> bool:
        """Whether the queue has messages behind the answer."""
        return self.next_queue_offset < self.max_offset


def query_by_queue_offset(
    shards: Shards,
    topic: str,
    queue_id: int,
    queue_offset: int,
    *,
    broker_name: str,
    page_size_asked: int,
    deadline: Deadline,
) -> QueueAnswer:
    """Up to `page_size_asked` messages; out of range is empty and goes on at the nearer end of the range.

    It is TRUNCATED when the queue has more behind the answer, PARTIAL when it ends where the queue is still being built, which
    may be before its first message, or when the archive cannot give all that the log has dropped.

    Raises:
        InvalidArgumentError: by field.
        BrokerNotFoundError, TopicNotFoundError, QueueNotFoundError: there is no such queue.
        StoreCorruptedError: the queue points to something else than its message.
    """
    check_topic(topic)
    check_not_negative(queue_id, "queue_id")
    check_not_negative(queue_offset, "queue_offset")
    count_max = page_size(page_size_asked, "page_size")
    shard = shards.named(broker_name)
    units = partial(get_units, shard, topic, queue_id, queue_offset, count_max, deadline)
    try:
        found = units()
    except (TopicNotFoundError, QueueNotFoundError):
        asked = ask_once_more(shard.call, units, deadline)
        if isinstance(asked, BuildProgress):
            has_unwritten_queue(shard, topic, queue_id, deadline)
            problem = held_elsewhere(shard, topic, deadline)
            outcome = ShardOutcome(shard.broker_name, problem, asked, not asked.is_behind and problem is None)
            return QueueAnswer((), 0, 0, 0, judge([outcome], more=False), outcome)
        found = asked
    stretch, progress, problem = found.answer, found.progress, found.problem
    page: Page = Page(count_max)
    next_queue_offset = _read_units(shard, topic, queue_id, stretch, page, deadline=deadline)
    if next_queue_offset is None:
        next_queue_offset = _next_after(queue_offset, stretch)
    # Queues are built in order: what was given has no holes, only its end can be too early.
    short = next_queue_offset >= stretch.max_offset and len(page.entries) < count_max
    complete = not (short and progress.is_behind) and problem is None
    progress = progress if short else replace(progress, is_final=True)
    outcome = ShardOutcome(shard.broker_name, problem, progress, complete)
    return QueueAnswer(
        tuple(page.entries),
        stretch.min_offset,
        stretch.max_offset,
        next_queue_offset,
        judge([outcome], more=next_queue_offset < stretch.max_offset),
        outcome,
    )


def _next_after(queue_offset: int, stretch: GetQueueUnitsResponse) -> int:
    if stretch.units:
        return stretch.units[-1].queue_offset + 1
    return min(max(queue_offset, stretch.min_offset), stretch.max_offset)


def _read_units(
    shard: Shard,
    topic: str,
    queue_id: int,
    stretch: GetQueueUnitsResponse,
    page: Page,
    *,
    deadline: Deadline,
) -> int | None:
    """Fill the page; the position whose message did not fit any more, None when all did."""
    units = list(stretch.units)
    while units:
        batch = _batch(units, page)
        outcomes = get_records(shard, [unit.commit_log_offset for unit in batch], max(page.free_bytes, 1), deadline)
        for index, (unit, outcome) in enumerate(zip(batch, outcomes, strict=False)):
            if isinstance(outcome, StoreError) and was_dropped(outcome, unit.commit_log_offset):
                continue
            if isinstance(outcome, OffsetOutOfRangeError | RecordNotFoundError):
                raise _points_astray(topic, queue_id, unit, "no record starts there") from outcome
            if isinstance(outcome, StoreError):
                raise outcome
            _check_unit(topic, queue_id, unit, outcome)
            if index and page.wants_body(outcome):
                units = units[index:]
                break
            if not page.add(shard.broker_name, outcome):
                return unit.queue_offset
        else:
            units = units[len(outcomes) :]
    return None


def _batch(units: list[QueueUnit], page: Page) -> list[QueueUnit]:
    """The units whose records may fit the page, at least one: the queue knows their sizes."""
    free_bytes = min(page.free_bytes, PAGE_BYTES_MAX)
    batch: list[QueueUnit] = []
    for unit in units:
        free_bytes -= unit.record_size_bytes
        if batch and free_bytes < 0:
            break
        batch.append(unit)
    return batch


def _check_unit(topic: str, queue_id: int, unit: QueueUnit, record: StoredMessage) -> None:
    if is_light_queue(topic):
        is_there = stands_at(record.properties, topic, unit.queue_offset)
    else:
        is_there = (record.topic, record.queue_id, record.queue_offset) == (topic, queue_id, unit.queue_offset)
    if not is_there:
        what = f"there is message {record.queue_offset} of queue {record.queue_id} of {record.topic!r}"
        raise _points_astray(topic, queue_id, unit, what)


def _points_astray(topic: str, queue_id: int, unit: QueueUnit, what: str) -> StoreCorruptedError:
    return StoreCorruptedError(
        f"Queue {queue_id} of {topic!r} says that its message {unit.queue_offset} is at byte "
        f"{unit.commit_log_offset} of the log, but {what}: rebuild the queues from the log.",
        file=f"consumequeue/{topic}/{queue_id}",
        offset=unit.queue_offset,
        commitLogOffset=unit.commit_log_offset,
    )


def search_offset(
    shards: Shards,
    topic: str,
    queue_id: int,
    time_millis: int,
    *,
    boundary: gateway_pb.Boundary,
    broker_name: str,
    deadline: Deadline,
) -> Built[queue_pb.SearchOffsetResponse]:
    """LOWER: the first message stored at or after the time, else max. UPPER: the last at or before it, else min.

    Raises:
        InvalidArgumentError: by field.
        BrokerNotFoundError, TopicNotFoundError, QueueNotFoundError: there is no such queue.
    """
    check_topic(topic)
    check_not_negative(queue_id, "queue_id")
    shard = shards.named(broker_name)
    search = partial(ask_for_offset, shard, topic, queue_id, time_millis, boundary, deadline)
    try:
        return search()
    except (TopicNotFoundError, QueueNotFoundError):
        found = ask_once_more(shard.call, search, deadline)
        if isinstance(found, BuildProgress):
            has_unwritten_queue(shard, topic, queue_id, deadline)
            return Built(queue_pb.SearchOffsetResponse(), found, held_elsewhere(shard, topic, deadline))
        return found


def queue_place(
    shards: Shards,
    topic: str,
    queue_id: int,
    time_millis: int,
    *,
    broker_name: str,
    deadline: Deadline,
    boundary: gateway_pb.Boundary = gateway_pb.BOUNDARY_LOWER,
    needs_end: bool = False,
    needs_place: bool = True,
) -> queue_pb.SearchOffsetResponse:
    """As `search_offset`, for a consumer that goes on there: what may be wrong is an error.

    Args:
        needs_end: the end is asked for, or a place that may be there: the queues must have what the log had at their start.
        needs_place: a first position, or one by time, is asked for.

    Raises:
        ServiceUnavailableError: the queues are being built.
        StoreError: the position may be that of another message.
    """
    found = search_offset(
        shards, topic, queue_id, time_millis, boundary=boundary, broker_name=broker_name, deadline=deadline
    )
    if needs_end and found.progress.catching_up:
        raise ServiceUnavailableError("the queues are still being built: ask again", service="consumequeue")
    # What the store has elsewhere is in no queue that is delivered.
    if needs_place and found.problem is not None and not isinstance(found.problem, UnsupportedStoreError):
        raise found.problem
    return found.answer


def outcome_of(
    broker_name: str, found: Built[queue_pb.SearchOffsetResponse], boundary: gateway_pb.Boundary
) -> ShardOutcome:
    """How the shard took part: incomplete when a message that is not built yet could be the one looked for.

    The first message at or after a time stays the first. A later message may be the last one at or before a time, wherever
    that is now: store times fall where the clock of a broker was set back. Also incomplete with a problem: of an archive, or
    because messages may be elsewhere.
    """
    progress = found.progress
    if boundary == gateway_pb.BOUNDARY_LOWER and found.answer.queue_offset < found.answer.max_offset:
        progress = replace(progress, is_final=True)
    may_move = progress.is_behind and not progress.is_final
    return ShardOutcome(broker_name, found.problem, progress, complete=not may_move and found.problem is None)
