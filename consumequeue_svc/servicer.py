"""Serves reput.consumequeue.v1: translates between the proto messages and the domain."""

from collections.abc import Callable, Sequence
from functools import partial

import grpc

from consumequeue_svc.batch_queues import BatchQueues
from consumequeue_svc.consume_queue import ConsumeQueue
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.light_queues import LightQueue
from consumequeue_svc.stored_bytes import StoredBytes
from consumequeue_svc.time_search import Boundary, search_offset, time_span
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from reput.consumequeue.v1 import consumequeue_service_pb2_grpc as pb_grpc
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.convert import millis_to_timestamp, timestamp_to_millis
from services.following.follower_process import FollowerState
from services.following.follower_progress import WAITING_COUNT_MAX, FollowerProgress, ProgressWait
from services.reading.deleted_topics import nothing_deleted
from services.serving.deadline import remaining_seconds
from store.errors import (
    InvalidArgumentError,
    InvalidPageTokenError,
    OffsetOutOfRangeError,
    StoreCorruptedError,
    StoreRecoveringError,
)
from store.format.derived.queue_unit import QueueUnit
from store.format.topic import LIGHT_QUEUE_PREFIX, namespace_of, split_lite_queue

PAGE_SIZE_DEFAULT = 64
PAGE_SIZE_MAX = 1000
# Of light queues; a page of the largest size takes some 3 MB.
LIGHT_PAGE_SIZE_DEFAULT, LIGHT_PAGE_SIZE_MAX = 1_000, 50_000
# A search is repeated only if retention removed a log file during the one before.
SEARCH_COUNT_MAX = 4
NOT_EXACT = (
    "there may be messages outside of the range of its queue: no file of batchconsumequeue/ tells its whole range"
)
QUEUE_OFFSET_MAX = (1 << 63) - 1

# Reads the store times (ms) of the records of units, within so many seconds.
StoreTimes = Callable[[Sequence[QueueUnit], float], Sequence[int]]


