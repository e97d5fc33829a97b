"""A shard with an archive: where its log ends at the front, answers go on in what was archived.

Log and archive have one space of commit-log offsets, and every query works its way down it. So nothing else of the gateway
knows of an archive: these ports answer for both, and a page token that carries an offset goes on from one into the other.

    archive   |-----------------------------------|          up to the last log file that is sealed
    log                           |--------------------|     from what retention has left on
              answered from the archive   answered from the log

What the log still has is answered from the log. What of the archive cannot be had is told as a `problem` beside the rest,
which makes the answer PARTIAL; a single message that cannot be had is that error.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from gateway.deadline import Deadline
from gateway.dropped import was_dropped
from gateway.ports import (
    Boundary,
    BuildProgress,
    Candidates,
    FoundOffset,
    FoundRecord,
    KeyLocator,
    QueueLocator,
    QueueRange,
    QueueStretch,
    RecordReader,
    ServiceStatus,
    Shard,
    StatusReader,
    Unit,
)
from gateway.time_window import TimeWindow
from gateway.unbuilt_queues import ask_once_more
from store.archive.archive_reader import ArchiveReader, missing_log
from store.errors import OffsetOutOfRangeError, QueueNotFoundError, StoreCorruptedError, StoreError, TopicNotFoundError
from store.format.record import Record

SERVICE = "archive"
# Makes what queries look at of a record; the second argument leaves its body out.
FoundOf = Callable[[Record, bool], FoundRecord]


def with_archive(shard: Shard, archive: ArchiveReader, found_of: FoundOf) -> Shard:
    """The shard, answering also from its archive.

    Args:
        shard: the shard as it is without.
        archive: its archive.
        found_of: makes what queries look at of an archived record.
    """
    records = ArchivedRecords(shard.records, archive, found_of)
    return replace(
        shard,
        records=records,
        queues=ArchivedQueues(shard.queues, records, archive),
        keys=ArchivedKeys(shard.keys, records, archive),
        services=ArchivedServices(shard.services, archive),
        archive=ArchiveProblems(archive, records),
    )


class ArchivedRecords:
    """RecordReader over log and archive."""

    def __init__(self, log: RecordReader, archive: ArchiveReader, found_of: FoundOf) -> None:
        self._log = log
        self._archive = archive
        self._found_of = found_of

    def get(self, commit_log_offset: int, deadline: Deadline) -> FoundRecord:
        """See the port."""
        try:
            return self._log.get(commit_log_offset, deadline)
        except OffsetOutOfRangeError as error:
            if not was_dropped(error, commit_log_offset):
                raise
            return self._from_archive(commit_log_offset, error, omit_body=False)

    def get_many(
        self, commit_log_offsets: Sequence[int], body_bytes_max: int, deadline: Deadline
    ) -> Sequence[FoundRecord | StoreError]:
        """See the port."""
        outcomes: list[FoundRecord | StoreError] = []
        omits_bodies = False
        for offset, live in zip(
            commit_log_offsets, self._log.get_many(commit_log_offsets, body_bytes_max, deadline), strict=False
        ):
            outcome = live
            if isinstance(live, OffsetOutOfRangeError) and was_dropped(live, offset):
                if outcomes and deadline.is_near():
                    break
                try:
                    outcome = self._from_archive(offset, live, omit_body=False)
                except StoreError as error:
                    outcome = error
                else:
                    omits_bodies = omits_bodies or outcome.body_size_bytes > body_bytes_max
                    if omits_bodies and outcome.body_size_bytes:
                        outcome = self._from_archive(offset, live, omit_body=True)
            if isinstance(outcome, FoundRecord):
                omits_bodies = omits_bodies or outcome.body_omitted
                body_bytes_max -= 0 if outcome.body_omitted else outcome.body_size_bytes
            outcomes.append(outcome)
        return outcomes

    def hole(self, deadline: Deadline) -> StoreError | None:
        """What says that the log has dropped more than was archived; None when the two meet."""
        end = self._archive.range()[1]
        answer = self._log.get_many([end], 1, deadline)[0]
        if not isinstance(answer, OffsetOutOfRangeError) or not was_dropped(answer, end):
            return None
        return missing_log(end, int(answer.metadata["firstOffset"]))

    def _from_archive(self, commit_log_offset: int, dropped: StoreError, *, omit_body: bool) -> FoundRecord:
        """The archived record; what the log said when the archive has never had it."""
        try:
            record = self._archive.record(commit_log_offset)
        except OffsetOutOfRangeError:
            raise dropped from None
        return replace(self._found_of(record, omit_body), is_archived=True)


class ArchiveProblems:
    """Archive: manifests, the indexes of segments, and whether log and archive meet."""

    def __init__(self, archive: ArchiveReader, records: ArchivedRecords) -> None:
        self._archive = archive
        self._records = records

    def problem(self, topic: str | None, deadline: Deadline) -> StoreError | None:
        """See the port. Parquet files are not looked at: who reads them tells."""
        try:
            self._archive.queues(topic)
            return self._archive.problem() or self._records.hole(deadline)
        except StoreError as error:
            return error


class ArchivedKeys:
    """KeyLocator over index and archive."""

    def __init__(self, index: KeyLocator, records: ArchivedRecords, archive: ArchiveReader) -> None:
        self._index = index
        self._records = records
        self._archive = archive

    def search(
        self,
        topic: str,
        key: str,
        window: TimeWindow,
        *,
        below_offset: int | None,
        count_max: int,
        deadline: Deadline,
        explain: bool = False,
    ) -> Candidates:
        """See the port."""
        live = self._index.search(
            topic,
            key,
            window,
            below_offset=below_offset,
            count_max=count_max,
            deadline=deadline,
            explain=explain,
        )
        hits = self._archive.search(
            topic,
            key,
            below_offset=below_offset,
            begin_millis=window.begin_millis,
            end_millis=window.end_millis,
            count=count_max,
        )
        # Below the last of a side that has more, that side would still have to be asked.
        lowest = max(
            [
                offsets[-1]
                for offsets, more in (
                    (live.commit_log_offsets, live.more),
                    (hits.commit_log_offsets, hits.more),
                )
                if more and offsets
            ],
            default=0,
        )
        both = sorted({*live.commit_log_offsets, *hits.commit_log_offsets}, reverse=True)
        chosen = tuple(offset for offset in both if offset >= lowest)[:count_max]
        more = live.more or hits.more or len(chosen) < len(both)
        problem = live.problem or hits.problem or self._records.hole(deadline)
        return replace(live, commit_log_offsets=chosen, more=more, problem=problem)

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """See the port; what is archived was built before."""
        return self._index.progress(past_offset, wait_seconds, deadline)


class ArchivedQueues:
    """QueueLocator over queues and archive."""

    def __init__(self, queues: QueueLocator, records: ArchivedRecords, archive: ArchiveReader) -> None:
        self._queues = queues
        self._records = records
        self._archive = archive

    def list_queues(self, topic: str | None, deadline: Deadline) -> Sequence[QueueRange]:
        """See the port. What of the archive cannot be read is left out: `Shard.archive` tells."""
        ranges = {(queue.topic, queue.queue_id): queue for queue in self._queues.list_queues(topic, deadline)}
        try:
            archived = self._archive.queues(topic)
        except StoreError:
            return list(ranges.values())
        for (name, queue_id), (first, end) in archived.items():
            live = ranges.get((name, queue_id), QueueRange(name, queue_id, end, end))
            ranges[name, queue_id] = replace(
                live, min_offset=min(live.min_offset, first), max_offset=max(live.max_offset, end)
            )
        return [ranges[key] for key in sorted(ranges)]

    def units(
        self, topic: str, queue_id: int, queue_offset: int, unit_count_max: int, deadline: Deadline
    ) -> QueueStretch:
        """See the port."""
        live: QueueStretch | None = None
        unknown: StoreError | None = None
        try:
            live = self._queues.units(topic, queue_id, queue_offset, unit_count_max, deadline)
        except (TopicNotFoundError, QueueNotFoundError) as error:
            unknown = error
        try:
            archived = self._archive.queues(topic).get((topic, queue_id))
        except StoreError as error:
            if live is None:
                raise
            return replace(live, problem=error) if queue_offset < live.min_offset else live
        if archived is None:
            if live is None:
                assert unknown is not None
                raise unknown
            if queue_offset >= live.min_offset:
                return live
            return replace(live, problem=self._archive.problem() or self._records.hole(deadline))
        first, end = archived
        if live is None:
            # Its messages in the log are not built yet, perhaps.
            again = partial(self._queues.units, topic, queue_id, queue_offset, unit_count_max, deadline)
            asked = ask_once_more(self._queues, again, deadline)
            live = QueueStretch((), end, end, asked) if isinstance(asked, BuildProgress) else asked
        if queue_offset >= live.min_offset:
            return replace(live, min_offset=min(first, live.min_offset))
        return self._joined(topic, queue_id, max(queue_offset, first), unit_count_max, first, live, deadline)

    def _joined(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        unit_count_max: int,
        first: int,
        live: QueueStretch,
        deadline: Deadline,
    ) -> QueueStretch:
        """Archived units up to where the queue begins, then the queue's."""
        hits = self._archive.units(topic, queue_id, queue_offset, unit_count_max)
        units = [Unit(*unit) for unit in hits.units if unit.queue_offset < live.min_offset]
        problem = hits.problem
        expected = queue_offset
        for unit in units:
            if unit.queue_offset > expected and problem is None:
                problem = _missing_messages(topic, queue_id, expected, unit.queue_offset)
            expected = unit.queue_offset + 1
        if len(units) < unit_count_max:
            if expected < live.min_offset and problem is None:
                problem = _missing_messages(topic, queue_id, expected, live.min_offset)
            if live.min_offset < live.max_offset:
                count = unit_count_max - len(units)
                live = self._queues.units(topic, queue_id, live.min_offset, count, deadline)
                units += live.units
        return QueueStretch(tuple(units), min(first, live.min_offset), live.max_offset, live.progress, problem)

    def search_offset(
        self, topic: str, queue_id: int, time_millis: int, boundary: Boundary, deadline: Deadline
    ) -> FoundOffset:
        """See the port; from the archive when the position lies before what the queue has."""
        live: FoundOffset | None = None
        unknown: StoreError | None = None
        try:
            live = self._queues.search_offset(topic, queue_id, time_millis, boundary, deadline)
        except (TopicNotFoundError, QueueNotFoundError) as error:
            unknown = error
        if live is not None and not live.min_offset:
            return live
        is_at_front = live is None or _is_at_front(live, time_millis, boundary)
        try:
            archived = self._archive.queues(topic).get((topic, queue_id))
        except StoreError as error:
            if live is None:
                raise
            return replace(live, problem=error) if is_at_front else live
        if archived is None:
            if live is None:
                assert unknown is not None
                raise unknown
            problem = self._archive.problem() or self._records.hole(deadline)
            return replace(live, problem=problem) if is_at_front else live
        first, end = archived
        if live is None:
            again = partial(self._queues.search_offset, topic, queue_id, time_millis, boundary, deadline)
            asked = ask_once_more(self._queues, again, deadline)
            live = FoundOffset(end, end, end, asked) if isinstance(asked, BuildProgress) else asked
        if first >= live.min_offset:
            return live
        return self._at_time(topic, queue_id, time_millis, boundary, first, live, deadline)

    def _at_time(
        self,
        topic: str,
        queue_id: int,
        time_millis: int,
        boundary: Boundary,
        first: int,
        live: FoundOffset,
        deadline: Deadline,
    ) -> FoundOffset:
        """What the log found, or the archived position before it, in the range of both."""
        hits = self._archive.at_time(topic, queue_id, time_millis, is_upper=boundary is Boundary.UPPER)
        found, problem = live.queue_offset, None
        if _is_at_front(live, time_millis, boundary):
            if hits.queue_offset is not None:
                found = min(found, hits.queue_offset)
            elif boundary is Boundary.UPPER:
                found = first
            problem = hits.problem or self._records.hole(deadline)
        last_millis = live.last_store_time_millis
        return replace(
            live,
            queue_offset=found,
            min_offset=first,
            first_store_time_millis=hits.first_store_time_millis,
            last_store_time_millis=hits.last_store_time_millis if last_millis is None else last_millis,
            problem=problem,
        )

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """See the port; what is archived was built before."""
        return self._queues.progress(past_offset, wait_seconds, deadline)


