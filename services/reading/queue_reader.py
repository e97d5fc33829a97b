"""QueueReader: units of queues and records of the log, for delivery."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from services.calling.commitlog import CommitLogClient
from services.calling.consumequeue import PAGE_SIZE
from services.convert import millis_to_timestamp
from services.local.encoded_records import EncodedRun, MessageForm
from services.reading.deleted_topics import nothing_deleted
from services.reading.recent_units import RecentUnits, UnitColumns, unpacked
from services.rpcs import Calls
from services.rpcs import consumequeue as rpc
from services.serving.server_options import RECEIVE_BYTES_MAX
from store.errors import (
    OffsetOutOfRangeError,
    QueueNotFoundError,
    RecordNotFoundError,
    ServiceUnavailableError,
    StoreCorruptedError,
    StoreError,
    TopicNotFoundError,
    UnsupportedStoreError,
)
from store.format.derived.queue_unit import QueueUnit
from store.format.properties import stands_at
from store.format.topic import LIGHT_QUEUE_PREFIX, is_light_queue, split_lite_queue

# Bodies of one answer: a message of the largest size (4 MiB), or as many smaller ones.
ANSWER_BODY_BYTES_MAX = 4 << 20
# How old the known range of a queue may be.
RANGE_SECONDS = 5.0
CALL_SECONDS = 5.0
# Queues whose units are kept for the next pulls of their streams: PAGE_SIZE units each, 12 KB.
PAGE_COUNT_MAX = 256


@dataclass(frozen=True, slots=True)
class QueueRange:
    """First position of a queue, and the position of its next message."""

    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class UnitRun:
    """Consecutive units of a queue, from `queue_offset` on."""

    queue_offset: int
    units: Sequence[QueueUnit]


Outcome = StoredMessage | StoreError


def is_removed(outcome: Outcome) -> bool:
    """Whether retention removed the record."""
    return isinstance(outcome, RecordNotFoundError | OffsetOutOfRangeError)


def checked(outcome: Outcome, topic: str, queue_id: int, queue_offset: int) -> Outcome:
    """The outcome, or an error when the record is not the one of that position of the queue."""
    if isinstance(outcome, StoreError):
        return outcome
    if is_light_queue(topic):
        is_there = stands_at(outcome.properties, topic, queue_offset)
    else:
        is_there = (outcome.topic, outcome.queue_id, outcome.queue_offset) == (topic, queue_id, queue_offset)
    if is_there:
        return outcome
    return StoreCorruptedError(
        f"position {queue_offset} of queue {queue_id} of topic {topic} leads to a record of position "
        f"{outcome.queue_offset} of queue {outcome.queue_id} of topic {outcome.topic}: nothing is delivered from there",
        file=f"consumequeue/{topic}/{queue_id}",
        offset=outcome.commit_log_offset,
    )


class Reader(Protocol):
    """The queues and records that delivery reads."""

    recent: RecentUnits

    def range(self, topic: str, queue_id: int) -> QueueRange:
        """The range of a queue; empty for an unknown queue."""

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> UnitRun:
        """At most `count` units from a position on, or from the queue's first position if that lies behind it.

        None from the queue's end on, as `recent` knows it.
        """

    def records(self, units: Sequence[QueueUnit], body_bytes_max: int) -> Sequence[Outcome]:
        """The records of units; the bodies behind `body_bytes_max` are left out (`body_omitted`)."""

    def encoded(
        self, form: MessageForm, queue_offset: int, count: int, *, body_bytes_left: int, is_first: bool
    ) -> EncodedRun | None:
        """The messages of consecutive positions, up to one that is not ordinary; None: `units` and `records` have to be asked.

        With `is_first` one is taken whatever its size.
        """

    def whole(self, header: StoredMessage) -> Outcome:
        """A record by a call of its own, given without its body; UnsupportedStoreError when it can never be appended again."""

    def offset_at(self, topic: str, queue_id: int, time_millis: int, *, is_exact: bool = False) -> int:
        """Position of a queue's first message that was stored at or after a time (ms since 1970).

        Without `is_exact` it may be another one in a long queue whose store times may fall.

        Raises:
            ServiceUnavailableError: the queue is being built.
            UnsupportedStoreError: with `is_exact`, that position is not known.
        """

    def first_after(self, topic: str, queue_id: int, commit_log_offset: int) -> int:
        """Position of a queue's first message from a byte of the log on; its end when there is none.

        Raises:
            ServiceUnavailableError: the queue is not built up to there.
        """

    def light_ends(self, prefix: str, page_size: int) -> Iterator[Sequence[tuple[str, int]]]:
        """Names and ends of all light queues whose names begin so, in pages.

        Raises:
            ServiceUnavailableError: the queues are not built up to what is in memory here.
        """

    def log_end(self) -> int:
        """End of the log (bytes), which followers see soon: everything that was acknowledged lies before it.

        Raises:
            ServiceUnavailableError: it is not known now.
        """


def read_message(reader: Reader, topic: str, queue_id: int, queue_offset: int) -> StoredMessage | None:
    """The whole message at a position that had one; None when retention removed it.

    Raises:
        StoreError: it cannot be read now.
    """
    run = reader.units(topic, queue_id, queue_offset, 1)
    if run.queue_offset > queue_offset:
        return None
    if not run.units:
        raise _being_built(topic, queue_id)
    (outcome,) = reader.records(run.units, ANSWER_BODY_BYTES_MAX)
    outcome = checked(outcome, topic, queue_id, queue_offset)
    if isinstance(outcome, StoreError):
        if is_removed(outcome):
            return None
        raise outcome
    if outcome.body_omitted:
        raise too_large(outcome)
    return outcome


def _being_built(topic: str, queue_id: int) -> ServiceUnavailableError:
    return ServiceUnavailableError(
        f"queue {queue_id} of topic {topic} is being built: try again", service="consumequeue"
    )


def _unproven(topic: str, queue_id: int) -> UnsupportedStoreError:
    return UnsupportedStoreError(
        f"store times of queue {queue_id} of topic {topic} may fall, and it has too many messages to look at each: the "
        "position of a time is not known; name a queue offset instead, or the begin or the end of the queue"
    )


def too_large(message: StoredMessage) -> StoreError:
    """The error for a message that no answer can hold."""
    return UnsupportedStoreError(
        f"the message at {message.commit_log_offset} of the log (topic {message.topic}) is larger than an answer of "
        f"{ANSWER_BODY_BYTES_MAX} bytes: it cannot be delivered; move the group past it",
    )


class QueueReader:
    """A Reader over the commitlog and consumequeue services; thread-safe.

    Args:
        recent: units of the newest records.
        consumequeue: the client for older ones.
        commitlog: the client for records.
        clock: seconds, rising.
        deleted_before: of a topic: where it was deleted in the log; units before it are as removed ones (bytes).
    """

    def __init__(
        self,
        recent: RecentUnits,
        consumequeue: Calls,
        commitlog: CommitLogClient,
        clock: Callable[[], float] = time.monotonic,
        deleted_before: Callable[[str], int] = nothing_deleted,
    ) -> None:
        self._deleted_before = deleted_before
        self.recent = recent
        self._consumequeue = consumequeue
        self._commitlog = commitlog
        self._clock = clock
        self._lock = threading.Lock()
        # Known at, min offset, where the topic was deleted.
        self._first_offsets: dict[tuple[str, int], tuple[float, int, int]] = {}
        self._pages: OrderedDict[tuple[str, int], UnitColumns] = OrderedDict()  # the last one used stands last

    def range(self, topic: str, queue_id: int) -> QueueRange:
        """See Reader."""
        if is_light_queue(topic):
            needed, recent_end = self.recent.light_before, self.recent.light_end(topic)
            if recent_end is not None and self.recent.light_units(topic, 0, 1):
                return QueueRange(0, recent_end)  # all of it is here
            answer = self._light_units(topic, queue_id, 0, 1)
            if recent_end is None and answer.next_offset < needed:
                raise _being_built(topic, queue_id)  # newer ones may be missing
            return QueueRange(answer.min_offset, max(answer.max_offset, recent_end or 0))
        if not self.recent.end(topic, queue_id):
            return QueueRange(0, 0)
        key = (topic, queue_id)
        known = self._first_offsets.get(key)
        before = self._deleted_before(topic)
        if known is None or self._clock() - known[0] > RANGE_SECONDS or known[2] != before:
            self._ask(topic, queue_id, 0, 1)
            known = self._first_offsets.get(key)
        return QueueRange(known[1] if known is not None else 0, self.recent.end(topic, queue_id))

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> UnitRun:
        """See Reader."""
        if is_light_queue(topic):
            before = self._light_deleted_before(topic)
            recent = self.recent.light_units(topic, queue_offset, count)
            if recent is not None and (not recent or recent[0].commit_log_offset >= before):
                return UnitRun(queue_offset, [QueueUnit(*unit[2:]) for unit in recent])
            found = self._light_units(topic, queue_id, queue_offset, count).units
            begin = found[0].queue_offset if found else queue_offset
            return UnitRun(
                begin,
                [
                    QueueUnit(unit.commit_log_offset, unit.record_size_bytes, unit.tags_code)
                    for position, unit in enumerate(found, begin)
                    if unit.queue_offset == position  # a gap ends the run: behind it no position fits
                ],
            )
        before = self._deleted_before(topic)
        if not before:
            return self._units(topic, queue_id, queue_offset, count)
        queue_offset = max(queue_offset, self.range(topic, queue_id).min_offset)
        while True:  # the queues may be behind the deletion, so that their begin is not known yet
            run = self._units(topic, queue_id, queue_offset, count)
            deleted_count = sum(unit.commit_log_offset < before for unit in run.units)
            if not deleted_count or deleted_count < len(run.units):
                return UnitRun(run.queue_offset + deleted_count, run.units[deleted_count:])
            queue_offset = run.queue_offset + deleted_count

    def first_after(self, topic: str, queue_id: int, commit_log_offset: int) -> int:
        """Position of a queue's first message from a byte of the log on; its end when there is none.

        Raises:
            ServiceUnavailableError: the queue is not built up to there.
        """
        try:
            answer = self._get_units(topic, queue_id, 0, 1, log_first_offset=commit_log_offset)
        except (TopicNotFoundError, QueueNotFoundError) as error:
            raise _being_built(topic, queue_id) from error
        if answer.next_offset < commit_log_offset:
            raise _being_built(topic, queue_id)
        return answer.min_offset

    def light_ends(self, prefix: str, page_size: int) -> Iterator[Sequence[tuple[str, int]]]:
        """See Reader."""
        needed = self.recent.light_before
        token = 0
        while True:
            request = pb.ListLightQueuesRequest(
                prefix=prefix.removeprefix(LIGHT_QUEUE_PREFIX), page_token=token, page_size=page_size
            )
            answer = self._consumequeue.call(rpc.LIST_LIGHT_QUEUES, request, CALL_SECONDS)
            if answer.next_offset < needed:
                raise ServiceUnavailableError("light queues are being built: try again", service="consumequeue")
            yield [(prefix + name, end) for name, end in zip(answer.names, answer.max_offsets, strict=True)]
            token = answer.next_page_token
            if not token:
                return

    def _light_units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> pb.GetQueueUnitsResponse:
        """Units of a light queue from the queues; none of one that there is not, as a broker answers.

        Raises:
            ServiceUnavailableError: units that are not in memory may not be built yet.
        """
        before = self._light_deleted_before(topic)
        needed = self.recent.light_before
        try:
            answer = self._get_units(topic, queue_id, queue_offset, count, log_first_offset=before)
            if not answer.units and queue_offset < answer.min_offset < answer.max_offset:
                answer = self._get_units(topic, queue_id, answer.min_offset, count, log_first_offset=before)
        except (TopicNotFoundError, QueueNotFoundError):
            answer = pb.GetQueueUnitsResponse()
            if needed:
                status = self._consumequeue.call(rpc.GET_STATUS, pb.GetStatusRequest(), CALL_SECONDS)
                answer.next_offset = status.next_offset
                if status.next_offset >= needed:
                    try:
                        self._get_units(topic, queue_id, queue_offset, 1, log_first_offset=before)
                    except (TopicNotFoundError, QueueNotFoundError):
                        return answer
                    return self._light_units(topic, queue_id, queue_offset, count)  # built between the two calls
        # The service may build its queues again: what it had built once says nothing.
        if not answer.units and answer.next_offset < needed:
            raise _being_built(topic, queue_id)
        return answer

    def _light_deleted_before(self, topic: str) -> int:
        lite = split_lite_queue(topic)
        return self._deleted_before(lite[0]) if lite is not None else 0

    def _units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> UnitRun:
        recent = self.recent.units(topic, queue_id, queue_offset, count)
        end = self.recent.end(topic, queue_id)
        if recent is not None or queue_offset >= end:
            return UnitRun(queue_offset, recent or ())
        # The queues may be ahead of what this service has seen of the log: no position gets beyond the end that it knows.
        count = min(count, end - queue_offset)
        units = self._ask(topic, queue_id, queue_offset, count)
        first_offset = self._first_offsets.get((topic, queue_id), (0.0, 0, 0))[1]
        if not units and queue_offset < first_offset:
            queue_offset = first_offset
            units = (
                self._ask(topic, queue_id, queue_offset, min(count, end - first_offset)) if first_offset < end else ()
            )
        return UnitRun(queue_offset, units)

    def records(self, units: Sequence[QueueUnit], body_bytes_max: int = ANSWER_BODY_BYTES_MAX) -> Sequence[Outcome]:
        """See Reader."""
        offsets = [unit.commit_log_offset for unit in units]
        return self._commitlog.get_many(offsets, body_bytes_max=body_bytes_max, timeout_seconds=CALL_SECONDS)

    def encoded(
        self, form: MessageForm, queue_offset: int, count: int, *, body_bytes_left: int, is_first: bool
    ) -> EncodedRun | None:
        """See Reader."""
        if is_light_queue(form.topic):
            return None  # its messages have the topics and positions of other queues
        units = self._columns(form.topic, form.queue_id, queue_offset, count)
        if units is None or units.commit_log_offsets[0] < self._deleted_before(form.topic):
            return None
        return self._commitlog.encode_run(
            form,
            units.queue_offset,
            units.commit_log_offsets,
            units.sizes_bytes,
            body_bytes_left=body_bytes_left,
            is_first=is_first,
            timeout_seconds=CALL_SECONDS,
        )

    def whole(self, header: StoredMessage) -> Outcome:
        """See Reader."""
        if header.store_size_bytes > RECEIVE_BYTES_MAX:  # of a store from elsewhere
            return UnsupportedStoreError(
                f"the message at {header.commit_log_offset} of the log takes {header.store_size_bytes} bytes: a request to "
                f"append it again has {RECEIVE_BYTES_MAX} at most"
            )
        try:
            return self._commitlog.get(header.commit_log_offset, timeout_seconds=CALL_SECONDS)
        except StoreError as error:
            return error

    def offset_at(self, topic: str, queue_id: int, time_millis: int, *, is_exact: bool = False) -> int:
        """See Reader."""
        try:
            request = pb.SearchOffsetRequest(topic=topic, queue_id=queue_id, time=millis_to_timestamp(time_millis))
            answer = self._consumequeue.call(rpc.SEARCH_OFFSET, request, CALL_SECONDS)
        except (TopicNotFoundError, QueueNotFoundError) as error:
            if self.recent.end(topic, queue_id):
                raise _being_built(topic, queue_id) from error
            raise
        if answer.catching_up or answer.damaged:
            raise _being_built(topic, queue_id)
        if answer.unproven and is_exact:
            raise _unproven(topic, queue_id)
        return answer.queue_offset

    def log_end(self) -> int:
        """See Reader."""
        offset = self._commitlog.readable_offset(flush_soon=True, timeout_seconds=CALL_SECONDS)
        if offset is None:
            raise ServiceUnavailableError("the log is being recovered: try again soon", service="commitlog")
        return offset

    def _columns(self, topic: str, queue_id: int, queue_offset: int, count: int) -> UnitColumns | None:
        """At least one of the units that `units` gives; None when it has to be asked.

        Older ones come a page at a time. A page may be old: the reader of a record compares it with its position.
        """
        found = self.recent.columns(topic, queue_id, queue_offset, count)
        end = min(queue_offset + count, self.recent.end(topic, queue_id))
        if found is not None or queue_offset >= end:
            return found
        key = (topic, queue_id)
        with self._lock:
            page = self._pages.get(key)
        if page is None or not page.queue_offset <= queue_offset < page.queue_offset + len(page):
            page = self._page(topic, queue_id, queue_offset)
            if page is None:
                return None
            with self._lock:
                self._pages[key] = page
                self._pages.move_to_end(key)
                while len(self._pages) > PAGE_COUNT_MAX:
                    self._pages.popitem(last=False)
        return page.part(queue_offset, end)

    def _page(self, topic: str, queue_id: int, queue_offset: int) -> UnitColumns | None:
        before = self._deleted_before(topic)
        try:
            answer = self._get_units(topic, queue_id, queue_offset, PAGE_SIZE, packed=True, log_first_offset=before)
        except (TopicNotFoundError, QueueNotFoundError):
            return None
        self._note_first(topic, queue_id, answer.min_offset, before)
        return unpacked(queue_offset, answer.packed_units) if answer.packed_units else None

    def _ask(self, topic: str, queue_id: int, queue_offset: int, count: int) -> Sequence[QueueUnit]:
        before = self._deleted_before(topic)
        try:
            answer = self._get_units(topic, queue_id, queue_offset, count, log_first_offset=before)
        except (TopicNotFoundError, QueueNotFoundError):
            return ()  # its first messages are not built yet
        self._note_first(topic, queue_id, answer.min_offset, before)
        return [QueueUnit(unit.commit_log_offset, unit.record_size_bytes, unit.tags_code) for unit in answer.units]

    def _get_units(
        self, topic: str, queue_id: int, queue_offset: int, count: int, *, log_first_offset: int, packed: bool = False
    ) -> pb.GetQueueUnitsResponse:
        request = pb.GetQueueUnitsRequest(
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            max_units=count,
            packed=packed,
            log_first_offset=log_first_offset,
        )
        return self._consumequeue.call(rpc.GET_QUEUE_UNITS, request, CALL_SECONDS)

    def _note_first(self, topic: str, queue_id: int, queue_offset: int, before: int) -> None:
        with self._lock:
            self._first_offsets[topic, queue_id] = (self._clock(), queue_offset, before)
