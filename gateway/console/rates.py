"""How many messages a topic's queues took over time, by asking where in each queue a time lies.

    time      t0      t1      t2      t3         SearchOffset(queue, t) at each edge;
    offset    0       10      10      35         a bar is the difference between two edges
              └─ 10 ──┴── 0 ──┴─ 25 ──┘

The asking is bounded in calls and in time: a topic of many queues gets fewer bars, and a queue that was not reached is
left out and counted as such.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gateway.console.calls import Calls
from gateway.console.topic_queues import TopicQueue
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.convert import millis_to_timestamp
from store.errors import DeadlineExceededError, StoreError

BAR_COUNT_MAX = 24
BAR_COUNT_MIN = 6
CALL_COUNT_MAX = 80


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """A queue with its times; None while it is empty or was not asked (`is_left_out`)."""

    queue: TopicQueue
    first_millis: int | None = None
    last_millis: int | None = None
    problem: str = ""
    is_left_out: bool = False


class Asking:
    """Asks where in queues a time lies, for so many seconds altogether.

    Args:
        calls: of the page.
        topic: of all the queues.
        seconds: after them, and after as many since the begin, nothing is asked any more.
    """

    def __init__(self, calls: Calls, topic: str, seconds: float) -> None:
        self._calls = calls
        self._topic = topic
        self._end_seconds = calls.context.time_remaining() - seconds

    def seconds_left(self) -> float:
        """Seconds left; 0 or less when it is over."""
        return self._calls.context.time_remaining() - self._end_seconds

    def search(self, queue: TopicQueue, time_millis: int) -> pb.SearchOffsetResponse:
        """Where the time lies; DeadlineExceededError when the time is over."""
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
        answer: pb.SearchOffsetResponse = self._calls.ask("SearchOffset", request, seconds_left)
        return answer


@dataclass(frozen=True, slots=True)
class Rates:
    """Counts of equal spans of time.

    Attributes:
        begin_millis: of the first span, since 1970.
        end_millis: of the last one.
        totals: of all queues that were reached.
        by_queue: the same for each, by broker and queue.
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
            spans.append(QueueSpan(queue, problem=error.message))
            continue
        first = answer.first_store_time.ToMilliseconds() if answer.HasField("first_store_time") else None
        last = answer.last_store_time.ToMilliseconds() if answer.HasField("last_store_time") else None
        spans.append(QueueSpan(queue, first, last))
    return spans


def rates_of(asking: Asking, spans: Sequence[QueueSpan]) -> Rates | None:
    """Bars from the first to the last message; None when there is nothing to count."""
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
    """The count of each span between edges. Where two edges lie at the same position, so does all between them."""
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
