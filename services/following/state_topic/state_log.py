"""StateLog: the state topic of a service as its commitlog and consumequeue services have it, and the begin of a life.

A life begins with an epoch, larger than that of each life before. The commit log is told, and refuses what an earlier life may
still append. Then the state is read, up to the end of the log.

load_state: reads a state from the log: the newest whole full state, and every change behind it (`state_writer.py`).

The units of the state topic's queue say by their tags code what each record is, so only the records that are needed are read.

A full state of an earlier release lacks what that release does not know. Behind a downgrade and an upgrade it may be the newest
one, while the log still has the changes that it lacks: then it is passed over (`StateTopic.level`).

    ─[full state of this release]─c─c─[older one]─c─c─[one without an end─c─c─▶
      all of it is read            c c              c c                   c c
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

import structlog

from reput.commitlog.v1.commitlog_service_pb2 import GetStatusRequest, GetStatusResponse, InternalRecord
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.message.v1.message_pb2 import FLUSH_MODE_ASYNC, AppendResult, FlushMode
from services.calling.commitlog import CommitLogClient
from services.convert import timestamp_to_millis
from services.following.state_topic.state_writer import (
    CHANGE,
    FULL,
    FULL_BEGIN,
    FULL_END,
    REQUEST_BYTES_MAX,
    STATE_QUEUE,
    State,
    StateTopic,
)
from services.reading.queue_reader import CALL_SECONDS
from services.rpcs import Calls, commitlog, consumequeue
from store.errors import (
    FollowerFencedError,
    QueueNotFoundError,
    ServiceUnavailableError,
    StoreError,
    TopicNotFoundError,
)
from store.format.derived.queue_ext import is_ext_address
from store.format.derived.queue_unit import QueueUnit
from store.format.java_text import java_string_hash

PAGE_UNIT_COUNT = 1_000
KIND_BY_TAGS_CODE = {java_string_hash(kind): kind for kind in (CHANGE, FULL_BEGIN, FULL, FULL_END)}

# Units of the state topic from a position on, at most so many; empty at the end.
ReadUnits = Callable[[int, int], Sequence[QueueUnit]]
# The bodies of the records of units.
ReadBodies = Callable[[Sequence[QueueUnit]], Sequence[bytes]]
# The units of a range of positions.
ReadRange = Callable[[int, int], Sequence[QueueUnit]]

_log = structlog.get_logger("reput.following")


@dataclass(slots=True)
class LoadedState(Generic[State]):
    """The state as the log has it.

    Attributes:
        states: the state.
        epoch: of the newest life; 0 when there was none.
        first_offset: the first record that the state needs (bytes): the begin of the full state that counts, or the first of
            all; -1 for none.
        change_count: changes behind it.
        is_older: the newest whole full state is of an earlier release, or the log's first record if there is none: write one.
        lacks_newer: that full state counts: the log has nothing better.
    """

    states: State
    epoch: int = 0
    first_offset: int = -1
    change_count: int = 0
    is_older: bool = False
    lacks_newer: bool = False


def load_state(
    topic: StateTopic[State], min_offset: int, max_offset: int, read_units: ReadUnits, read_bodies: ReadBodies
) -> LoadedState[State]:
    """The state.

    Args:
        topic: where it is.
        min_offset: first position of the state topic's queue.
        max_offset: its end.
        read_units: reads units.
        read_bodies: reads bodies.

    Raises:
        StoreCorruptedError: a record is none of this topic.
        StoreError: the log or the queue cannot be read.
    """
    read = partial(_read_page, topic, read_units)
    start, older = _find_start(topic, min_offset, max_offset, read, read_bodies)
    is_older = older is not None or not start.is_own
    loaded = LoadedState(topic.new_state(), is_older=is_older, lacks_newer=start is older)
    if older is not None and start is not older:
        _log.info("state.older_passed_over", topic=topic.name, records=max_offset - start.begin)
    for begin in range(start.begin, max_offset, PAGE_UNIT_COUNT):
        units = read(begin, min(begin + PAGE_UNIT_COUNT, max_offset))
        if begin == start.begin:
            loaded.first_offset = units[0].commit_log_offset
        kinds = [_kind_of(topic, unit) for unit in units]
        page = [
            (unit, kind, at <= start.full_end)
            for at, (unit, kind) in enumerate(zip(units, kinds, strict=True), begin)
            if at <= start.full_end or start.is_cut or kind == CHANGE
        ]
        bodies = read_bodies([unit for unit, _, _ in page])
        for (unit, kind, is_whole), body in zip(page, bodies, strict=True):
            record = topic.record_of(unit.commit_log_offset, body)
            loaded.epoch = max(loaded.epoch, record.epoch)
            # What an earlier release did not finish lacks what the changes before it said.
            if is_whole or kind != FULL or topic.level_of(record) >= topic.level:
                loaded.change_count += topic.apply(loaded.states, kind, record)
    return loaded


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a state is read from, as positions of the state topic's queue.

    Attributes:
        begin: the first record.
        full_end: the end of the full state that counts; -1 for none. What is behind it counts by its changes.
        is_own: that full state, or without one the first record, is of this release.
        is_cut: retention removed changes, and the log has no whole full state: all that is left counts.
    """

    begin: int
    full_end: int = -1
    is_own: bool = True
    is_cut: bool = False


