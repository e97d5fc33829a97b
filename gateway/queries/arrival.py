"""Shards as one query sees them: an answer lacks what the log had when the query arrived, or it is complete.

    log       |=====================|======|        the builders follow it some 15 ms behind
    builder   |==================|                  an answer from here may lack what was just acknowledged
                                    └ end at arrival: built up to there, the answer is complete, whatever is appended since

A builder itself knows an older end of the log. So the progress in each answer gets the end at arrival before a query judges
it. The end is known without a call where the log's files show that nothing lies behind what the builder had in an earlier
answer. Otherwise the commitlog is asked, beside the query's own calls.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from enum import Enum
from functools import partial

from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    Boundary,
    BuildProgress,
    Candidates,
    FoundOffset,
    KeyLocator,
    Message,
    QueueLocator,
    QueueRange,
    QueueStretch,
)
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from store.errors import ServiceUnavailableError, StoreError


class Part(Enum):
    """The derived files that a query reads; the value is the service that builds them."""

    INDEX = "index"
    QUEUES = "consumequeue"


# Gets a builder's own progress from each answer.
Note = Callable[[BuildProgress], None]


class EndAtArrival:
    """The end of one shard's log when a query arrived.

    Args:
        broker_name: the shard's name.
        known_offset: the end (bytes); None: it is asked for.
        asked: the call that asks for it; None as its result while the log is being recovered.
        deadline: of that call.

    Attributes:
        error: why the end is not known; None when it is, or while the log is being recovered.
    """

    def __init__(
        self,
        broker_name: str,
        known_offset: int | None = None,
        asked: "Future[int | None] | None" = None,
        deadline: Deadline | None = None,
    ) -> None:
        self.error: StoreError | None = None
        self._broker_name = broker_name
        self._offset = known_offset
        self._asked = asked
        self._deadline = deadline

    def offset_until(self, seconds: float) -> int | None:
        """The end (bytes); waits so many seconds at most for the call that asks for it. None: not known, or not yet."""
        if self._asked is not None:
            wait((self._asked,), max(0.0, seconds))
            if not self._asked.done():
                return None
        return self.offset()

    def offset(self) -> int | None:
        """The end (bytes); waits for the call that asks for it. None: only the builder's word is left."""
        asked, deadline = self._asked, self._deadline
        if asked is not None and deadline is not None:
            try:
                self._offset = asked.result(max(0.0, deadline.at_seconds - deadline.clock()))
            except StoreError as error:
                self.error = error
            except TimeoutError:
                self.error = ServiceUnavailableError(
                    f"The commitlog of shard {self._broker_name} did not say how far its log is: the newest messages may be "
                    "missing. Ask again; reput status shows the service.",
                    service="commitlog",
                    brokerName=self._broker_name,
                )
            self._asked = None
        return self._offset

    def seen_in(self, progress: BuildProgress) -> BuildProgress:
        """The progress with this end; unchanged where the end is not known or does not matter."""
        if progress.is_final:
            return progress
        offset = self.offset()
        if offset is None:
            return progress
        # A builder may be beyond it: records that were appended since.
        offset = max(offset, progress.next_offset)
        return progress if offset == progress.log_end_offset else replace(progress, log_end_offset=offset)


def at_arrival(
    shards: Shards[Message],
    ends: Mapping[str, EndAtArrival],
    note: Callable[[str, Part, BuildProgress], None],
) -> Shards[Message]:
    """The shards for one query.

    Args:
        shards: all of them.
        ends: of their logs, by name; a shard without one stays as it is.
        note: gets the progress in each answer, with the shard's name and the part.
    """
    if not ends:
        return shards
    seen = []
    for shard in shards:
        name = shard.broker_name
        end = ends.get(name)
        if end is None:
            seen.append(shard)
            continue
        keys = KeysAtArrival(shard.keys, end, partial(note, name, Part.INDEX))
        queues = QueuesAtArrival(shard.queues, end, partial(note, name, Part.QUEUES))
        seen.append(replace(shard, keys=keys, queues=queues))
    return Shards(seen, shards.fan_out)


class KeysAtArrival:
    """A KeyLocator."""

    def __init__(self, keys: KeyLocator, end: EndAtArrival, note: Note) -> None:
        self._keys = keys
        self._end = end
        self._note = note

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
        found = self._keys.search(
            topic, key, window, below_offset=below_offset, count_max=count_max, deadline=deadline, explain=explain
        )
        progress = _seen(found.progress, self._end, self._note)
        return found if progress is found.progress else replace(found, progress=progress)

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """See the port."""
        return _seen(self._keys.progress(past_offset, wait_seconds, deadline), self._end, self._note)


class QueuesAtArrival:
    """A QueueLocator."""

    def __init__(self, queues: QueueLocator, end: EndAtArrival, note: Note) -> None:
        self._queues = queues
        self._end = end
        self._note = note

    def list_queues(self, topic: str | None, deadline: Deadline) -> Sequence[QueueRange]:
        """See the port."""
        return self._queues.list_queues(topic, deadline)

    def units(
        self, topic: str, queue_id: int, queue_offset: int, unit_count_max: int, deadline: Deadline
    ) -> QueueStretch:
        """See the port."""
        stretch = self._queues.units(topic, queue_id, queue_offset, unit_count_max, deadline)
        progress = _seen(stretch.progress, self._end, self._note)
        return stretch if progress is stretch.progress else replace(stretch, progress=progress)

    def search_offset(
        self, topic: str, queue_id: int, time_millis: int, boundary: Boundary, deadline: Deadline
    ) -> FoundOffset:
        """See the port."""
        found = self._queues.search_offset(topic, queue_id, time_millis, boundary, deadline)
        progress = found.progress
        return found if progress is None else replace(found, progress=_seen(progress, self._end, self._note))

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """See the port."""
        return _seen(self._queues.progress(past_offset, wait_seconds, deadline), self._end, self._note)


def _seen(progress: BuildProgress, end: EndAtArrival, note: Note) -> BuildProgress:
    if not progress.is_final:
        note(progress)
    return end.seen_in(progress)