class ConsumeQueueServicer(pb_grpc.ConsumeQueueServiceServicer):
    """The service; all calls but GetStatus fail with StoreRecoveringError until `open` was called.

    Args:
        progress: of the builder.
        read_times: reads store times from the log.
        waiting_count_max: calls that may wait for the builder at the same time.
        deleted_before: of a topic: where it was deleted in the log; units before it are as removed ones (bytes).

    Attributes:
        state: of the builder.
        aside_words: what the status says about what was moved aside.
    """

    def __init__(
        self,
        progress: FollowerProgress,
        read_times: StoreTimes,
        waiting_count_max: int = WAITING_COUNT_MAX,
        deleted_before: Callable[[str], int] = nothing_deleted,
    ) -> None:
        self._deleted_before = deleted_before
        self.state: Callable[[], FollowerState] = lambda: FollowerState("waiting", 0, "")
        self.aside_words: Callable[[], str] = str
        self._progress = progress
        self._wait = ProgressWait(progress, waiting_count_max)
        self._read_times = read_times
        self._table: ConsumeQueueTable | None = None
        self._stored_bytes = StoredBytes()

    def open(self, table: ConsumeQueueTable) -> None:
        """Serves these queues."""
        self._stored_bytes = StoredBytes()
        self._table = table

    def shut(self) -> None:
        """Serves no queues until the next `open`: they are being recovered."""
        self._table = None

    def ListQueues(  # the name is the proto's
        self, request: pb.ListQueuesRequest, context: grpc.ServicerContext
    ) -> pb.ListQueuesResponse:
        """See the proto."""
        after = _parse_token(request.page_token)
        table = self._queues()
        if request.topic:
            table.refuse_hidden(request.topic)
        count = _page_size(request.page_size, "page_size")
        rows: dict[tuple[str, int], Callable[[], pb.Queue]] = {
            queue_id: partial(self._row, queue_id, queue)
            for queue_id, queue in (table.of_topic(request.topic) if request.topic else table.items())
            if not request.of_namespaces or namespace_of(queue_id[0])
        }
        if not request.topic and (hidden := table.hidden):
            in_part = table.batches.queue_ids(hidden.keys())
            in_part |= {(topic, 0) for topic in hidden.keys() - {topic for topic, _ in in_part}}
            rows |= {
                queue_id: partial(self._row_in_part, queue_id, table.batches, hidden[queue_id[0]])
                for queue_id in in_part
            }
        queue_ids = sorted(queue_id for queue_id in rows if after is None or queue_id > after)
        response = pb.ListQueuesResponse(queues=[rows[queue_id]() for queue_id in queue_ids[:count]])
        if request.of_namespaces:
            for row in response.queues:
                queue = table.find(row.topic, row.queue_id)
                if queue is not None:
                    row.stored_bytes = self._stored_bytes.of(queue, self._progress.log_first_offset)
        if len(queue_ids) > count:
            topic, queue_id = queue_ids[count - 1]
            response.next_page_token = f"{queue_id}@{topic}"
        return response

    def ListLightQueues(
        self, request: pb.ListLightQueuesRequest, context: grpc.ServicerContext
    ) -> pb.ListLightQueuesResponse:
        """See the proto."""
        # Read the progress before the queues, so that the answer never claims more than was looked at.
        next_offset = max(self._progress.next_offset, 0)
        table = self._queues()
        table.check_light_known()
        prefix = LIGHT_QUEUE_PREFIX + request.prefix
        if request.page_size < 0:
            raise InvalidArgumentError(f"page_size {request.page_size} is negative", field="page_size")
        count = min(request.page_size or LIGHT_PAGE_SIZE_DEFAULT, LIGHT_PAGE_SIZE_MAX)
        rows, following = table.light.page(prefix, request.page_token, count)
        return pb.ListLightQueuesResponse(
            names=[name[len(prefix) :] for name, _ in rows],
            max_offsets=[end for _, end in rows],
            next_page_token=following,
            next_offset=next_offset,
        )

    def _row(self, queue_id: tuple[str, int], queue: ConsumeQueue | LightQueue) -> pb.Queue:
        topic, number = queue_id
        min_offset = queue.units.min_offset(self._first(topic))
        return pb.Queue(topic=topic, queue_id=number, min_offset=min_offset, max_offset=queue.units.end)

    def _row_in_part(self, queue_id: tuple[str, int], batches: BatchQueues, problem: str) -> pb.Queue:
        topic, number = queue_id
        found = batches.range(queue_id, self._first(topic), self._progress.log_end_offset)
        return pb.Queue(
            topic=topic,
            queue_id=number,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            problem=problem if found.is_exact else f"{problem}; {NOT_EXACT}",
        )

    def GetQueueUnits(
        self, request: pb.GetQueueUnitsRequest, context: grpc.ServicerContext
    ) -> pb.GetQueueUnitsResponse:
        """See the proto."""
        queue = self._queues().queue(request.topic, request.queue_id)
        count = _page_size(request.max_units, "max_units")
        first = max(self._first(request.topic), request.log_first_offset)
        # A file may be built again, or found damaged, while the units are read.
        is_damaged = queue.is_doubtful
        # Read the range before the units, so that no answer shows a unit behind its own max offset.
        next_offset, log_end_offset = self._progress.next_offset, self._progress.log_end_offset
        built_up_to_millis = self._progress.store_time_millis
        min_offset, max_offset = queue.units.min_offset(first), queue.units.end
        packed_units = b""
        if request.packed and min_offset <= request.queue_offset < max_offset:
            packed_units = queue.packed_units(request.queue_offset, min(request.queue_offset + count, max_offset))
        wants_units = request.queue_offset >= min_offset and not packed_units
        try:
            units = queue.units.units(request.queue_offset, count, first) if wants_units else []
        except StoreCorruptedError:
            if not (is_damaged or queue.is_doubtful):
                raise
            units = []  # the answer says `damaged`, and the units come back
        response = pb.GetQueueUnitsResponse(
            units=[
                pb.QueueUnit(
                    queue_offset=position,
                    commit_log_offset=unit.commit_log_offset,
                    record_size_bytes=unit.record_size_bytes,
                    tags_code=resolved.tags_code,
                )
                for (position, unit), resolved in zip(units, queue.resolved(units), strict=True)
                if position < max_offset
            ],
            min_offset=min_offset,
            max_offset=max_offset,
            next_offset=max(next_offset, 0),
            log_end_offset=log_end_offset,
            catching_up=self._progress.catching_up,
            damaged=is_damaged or queue.is_doubtful,
            packed_units=packed_units,
        )
        if built_up_to_millis:
            response.built_up_to_time.CopyFrom(millis_to_timestamp(built_up_to_millis))
        return response

    def SearchOffset(self, request: pb.SearchOffsetRequest, context: grpc.ServicerContext) -> pb.SearchOffsetResponse:
        """See the proto."""
        table = self._queues()
        queue = table.queue(request.topic, request.queue_id)
        if request.boundary not in gateway_pb.Boundary.values():
            raise InvalidArgumentError(f"boundary {request.boundary} is unknown", field="boundary")
        time_millis = timestamp_to_millis(request.time, "time")
        boundary = Boundary.UPPER if request.boundary == gateway_pb.BOUNDARY_UPPER else Boundary.LOWER
        first = self._first(request.topic)
        # Read the progress before the search, so that the answer never claims more than was searched.
        response = pb.SearchOffsetResponse(
            next_offset=max(self._progress.next_offset, 0),
            log_end_offset=self._progress.log_end_offset,
            catching_up=self._progress.catching_up,
            damaged=queue.is_doubtful,
        )
        if self._progress.store_time_millis:
            response.built_up_to_time.CopyFrom(millis_to_timestamp(self._progress.store_time_millis))

        def read_times(units: Sequence[QueueUnit]) -> Sequence[int]:
            return self._read_times(units, remaining_seconds(context))

        for _ in range(SEARCH_COUNT_MAX):
            try:
                runs = table.times.runs
                found = search_offset(queue.units, first, time_millis, boundary, read_times, runs)
                response.queue_offset, response.unproven = found.queue_offset, not found.is_proven
                span = time_span(queue.units, first, read_times)
                break
            except OffsetOutOfRangeError as error:
                # Retention moved the log's front since the last heartbeat. Any other reason is the caller's.
                new_first = int(error.metadata.get("firstOffset", "0"))
                if new_first <= first:
                    raise
                first = new_first
        else:
            raise StoreRecoveringError("the log's front moves faster than it can be searched: try again soon")
        response.damaged |= queue.is_doubtful
        response.min_offset, response.max_offset = queue.units.min_offset(first), queue.units.end
        if span is not None:
            response.first_store_time.CopyFrom(millis_to_timestamp(span[0]))
            response.last_store_time.CopyFrom(millis_to_timestamp(span[1]))
        return response

    def GetStatus(self, request: pb.GetStatusRequest, context: grpc.ServicerContext) -> pb.GetStatusResponse:
        """See the proto."""
        may_wait = self._wait.wait(request)
        table, state = None if may_wait else self._table, self.state()
        queue_count, topic_count = table.counts() if table is not None else (0, 0)
        response = pb.GetStatusResponse(
            next_offset=max(self._progress.next_offset, 0),
            log_end_offset=self._progress.log_end_offset,
            catching_up=self._progress.catching_up,
            queue_count=queue_count,
            topic_count=topic_count,
            last_error=state.last_error,
            state=state.state,
            failure_count=state.failure_count,
        )
        if not may_wait:
            words = (self.aside_words(), table.left_alone_words() if table is not None else "")
            response.problem = "; ".join(filter(None, words))
        if self._progress.store_time_millis:
            response.built_up_to_time.CopyFrom(millis_to_timestamp(self._progress.store_time_millis))
        return response

    def _first(self, topic: str) -> int:
        """The first offset of the log for a topic (bytes); a lite topic goes with its parent."""
        lite = split_lite_queue(topic)
        return max(self._progress.log_first_offset, self._deleted_before(topic if lite is None else lite[0]))

    def _queues(self) -> ConsumeQueueTable:
        table = self._table
        if table is None:
            raise StoreRecoveringError("the queues are being opened: try again soon")
        return table


def _page_size(value: int, field: str) -> int:
    if value < 0:
        raise InvalidArgumentError(f"{field} {value} is negative: 0 to {PAGE_SIZE_MAX} are possible", field=field)
    return min(value or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)


def _parse_token(token: str) -> tuple[str, int] | None:
    if not token:
        return None
    queue_id, at, topic = token.partition("@")
    if not at or not (queue_id.isascii() and queue_id.isdecimal()) or len(queue_id) > 10:
        raise InvalidPageTokenError(f"page_token {token!r} was not made by this service", pageToken=token)
    return topic, int(queue_id)
