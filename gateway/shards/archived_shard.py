"""A shard with an archive: records that retention has dropped from the log are read from the archive.

Log and archive share one space of commit-log offsets, and every query goes down through it. So only these ports know of the
archive: they answer for both, and a page token with an offset is valid in both.

    archive   |-----------------------------------|          up to the last sealed log file
    log                           |--------------------|     from the first file that retention has left
              answered from the archive   answered from the log

Records that are still in the log are read from the log. A part of the archive that cannot be read is reported as a
`problem` beside the rest, which makes the answer PARTIAL. A query for one message that cannot be read raises that error.

Candidates by key are those of the index and those of the archive, merged, newest first. Positions in queues: the archive has
those before a queue's first message.

archive   0 |----------------------|
queue              min_offset |------------| max_offset
          units and positions from the archive, then from the queue
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gateway.ports.chain import Answering, Concern, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    ARCHIVE_PROBLEM,
    GET_RECORD,
    GET_RECORDS,
    GET_UNITS,
    LIST_QUEUES,
    SEARCH_KEY,
    SEARCH_OFFSET,
    STATUSES,
    TAGS_CODE_UNKNOWN,
    BuildProgress,
    Built,
    Shard,
    StatusRow,
    body_size_bytes,
    is_at_front,
    window_of,
)
from gateway.ports.time_window import millis_in, set_millis
from gateway.queries.by_queue_offset import ask_once_more
from gateway.queries.completeness import was_dropped
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1.message_pb2 import MESSAGE_SOURCE_ARCHIVE, StoredMessage
from store.archive.lookups import Lookups, missing_log
from store.errors import (
    OffsetOutOfRangeError,
    QueueNotFoundError,
    StoreCorruptedError,
    StoreError,
    TopicNotFoundError,
    UnsupportedStoreError,
)
from store.format.record import Record

# Converts a decoded record; with True as the second argument, without its body.
FoundOf = Callable[[Record, bool], StoredMessage]


class ArchivedRecords:
    """The records of log and archive."""

    def __init__(self, archive: Lookups, found_of: FoundOf) -> None:
        self._archive = archive
        self._found_of = found_of

    def get(self, request: log_pb.GetMessageRequest, deadline: Deadline, below: Answering) -> StoredMessage:
        """GET_RECORD."""
        commit_log_offset = request.commit_log_offset
        try:
            return below(GET_RECORD, request, deadline)
        except OffsetOutOfRangeError as error:
            if not was_dropped(error, commit_log_offset):
                raise
            return self._from_archive(commit_log_offset, error, omit_body=False)

    def get_many(
        self, request: log_pb.BatchGetMessagesRequest, deadline: Deadline, below: Answering
    ) -> Sequence[StoredMessage | StoreError]:
        """GET_RECORDS. The answer ends before a record of the log whose body exceeds the rest of the limit."""
        outcomes: list[StoredMessage | StoreError] = []
        omits_bodies, body_bytes_max = False, request.body_bytes_max
        for offset, live in zip(request.commit_log_offsets, below(GET_RECORDS, request, deadline), strict=False):
            outcome = live
            if isinstance(live, OffsetOutOfRangeError) and was_dropped(live, offset):
                if outcomes and deadline.is_near():
                    break
                try:
                    outcome = self._from_archive(offset, live, omit_body=False)
                except StoreError as error:
                    outcome = error
                else:
                    omits_bodies = omits_bodies or body_size_bytes(outcome) > body_bytes_max
                    if omits_bodies and body_size_bytes(outcome):
                        outcome = self._from_archive(offset, live, omit_body=True)
            if not isinstance(outcome, StoreError):
                body_bytes = len(outcome.body)
                # The log was asked with the whole limit; archived bodies have used a part of it since.
                if body_bytes and (omits_bodies or body_bytes > body_bytes_max):
                    break
                omits_bodies = omits_bodies or outcome.body_omitted
                body_bytes_max -= body_bytes
            outcomes.append(outcome)
        return outcomes

    def hole(self, deadline: Deadline, below: Answering) -> StoreError | None:
        """The error when the log has dropped records that are not archived; None otherwise."""
        end = self._archive.range()[1]
        request = log_pb.BatchGetMessagesRequest(commit_log_offsets=[end], body_bytes_max=1)
        answer = below(GET_RECORDS, request, deadline)[0]
        if not isinstance(answer, OffsetOutOfRangeError) or not was_dropped(answer, end):
            return None
        return missing_log(end, int(answer.metadata["firstOffset"]))

    def cause(
        self, unknown: StoreError | None, archive_error: StoreError, deadline: Deadline, below: Answering
    ) -> StoreError:
        """Why a queue that the shard does not know has no answer: as long as the log has dropped nothing, it has none."""
        request = log_pb.BatchGetMessagesRequest(commit_log_offsets=[0], body_bytes_max=1)
        (first,) = below(GET_RECORDS, request, deadline)
        if unknown is None or (isinstance(first, StoreError) and was_dropped(first, 0)):
            return archive_error
        return unknown

    def _from_archive(self, commit_log_offset: int, dropped: StoreError, *, omit_body: bool) -> StoredMessage:
        """The archived record; the error of the log when the archive does not have it."""
        try:
            record = self._archive.record(commit_log_offset)
        except OffsetOutOfRangeError:
            raise dropped from None
        found = self._found_of(record, omit_body)
        found.source = MESSAGE_SOURCE_ARCHIVE
        return found


def search_both(
    request: index_pb.SearchKeyRequest,
    deadline: Deadline,
    below: Answering,
    archive: Lookups,
    records: ArchivedRecords,
) -> Built[index_pb.SearchKeyResponse]:
    """SEARCH_KEY over index and archive."""
    found = below(SEARCH_KEY, request, deadline)
    live, window = found.answer, window_of(request)
    hits = archive.search(
        request.topic,
        request.key,
        below_offset=int(request.page_token) if request.page_token else None,
        begin_millis=window.begin_millis,
        end_millis=window.end_millis,
        count=request.page_size,
    )
    has_more = bool(live.next_page_token)
    # When a side has more candidates, candidates below its last one are left to the next call.
    lowest = max(
        [
            offsets[-1]
            for offsets, more in ((live.commit_log_offsets, has_more), (hits.commit_log_offsets, hits.more))
            if more and offsets
        ],
        default=0,
    )
    both = sorted({*live.commit_log_offsets, *hits.commit_log_offsets}, reverse=True)
    chosen = [offset for offset in both if offset >= lowest][: request.page_size]
    has_more = has_more or hits.more or len(chosen) < len(both)
    live.commit_log_offsets[:] = chosen
    live.next_page_token = str(chosen[-1]) if has_more and chosen else ""
    found.problem = found.problem or hits.problem or records.hole(deadline, below)
    if request.of_tags and found.problem is None:
        found.problem = UnsupportedStoreError("Archived messages are not found by their tags: search the topic.")
    return found


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
                if (cause := self._records.cause(unknown, error, deadline, below)) is error:
                    raise
                raise cause from error
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
                if (cause := self._records.cause(unknown, error, deadline, below)) is error:
                    raise
                raise cause from error
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


SERVICE = "archive"


def with_archive(shard: Shard, archive: Lookups, found_of: FoundOf, service: str = SERVICE) -> Shard:
    """The shard with its archive.

    Args:
        shard: the shard without an archive.
        archive: its archive.
        found_of: converts an archived record to the form that queries read.
        service: the name of its row in the status.
    """
    records = ArchivedRecords(archive, found_of)
    queues = ArchivedQueues(records, archive)
    joined: dict[ShardMethod[Any, Any], Callable[[Any, Deadline, Answering], Any]] = {
        GET_RECORD: records.get,
        GET_RECORDS: records.get_many,
        LIST_QUEUES: queues.list_queues,
        GET_UNITS: queues.get_units,
        SEARCH_OFFSET: queues.search_offset,
        SEARCH_KEY: partial(search_both, archive=archive, records=records),
        STATUSES: partial(_statuses, archive, service),
        ARCHIVE_PROBLEM: partial(_problem, archive, records),
    }

    def link(method: ShardMethod[Any, Any], request: Any, deadline: Deadline, below: Answering) -> Any:
        join = joined.get(method)
        return below(method, request, deadline) if join is None else join(request, deadline, below)

    # Below the archive nothing is missing that the log has dropped.
    return shard.serving(ARCHIVE_PROBLEM, lambda topic, deadline: None).with_link(Concern.ARCHIVE, link)


def _problem(
    archive: Lookups, records: ArchivedRecords, topic: str, deadline: Deadline, below: Answering
) -> StoreError | None:
    """ARCHIVE_PROBLEM: of manifests, of the indexes of segments, or because log and archive do not meet.

    Parquet files are not checked here; reading them reports their errors.
    """
    try:
        archive.queues(topic or None)
        return archive.problem() or records.hole(deadline, below)
    except StoreError as error:
        return error


def _statuses(
    archive: Lookups, service: str, request: None, deadline: Deadline, below: Answering
) -> Sequence[StatusRow]:
    """STATUSES, with a row for the archive."""
    status = gateway_pb.GetStatusResponse.ServiceStatus(service=service, address=str(archive.root), state="serving")
    try:
        status.log_first_offset, status.log_end_offset = archive.range()
        status.next_offset = status.log_end_offset
        problem = archive.problem()
        status.problem = problem.message if problem else ""
        row = StatusRow(status)
    except StoreError as error:
        row = StatusRow(status, error)
    return [*below(STATUSES, request, deadline), row]
