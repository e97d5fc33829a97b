"""ColdReader: the lookups of `store/archive/lookups.py` over the log files of a shard in an object store."""

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from threading import Lock

from store.archive.archive_reader import missing_log
from store.archive.hits import KeyHits, QueueHits, TimeHit
from store.archive.segment_reader import ArchivedUnit
from store.cold.cache import PageCache
from store.cold.manifest import ColdQueue, ColdSegment, decode_manifest
from store.cold.objects import CachedObjects, Objects, manifest_name
from store.cold.segment import SegmentLookups
from store.errors import (
    OffsetOutOfRangeError,
    ServiceUnavailableError,
    StoreError,
    UnsupportedStoreError,
)
from store.format.derived.index_layout import index_key, key_hash
from store.format.record import Record

# A log file that is shipped is seen after so long.
LOOK_SECONDS = 60.0
# While the store is away, a query is not held up by another attempt.
AWAY_SECONDS = 30.0
_MANIFEST_BYTES_MAX = 1 << 28


class ColdReader:
    """Reads the cold tier of one shard; thread-safe.

    Args:
        root: where it is, for answers and errors.
        broker_name: the shard.
        objects: the object store.
        cache: keeps what was read.
        clock: seconds, of a clock that only rises.
    """

    def __init__(
        self,
        root: str,
        broker_name: str,
        objects: Objects,
        cache: PageCache,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.root = root
        self.broker_name = broker_name
        self._objects = _Patient(objects, clock)
        self._cached = CachedObjects(self._objects, cache)
        self._clock = clock
        self._lock = Lock()
        self._stamp: str | None = None
        self._segments: list[SegmentLookups] | None = None
        self._look_at = 0.0

    def problem(self) -> StoreError | None:
        """Why it is not complete: it cannot be read, or log is missing between its files."""
        try:
            segments = self._load()
        except StoreError as error:
            return error
        for before, after in pairwise(lookups.segment for lookups in segments):
            if before.end_offset < after.first_offset:
                return missing_log(before.end_offset, after.first_offset)
        return None

    def range(self) -> tuple[int, int]:
        """First and end commit-log offset (bytes); (0, 0) without log files."""
        segments = self._load()
        return (segments[0].segment.first_offset, segments[-1].segment.end_offset) if segments else (0, 0)

    def record(self, commit_log_offset: int) -> Record:
        """See `Lookups`."""
        segments = self._load()
        for lookups in segments:
            if lookups.segment.first_offset <= commit_log_offset < lookups.segment.end_offset:
                return lookups.record(commit_log_offset)
        problem = self.problem()
        if problem is not None:
            raise problem
        first, end = self.range()
        raise OffsetOutOfRangeError(
            f"Commit-log offset {commit_log_offset} is not in the cold tier, which goes from {first} to {end}.",
            commitLogOffset=commit_log_offset,
            firstOffset=first,
            lastOffset=end,
        )

    def search(
        self,
        topic: str,
        key: str,
        *,
        below_offset: int | None = None,
        begin_millis: int | None = None,
        end_millis: int | None = None,
        count: int = 64,
    ) -> KeyHits:
        """See `Lookups`."""
        hash_ = key_hash(index_key(topic, key))
        found: list[int] = []
        problem = self.problem()
        try:
            segments = self._load()
        except StoreError:
            return KeyHits((), False, problem)
        for lookups in reversed(segments):
            if not _may_hold(lookups.segment, topic, below_offset, begin_millis, end_millis):
                continue
            try:
                for offset in lookups.offsets_of_key(hash_, below_offset):
                    if len(found) == count:
                        return KeyHits(tuple(found), True, problem)
                    found.append(offset)
            except StoreError as error:
                problem = problem or error
        return KeyHits(tuple(found), False, problem)

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> QueueHits:
        """See `Lookups`."""
        found: list[ArchivedUnit] = []
        problem = self.problem()
        try:
            for lookups, queue in self._queue(topic, queue_id):
                if len(found) >= count:
                    break
                found.extend(lookups.units(queue, queue_offset, count - len(found)))
        except StoreError as error:
            problem = problem or error
        return QueueHits(tuple(found), problem)

    def at_time(self, topic: str, queue_id: int, time_millis: int, *, is_upper: bool = False) -> TimeHit:
        """See `Lookups`."""
        found: int | None = None
        spans: list[tuple[int, int]] = []
        problem = self.problem()
        try:
            for lookups, queue in self._queue(topic, queue_id):
                spans.append((queue.begin_time_millis, queue.end_time_millis))
                # The least and the greatest of the file; those of the queue's first and last message need not be its own.
                least, greatest = lookups.segment.begin_time_millis, lookups.segment.end_time_millis
                if is_upper and greatest <= time_millis:
                    found = queue.last_queue_offset
                elif least <= time_millis if is_upper else found is None and greatest >= time_millis:
                    here = lookups.at_time(queue, time_millis, is_upper=is_upper)
                    found = found if here is None else here
        except StoreError as error:
            problem = problem or error
        return TimeHit(found, spans[0][0] if spans else None, spans[-1][1] if spans else None, problem)

    def queues(self, topic: str | None = None) -> dict[tuple[str, int], tuple[int, int]]:
        """See `Lookups`."""
        ranges: dict[tuple[str, int], tuple[int, int]] = {}
        for lookups in self._load():
            for queue in lookups.segment.queues:
                if topic in (None, queue.topic):
                    name, first, end = (
                        (queue.topic, queue.queue_id),
                        queue.first_queue_offset,
                        queue.last_queue_offset + 1,
                    )
                    known = ranges.get(name, (first, end))
                    ranges[name] = (min(known[0], first), max(known[1], end))
        return ranges

    def _queue(self, topic: str, queue_id: int) -> Iterator[tuple[SegmentLookups, ColdQueue]]:
        for lookups in self._load():
            for queue in lookups.segment.queues:
                if (queue.topic, queue.queue_id) == (topic, queue_id):
                    yield lookups, queue

    def _load(self) -> list[SegmentLookups]:
        """The log files as the manifest has them; looked at again after a while. What is known stays when the store is away."""
        known = self._segments
        if known is not None and self._clock() < self._look_at:
            return known
        # Whoever looks may be held up by the store; others go on with what is known.
        if not self._lock.acquire(blocking=known is None):
            assert known is not None
            return known
        try:
            return self._look()
        finally:
            self._lock.release()

    def _look(self) -> list[SegmentLookups]:
        """The log files as the manifest has them now, unless somebody has looked meanwhile."""
        if self._segments is None or self._clock() >= self._look_at:
            name = manifest_name(self.broker_name)
            try:
                stamp = self._objects.stamp(name)
                if stamp is None:
                    raise UnsupportedStoreError(
                        f"{self.root} has no {name}: run `reput pipeline ship-cold` for this shard, or name another place",
                        directory=self.root,
                    )
                if stamp != self._stamp or self._segments is None:
                    data = self._objects.read_at(name, 0, _MANIFEST_BYTES_MAX)
                    known = {lookups.segment: lookups for lookups in self._segments or ()}
                    self._segments = [
                        known.get(segment) or SegmentLookups(self._cached, self.broker_name, segment)
                        for segment in decode_manifest(data, name)
                    ]
                    self._stamp = stamp
            except ServiceUnavailableError:
                if self._segments is None:
                    raise
            self._look_at = self._clock() + LOOK_SECONDS
        return self._segments


class _Patient:
    """Objects: after a failure, no request for a while."""

    def __init__(self, objects: Objects, clock: Callable[[], float]) -> None:
        self._objects = objects
        self._clock = clock
        self._failure: StoreError | None = None
        self._again_at = 0.0

    def stamp(self, name: str) -> str | None:
        """See the port."""
        self._refuse_while_away()
        try:
            return self._objects.stamp(name)
        except ServiceUnavailableError as error:
            self._failed(error)
            raise

    def read_at(self, name: str, position: int, size_bytes: int) -> bytes:
        """See the port."""
        self._refuse_while_away()
        try:
            return self._objects.read_at(name, position, size_bytes)
        except ServiceUnavailableError as error:
            self._failed(error)
            raise

    def _refuse_while_away(self) -> None:
        failure = self._failure
        if failure is not None and self._clock() < self._again_at:
            raise ServiceUnavailableError(failure.message, **failure.metadata)

    def _failed(self, error: ServiceUnavailableError) -> None:
        self._failure = error
        self._again_at = self._clock() + AWAY_SECONDS


def _may_hold(
    segment: ColdSegment, topic: str, below_offset: int | None, begin_millis: int | None, end_millis: int | None
) -> bool:
    """Whether a record that is asked for may lie there."""
    if below_offset is not None and segment.first_offset >= below_offset:
        return False
    if begin_millis is not None and segment.end_time_millis < begin_millis:
        return False
    if end_millis is not None and segment.begin_time_millis > end_millis:
        return False
    return topic in segment.topics