def _find_start(
    topic: StateTopic[Any], min_offset: int, max_offset: int, read: ReadRange, read_bodies: ReadBodies
) -> tuple[_Start, _Start | None]:
    """Where the state is read from, and the newest whole full state if that is of an earlier release.

    It is the newest whole full state of this release, without one the newest of an earlier release, or else all records. A life
    of this release that finds another one's state writes its full state at once. So where the log has none of this release, it
    never had one, or retention removed it, or this release wrote the first record: then every change counts.

    The units are looked through to the log's first one if need be, once for each upgrade; none of them is kept.
    """

    def is_own(unit: QueueUnit) -> bool:
        if topic.level == 0:
            return True
        (body,) = read_bodies([unit])
        return topic.level_of(topic.record_of(unit.commit_log_offset, body)) >= topic.level

    older: _Start | None = None
    full_end: tuple[int, QueueUnit] | None = None
    for end in range(max_offset, min_offset, -PAGE_UNIT_COUNT):
        begin = max(min_offset, end - PAGE_UNIT_COUNT)
        for at, unit in zip(range(end - 1, begin - 1, -1), reversed(read(begin, end)), strict=True):
            kind = _kind_of(topic, unit)
            if kind == FULL_END:
                full_end = at, unit
            elif kind == FULL_BEGIN and full_end is not None:
                if is_own(full_end[1]):
                    return _Start(at, full_end[0]), older
                older = older or _Start(at, full_end[0], is_own=False)
                full_end = None  # nothing is written between the records of a full state
    if min_offset > 0:
        cut = _Start(min_offset, full_end[0] if full_end else -1, is_own=False, is_cut=True)
        return older or cut, older
    began_own = max_offset == 0 or is_own(read(0, 1)[0])
    return (older if older and not began_own else _Start(0, is_own=began_own)), older


def _read_page(topic: StateTopic[Any], read_units: ReadUnits, begin: int, end: int) -> list[QueueUnit]:
    """The units of a range of positions."""
    page: list[QueueUnit] = []
    while begin + len(page) < end:
        found = read_units(begin + len(page), end - begin - len(page))
        if not found:
            raise ServiceUnavailableError(
                f"topic {topic.name} has no unit at {begin + len(page)}, but ends behind {end - 1}: retention removed it "
                "meanwhile, or the queue is being built again"
            )
        page += found
    return page


def _kind_of(topic: StateTopic[Any], unit: QueueUnit) -> str:
    if is_ext_address(unit.tags_code):
        raise ServiceUnavailableError(
            f"topic {topic.name}: the tags code of the record at {unit.commit_log_offset} is not to be found in "
            "consumequeue_ext: the queue is being built again"
        )
    return KIND_BY_TAGS_CODE.get(unit.tags_code, CHANGE)


# The queues must hold the life's first record before the state is read.
QUEUES_SECONDS_MAX = 60.0
QUEUES_WAIT_MILLIS = 1_000
# No record ends a wait on an empty log: look often, until its queues are open.
EMPTY_WAIT_MILLIS = 50
# A request is this part of a log file at most. A moved record may be nearly twice as large as its source, when that is small.
FILE_PARTS = 3