class ArchivedServices:
    """StatusReader with a row for the archive."""

    def __init__(self, services: StatusReader, archive: ArchiveReader) -> None:
        self._services = services
        self._archive = archive

    def statuses(self, deadline: Deadline) -> Sequence[ServiceStatus]:
        """See the port."""
        row = ServiceStatus(SERVICE, str(self._archive.root), state="serving")
        try:
            first, end = self._archive.range()
            problem = self._archive.problem()
            row = replace(
                row,
                log_first_offset=first,
                log_end_offset=end,
                next_offset=end,
                problem=problem.message if problem else "",
            )
        except StoreError as error:
            row = replace(row, error=error)
        return [*self._services.statuses(deadline), row]


def _is_at_front(found: FoundOffset, time_millis: int, boundary: Boundary) -> bool:
    """Whether what a queue found leaves open that a message before its first one is the one."""
    if found.queue_offset > found.min_offset:
        return False
    first_millis = found.first_store_time_millis
    return boundary is Boundary.LOWER or first_millis is None or first_millis > time_millis


def _missing_messages(topic: str, queue_id: int, begin: int, end: int) -> StoreCorruptedError:
    return StoreCorruptedError(
        f"Messages {begin} to {end - 1} of queue {queue_id} of {topic!r} are neither in the log nor in the archive",
        topic=topic,
        queueId=queue_id,
        offset=begin,
        endOffset=end,
    )
