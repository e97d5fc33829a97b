"""Positions in queues: the archive has those before a queue's first message.

archive   0 |----------------------|
queue              min_offset |------------| max_offset
          units and positions from the archive, then from the queue
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gateway.ports.deadline import Deadline
from gateway.ports.shard import Boundary, BuildProgress, FoundOffset, QueueLocator, QueueRange, QueueStretch, Unit
from gateway.queries.unbuilt_queues import ask_once_more
from gateway.shards.archived.records import ArchivedRecords
from store.archive.lookups import Lookups
from store.errors import QueueNotFoundError, StoreCorruptedError, StoreError, TopicNotFoundError


class ArchivedQueues:
    """QueueLocator over queues and archive."""

    def __init__(self, queues: QueueLocator, records: ArchivedRecords[object], archive: Lookups) -> None:
        self._queues = queues
        self._records = records
        self._archive = archive

    def list_queues(self, topic: str | None, deadline: Deadline) -> Sequence[QueueRange]:
        """See the port. Parts of the archive that cannot be read are left out; `Shard.archive` reports them."""
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
            # The queue may have messages in the log that are not built yet.
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
        """Archived units up to the begin of the queue, then the queue's own."""
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
        """See the port; from the archive when the position lies before the begin of the queue."""
        live: FoundOffset | None = None
        unknown: StoreError | None = None
        try:
            live = self._queues.search_offset(topic, queue_id, time_millis, boundary, deadline)
        except (TopicNotFoundError, QueueNotFoundError) as error:
            unknown = error
        if live is not None and not live.min_offset:
            return live
        is_at_front = live is None or live.is_at_front(time_millis, boundary)
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
        """The position that the queue found, or an archived one before it, with the range of both."""
        hits = self._archive.at_time(topic, queue_id, time_millis, is_upper=boundary is Boundary.UPPER)
        found, problem = live.queue_offset, live.problem
        if boundary is Boundary.LOWER and hits.queue_offset is not None:
            found = min(found, hits.queue_offset)  # also where times fall, and the queue has a later one that fits
        if live.is_at_front(time_millis, boundary):
            if hits.queue_offset is not None:
                found = min(found, hits.queue_offset)
            elif boundary is Boundary.UPPER:
                found = first
            problem = problem or hits.problem or self._records.hole(deadline)
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


def _missing_messages(topic: str, queue_id: int, begin: int, end: int) -> StoreCorruptedError:
    return StoreCorruptedError(
        f"Messages {begin} to {end - 1} of queue {queue_id} of {topic!r} are neither in the log nor in the archive",
        topic=topic,
        queueId=queue_id,
        offset=begin,
        endOffset=end,
    )