class StateLog(Generic[State]):
    """See the top of this file.

    Args:
        topic: where the state is.
        log: the client for records and appends.
        queues: calls the consumequeue service.
    """

    def __init__(self, topic: StateTopic[State], log: CommitLogClient, queues: Calls) -> None:
        self._topic = topic
        self._log = log
        self._queues = queues

    def begin_life(self, end_offset: int) -> int:
        """The epoch of this life, which the commit log knows from now on.

        It is larger than that of the newest record. A life may have written none, so the time counts, too.

        Args:
            end_offset: end of the log as last seen (bytes).
        """
        epoch = max(self._newest_epoch(end_offset) + 1, time.time_ns() // 1_000_000)
        try:
            self.append(epoch, (), FLUSH_MODE_ASYNC)
        except FollowerFencedError as error:
            # The clock was set back since the life before.
            epoch = int(error.metadata["currentEpoch"]) + 1
            self.append(epoch, (), FLUSH_MODE_ASYNC)
        return epoch

    def append(self, epoch: int, records: Sequence[InternalRecord], flush: FlushMode) -> Sequence[AppendResult]:
        """Append records atomically, as the life with this epoch. Errors as CommitLogClient.append_internal."""
        return self._log.append_internal(
            records, flush=flush, follower=self._topic.follower, follower_epoch=epoch, timeout_seconds=CALL_SECONDS
        )

    def end_offset(self) -> int:
        """End of the log (bytes)."""
        return self._status().log_end_offset

    def request_bytes_max(self) -> int:
        """The most bytes of records in one request: it fits into one log file, with what the log adds."""
        file_size_bytes = self._status().file_size_bytes
        return min(REQUEST_BYTES_MAX, file_size_bytes // FILE_PARTS) if file_size_bytes else REQUEST_BYTES_MAX

    def newest_store_millis(self) -> int:
        """When the newest record was stored (ms since 1970); 0 for an empty log."""
        status = self._status()
        return (
            timestamp_to_millis(status.last_store_time, "last_store_time") if status.HasField("last_store_time") else 0
        )

    def load(self, past_offset: int) -> LoadedState[State]:
        """The state as the log has it before an offset (bytes)."""
        begin, end = self._state_range(past_offset)
        return load_state(self._topic, begin, end, self._read_units, self._read_bodies)

    def _newest_epoch(self, end_offset: int) -> int:
        """The epoch of the newest state record before an offset (bytes); 0 when there is none."""
        begin, end = self._state_range(end_offset)
        if begin == end:
            return 0
        units = self._read_units(end - 1, 1)
        if not units:
            raise ServiceUnavailableError(
                f"topic {self._topic.name} has no unit at {end - 1}: its queue is being built again"
            )
        (body,) = self._read_bodies(units)
        return self._topic.record_of(units[0].commit_log_offset, body).epoch

    def _state_range(self, past_offset: int) -> tuple[int, int]:
        """The range of the state topic's queue, once it has everything before an offset of the log (bytes)."""
        self.wait_for_queues(past_offset)
        try:
            answer = self._get_units(0, 1)
        except (TopicNotFoundError, QueueNotFoundError):
            return 0, 0
        return answer.min_offset, answer.max_offset

    def wait_for_queues(self, past_offset: int) -> None:
        """Wait until the queues have everything before an offset of the log (bytes)."""
        deadline = time.monotonic() + QUEUES_SECONDS_MAX
        wait_millis = 0
        while time.monotonic() < deadline:
            request = queue_pb.GetStatusRequest(past_offset=max(past_offset - 1, 0), wait_millis=wait_millis)
            status = self._queues.call(consumequeue.GET_STATUS, request, CALL_SECONDS)
            if status.next_offset >= past_offset and not status.catching_up:
                return
            wait_millis = QUEUES_WAIT_MILLIS if past_offset > 0 else EMPTY_WAIT_MILLIS
        raise ServiceUnavailableError(
            f"the queues are still being built: the state of the {self._topic.follower} service cannot be read yet"
        )

    def _status(self) -> GetStatusResponse:
        return self._log.call(commitlog.GET_STATUS, GetStatusRequest(), CALL_SECONDS)

    def _get_units(self, queue_offset: int, count: int) -> queue_pb.GetQueueUnitsResponse:
        request = queue_pb.GetQueueUnitsRequest(
            topic=self._topic.name, queue_id=STATE_QUEUE, queue_offset=queue_offset, max_units=count
        )
        return self._queues.call(consumequeue.GET_QUEUE_UNITS, request, CALL_SECONDS)

    def _read_units(self, queue_offset: int, count: int) -> Sequence[QueueUnit]:
        answer = self._get_units(queue_offset, count)
        return [QueueUnit(unit.commit_log_offset, unit.record_size_bytes, unit.tags_code) for unit in answer.units]

    def _read_bodies(self, units: Sequence[QueueUnit]) -> Sequence[bytes]:
        offsets = [unit.commit_log_offset for unit in units]
        bodies: list[bytes] = []
        while len(bodies) < len(offsets):
            for outcome in self._log.get_many(offsets[len(bodies) :], timeout_seconds=CALL_SECONDS):
                if isinstance(outcome, StoreError):
                    raise outcome
                if outcome.body_omitted:
                    break
                bodies.append(outcome.body)
        return bodies
