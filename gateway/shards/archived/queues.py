"""Positions in queues: the archive has those before a queue's first message.

archive   0 |----------------------|
queue              min_offset |------------| max_offset
          units and positions from the archive, then from the queue
"""

from collections.abc import Sequence
from functools import partial

from gateway.ports.chain import Answering
from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    GET_UNITS,
    LIST_QUEUES,
    SEARCH_OFFSET,
    TAGS_CODE_UNKNOWN,
    BuildProgress,
    Built,
    is_at_front,
)
from gateway.ports.time_window import millis_in, set_millis
from gateway.queries.unbuilt_queues import ask_once_more
from gateway.shards.archived.records import ArchivedRecords
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.archive.lookups import Lookups
from store.errors import QueueNotFoundError, StoreCorruptedError, StoreError, TopicNotFoundError


class ArchivedQueues:
    """The queues of a shard and of its archive."""

    def __init__(self, records: ArchivedRecords, archive: Lookups) -> None:
        self._records = records
        self._archive = archive

    def list_queues(
        self, request: queue_pb.ListQueuesRequest, deadline: Deadline, below: Answering
    ) -> Sequence[queue_pb.Queue]:
        """LIST_QUEUES. Parts of the archive that cannot be read are left out; ARCHIVE_PROBLEM reports them."""
        ranges = {(queue.topic, queue.queue_id): queue for queue in below(LIST_QUEUES, request, deadline)}
        try:
            archived = self._archive.queues(request.topic or None)
        except StoreError:
            return list(ranges.values())
        for (name, queue_id), (first, end) in archived.items():
            live = ranges.setdefault(
                (name, queue_id), queue_pb.Queue(topic=name, queue_id=queue_id, min_offset=end, max_offset=end)
            )
            live.min_offset, live.max_offset = min(live.min_offset, first), max(live.max_offset, end)
        return [ranges[key] for key in sorted(ranges)]

    def get_units(
        self, request: queue_pb.GetQueueUnitsRequest, deadline: Deadline, below: Answering
    ) -> Built[queue_pb.GetQueueUnitsResponse]:
        """GET_UNITS."""
        live: Built[queue_pb.GetQueueUnitsResponse] | None = None
        unknown: StoreError | None = None
        topic, queue_id, queue_offset = request.topic, request.queue_id, request.queue_offset
        try:
            live = below(GET_UNITS, request, deadline)
        except (TopicNotFoundError, QueueNotFoundError) as error:
            unknown = error
        try:
            archived = self._archive.queues(topic).get((topic, queue_id))
        except StoreError as error:
            if live is None:
                raise
            if queue_offset < live.answer.min_offset:
                live.problem = error
            return live
        if archived is None:
            if live is None:
                assert unknown is not None
                raise unknown
            if queue_offset < live.answer.min_offset:
                live.problem = self._archive.problem() or self._records.hole(deadline, below)
            return live
        first, end = archived
        if live is None:
            # The queue may have messages in the log that are not built yet.
            asked = ask_once_more(below, partial(below, GET_UNITS, request, deadline), deadline)
            empty = queue_pb.GetQueueUnitsResponse(min_offset=end, max_offset=end)
            live = Built(empty, asked) if isinstance(asked, BuildProgress) else asked
        if queue_offset >= live.answer.min_offset:
            live.answer.min_offset = min(first, live.answer.min_offset)
            return live
        return self._joined(request, max(queue_offset, first), first, live, deadline, below)

    def _joined(
        self,
        request: queue_pb.GetQueueUnitsRequest,
        queue_offset: int,
        first: int,
        live: Built[queue_pb.GetQueueUnitsResponse],
        deadline: Deadline,
        below: Answering,
    ) -> Built[queue_pb.GetQueueUnitsResponse]:
        """Archived units up to the begin of the queue, then the queue's own."""
        topic, queue_id, count_max, begin = request.topic, request.queue_id, request.max_units, live.answer.min_offset
        hits = self._archive.units(topic, queue_id, queue_offset, count_max)
        units = [
            queue_pb.QueueUnit(
                queue_offset=number,
                commit_log_offset=commit_log_offset,
                record_size_bytes=size_bytes,
                tags_code=TAGS_CODE_UNKNOWN,
            )
            for number, commit_log_offset, size_bytes in hits.units
            if number < begin
        ]
        problem = hits.problem
        expected = queue_offset
        for unit in units:
            if unit.queue_offset > expected and problem is None:
                problem = _missing_messages(topic, queue_id, expected, unit.queue_offset)
            expected = unit.queue_offset + 1
        if len(units) < count_max:
            if expected < begin and problem is None:
                problem = _missing_messages(topic, queue_id, expected, begin)
            if begin < live.answer.max_offset:
                rest = queue_pb.GetQueueUnitsRequest(
                    topic=topic, queue_id=queue_id, queue_offset=begin, max_units=count_max - len(units)
                )
                live = below(GET_UNITS, rest, deadline)
                units += live.answer.units
        answer = queue_pb.GetQueueUnitsResponse(
            units=units, min_offset=min(first, live.answer.min_offset), max_offset=live.answer.max_offset
        )
        return Built(answer, live.progress, problem)

    def search_offset(
        self, request: queue_pb.SearchOffsetRequest, deadline: Deadline, below: Answering
    ) -> Built[queue_pb.SearchOffsetResponse]:
        """SEARCH_OFFSET; from the archive when the position lies before the begin of the queue."""
        live: Built[queue_pb.SearchOffsetResponse] | None = None
        unknown: StoreError | None = None
        topic, queue_id = request.topic, request.queue_id
        time_millis = millis_in(request, "time") or 0
        try:
            live = below(SEARCH_OFFSET, request, deadline)
        except (TopicNotFoundError, QueueNotFoundError) as error:
            unknown = error
        if live is not None and not live.answer.min_offset:
            return live
        at_front = live is None or is_at_front(live.answer, time_millis, request.boundary)
        try:
            archived = self._archive.queues(topic).get((topic, queue_id))
        except StoreError as error:
            if live is None:
                raise
            if at_front:
                live.problem = error
            return live
        if archived is None:
            if live is None:
                assert unknown is not None
                raise unknown
            if at_front:
                live.problem = self._archive.problem() or self._records.hole(deadline, below)
            return live
        first, end = archived
        if live is None:
            asked = ask_once_more(below, partial(below, SEARCH_OFFSET, request, deadline), deadline)
            empty = queue_pb.SearchOffsetResponse(queue_offset=end, min_offset=end, max_offset=end)
            live = Built(empty, asked) if isinstance(asked, BuildProgress) else asked
        if first < live.answer.min_offset:
            self._find_before(request, time_millis, first, live, deadline, below)
        return live

    def _find_before(
        self,
        request: queue_pb.SearchOffsetRequest,
        time_millis: int,
        first: int,
        live: Built[queue_pb.SearchOffsetResponse],
        deadline: Deadline,
        below: Answering,
    ) -> None:
        """Make the queue's answer that of queue and archive: an archived position may lie before, and the range is wider."""
        is_upper, answer = request.boundary == gateway_pb.BOUNDARY_UPPER, live.answer
        hits = self._archive.at_time(request.topic, request.queue_id, time_millis, is_upper=is_upper)
        found = answer.queue_offset
        if not is_upper and hits.queue_offset is not None:
            found = min(found, hits.queue_offset)  # also where times fall, and the queue has a later one that fits
        if is_at_front(answer, time_millis, request.boundary):
            if hits.queue_offset is not None:
                found = min(found, hits.queue_offset)
            elif is_upper:
                found = first
            live.problem = live.problem or hits.problem or self._records.hole(deadline, below)
        answer.queue_offset, answer.min_offset = found, first
        answer.ClearField("first_store_time")
        if hits.first_store_time_millis is not None:
            set_millis(answer.first_store_time, hits.first_store_time_millis)
        if not answer.HasField("last_store_time") and hits.last_store_time_millis is not None:
            set_millis(answer.last_store_time, hits.last_store_time_millis)


def _missing_messages(topic: str, queue_id: int, begin: int, end: int) -> StoreCorruptedError:
    return StoreCorruptedError(
        f"Messages {begin} to {end - 1} of queue {queue_id} of {topic!r} are neither in the log nor in the archive",
        topic=topic,
        queueId=queue_id,
        offset=begin,
        endOffset=end,
    )
