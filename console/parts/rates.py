"""The queues of a topic, and the number of messages that they got over time, from the queue offsets at given times.

    time      t0      t1      t2      t3         SearchOffset(queue, t) at each edge;
    offset    0       10      10      35         a bar is the difference between two edges
              └─ 10 ──┴── 0 ──┴─ 25 ──┘

The number of calls and their time are limited: a topic with many queues gets fewer bars, and queues that were not reached in
time are left out and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from console.calls import Calls
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.convert import millis_to_timestamp
from store.errors import DeadlineExceededError, StoreError, TopicNotFoundError


@dataclass(frozen=True, slots=True)
class TopicQueue:
    """A queue and its range `[min_offset, max_offset)`."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def key(self) -> tuple[str, int]:
        """Broker name and queue id."""
        return self.broker_name, self.queue_id

    @property
    def count(self) -> int:
        """The number of positions in the range."""
        return max(0, self.max_offset - self.min_offset)


@dataclass(frozen=True, slots=True)
class TopicQueues:
    """The queues that are listed, the answer that lists them, which has the completeness, and how many queues there are."""

    queues: tuple[TopicQueue, ...]
    answer: Any
    queue_count: int

    @property
    def missing_names(self) -> tuple[str, ...]:
        """Shards that did not answer and may have further queues."""
        return tuple(shard.broker_name for shard in self.answer.shards if shard.HasField("error"))


def queues_of(calls: Calls, topic: str, page_count_max: int = 1) -> TopicQueues:
    """The queues of the topic that are in the first pages of the list; TopicNotFoundError when there is no such topic."""
    request = pb.ListTopicsRequest(topic=topic)
    answer = calls.ask(calls.gateway.ListTopics, request)
    for row in answer.topics:
        rows, token = list(row.queues), answer.next_page_token
        for _ in range(page_count_max - 1):
            if not token:
                break
            request.page_token = token
            following = calls.ask(calls.gateway.ListTopics, request)
            rows += (queue for each in following.topics for queue in each.queues)
            token = following.next_page_token
        queues = (TopicQueue(q.broker_name, q.queue_id, q.min_offset, q.max_offset) for q in rows)
        return TopicQueues(tuple(queues), answer, max(row.queue_count, len(rows)))
    for shard in answer.shards:
        if shard.HasField("error"):
            raise StoreError(f"shard {shard.broker_name}, which may have it, did not answer: {shard.error.message}")
    raise TopicNotFoundError(f"The store has no topic {topic!r}.", topic=topic)


BAR_COUNT_MAX = 24
BAR_COUNT_MIN = 6
CALL_COUNT_MAX = 80
# What the script loads after the page may take so long.
LATER_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """A queue with its times; None while it is empty or was not asked (`is_left_out`)."""

    queue: TopicQueue
    first_millis: int | None = None
    last_millis: int | None = None
    problem: StoreError | None = None
    is_left_out: bool = False


class Asking:
    """SearchOffset calls for the queues of a topic, with a time limit for all of them.

    Args:
        calls: of the page.
        topic: of all the queues.
        seconds: after this time no further call begins.
    """

    def __init__(self, calls: Calls, topic: str, seconds: float) -> None:
        self._calls = calls
        self._topic = topic
        self._end_seconds = calls.context.time_remaining() - seconds

    def seconds_left(self) -> float:
        """Seconds left; 0 or less when the time is over."""
        return self._calls.context.time_remaining() - self._end_seconds

    def search(self, queue: TopicQueue, time_millis: int) -> pb.SearchOffsetResponse:
        """The position of a store time in a queue; DeadlineExceededError when no time is left."""
        seconds_left = self.seconds_left()
        if seconds_left <= 0:
            raise DeadlineExceededError("No time is left for more of the topic's queues.")
        request = pb.SearchOffsetRequest(
            topic=self._topic,
            queue_id=queue.queue_id,
            time=millis_to_timestamp(time_millis),
            boundary=pb.BOUNDARY_LOWER,
            broker_name=queue.broker_name,
        )
        answer: pb.SearchOffsetResponse = self._calls.ask(self._calls.gateway.SearchOffset, request, seconds_left)
        return answer


@dataclass(frozen=True, slots=True)
class Rates:
    """Message counts of equal time spans.

    Attributes:
        begin_millis: begin of the first span, since 1970.
        end_millis: end of the last one.
        totals: of all queues that were reached.
        by_queue: counts of each queue, by broker and queue.
        left_out_count: queues that were not reached.
    """

    begin_millis: int
    end_millis: int
    totals: tuple[int, ...] = ()
    by_queue: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    left_out_count: int = 0

    @property
    def bar_millis(self) -> float:
        """Length of a span."""
        return (self.end_millis - self.begin_millis) / max(1, len(self.totals))


def spans_of(asking: Asking, queues: Sequence[TopicQueue]) -> list[QueueSpan]:
    """The times of the first and last message of each queue."""
    spans = []
    for queue in queues:
        if not queue.count:
            spans.append(QueueSpan(queue))
            continue
        try:
            answer = asking.search(queue, 0)
        except DeadlineExceededError:
            spans.append(QueueSpan(queue, is_left_out=True))
            continue
        except StoreError as error:
            spans.append(QueueSpan(queue, problem=error))
            continue
        first = answer.first_store_time.ToMilliseconds() if answer.HasField("first_store_time") else None
        last = answer.last_store_time.ToMilliseconds() if answer.HasField("last_store_time") else None
        spans.append(QueueSpan(queue, first, last))
    return spans


def rates_of(asking: Asking, spans: Sequence[QueueSpan]) -> Rates | None:
    """The rates from the first to the last message; None when there are no messages."""
    known = [span for span in spans if span.first_millis is not None and span.last_millis is not None]
    if not known:
        return None
    begin = min(span.first_millis for span in known if span.first_millis is not None)
    end = max(span.last_millis for span in known if span.last_millis is not None) + 1
    bar_count = max(BAR_COUNT_MIN, min(BAR_COUNT_MAX, CALL_COUNT_MAX // len(known)))
    bar_count = min(bar_count, end - begin)
    edges = [begin + (end - begin) * number // bar_count for number in range(1, bar_count)]
    by_queue: dict[tuple[str, int], tuple[int, ...]] = {}
    for span in known:
        try:
            by_queue[span.queue.broker_name, span.queue.queue_id] = _counts(asking, span, edges)
        except StoreError:
            continue  # counted as left out
    totals = tuple(map(sum, zip(*by_queue.values(), strict=True)))
    return Rates(begin, end, totals, by_queue, sum(span.queue.count > 0 for span in spans) - len(by_queue))


def _counts(asking: Asking, span: QueueSpan, edges: Sequence[int]) -> tuple[int, ...]:
    """The count of each span between edges. Two edges at the same position need no calls for the edges between them."""
    queue = span.queue
    at: list[int] = [queue.min_offset] * (len(edges) + 2)
    at[-1] = queue.max_offset

    def fill(left: int, right: int) -> None:
        if right - left < 2:
            return
        if at[left] == at[right]:
            at[left + 1 : right] = [at[left]] * (right - left - 1)
            return
        middle = (left + right) // 2
        at[middle] = min(max(position(edges[middle - 1]), at[left]), at[right])
        fill(left, middle)
        fill(middle, right)

    def position(edge: int) -> int:
        if span.first_millis is not None and edge <= span.first_millis:
            return queue.min_offset
        if span.last_millis is not None and edge > span.last_millis:
            return queue.max_offset
        found: int = asking.search(queue, edge).queue_offset
        return found

    fill(0, len(at) - 1)
    return tuple(after - before for before, after in pairwise(at))
