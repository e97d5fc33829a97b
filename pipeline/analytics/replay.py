"""The changes of consumer groups, applied in the order of the log: where each group was when, and what it consumed then.

    changes    handed out 0..9      acknowledged 0, 1, 5      acknowledged 2..4
    position   0                    2                         6
    consumed                        0..1, 5..5                2..4

Only what positions need is kept of a queue: the next position that was never handed out, and the positions below it that are
in flight or wait. consumer_svc/state has the whole state; a test compares both over random changes (ADR 0073).

A message counts as consumed when it was acknowledged, given up, or passed by a committed position. It does not when it was
moved to a retry or dead-letter topic, filtered out, or skipped by a reset.

The records of the topic `rmq_sys_REPUT_CONSUMER_STATE`, taken apart by consumer group: one row for each change.

A state record has the changes of many groups. As rows they can go to one task for each group, which applies them in the
order of the log (`replay`). The bodies are `reput.consumer.v1.StateRecord`; consumer_svc writes them.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from google.protobuf.message import DecodeError

from reput.consumer.v1 import state_pb2 as pb
from services.following.state_topic.state_writer import CHANGE, FULL
from store.errors import StoreCorruptedError

STATE_TOPIC = "rmq_sys_REPUT_CONSUMER_STATE"
COLUMNS = ("physicalOffset", "storeTimestamp", "tags", "body")
CHANGE_SCHEMA = pa.schema(
    [
        pa.field("consumer_group", pa.string(), nullable=False),
        pa.field("commit_log_offset", pa.int64(), nullable=False),
        pa.field("number", pa.int32(), nullable=False),  # its place within the record
        pa.field("time_millis", pa.int64(), nullable=False),  # when the record was stored
        pa.field("is_full", pa.bool_(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),  # a Change, or a GroupState of a full state
    ]
)
Row = tuple[str, int, int, int, bool, bytes]


def changes_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: makes rows of CHANGE_SCHEMA from the columns COLUMNS of the topic's records.

    Raises:
        StoreCorruptedError: a body is no state record.
    """
    for batch in batches:
        times = batch.column("storeTimestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        rows: list[Row] = []
        for offset, micros, kind, body in zip(
            batch.column("physicalOffset").to_pylist(),
            times,
            batch.column("tags").to_pylist(),
            batch.column("body").to_pylist(),
            strict=True,
        ):
            if kind in (CHANGE, FULL):
                rows += _rows_of(offset, micros // 1000, kind, body)
        if rows:
            columns = list(zip(*rows, strict=True))
            arrays = [pa.array(column, field.type) for column, field in zip(columns, CHANGE_SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=CHANGE_SCHEMA)


def group_of(change: pb.Change) -> str | None:
    """The group that a change is about; None for a change of settings, and for one of a later version."""
    match change.WhichOneof("change"):
        case None | "group_set":
            return None
        case "group_deleted":
            return change.group_deleted.consumer_group
        case kind:
            name: str = getattr(change, kind).queue.consumer_group
            return name


def _rows_of(offset: int, time_millis: int, kind: str, body: bytes) -> Iterator[Row]:
    try:
        record = pb.StateRecord.FromString(body)
    except DecodeError as error:
        raise StoreCorruptedError(
            f"the record at {offset} of topic {STATE_TOPIC} is no state record: {error}",
            file=STATE_TOPIC,
            offset=offset,
        ) from error
    if kind == FULL:
        for number, group in enumerate(record.groups):
            yield group.settings.consumer_group, offset, number, time_millis, True, group.SerializeToString()
        return
    for number, change in enumerate(record.changes):
        name = group_of(change)
        if name is not None:
            yield name, offset, number, time_millis, False, change.SerializeToString()


EVENT_SCHEMA = pa.schema(
    [
        pa.field("consumer_group", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("commit_log_offset", pa.int64(), nullable=False),  # of the state record
        pa.field("time_millis", pa.int64(), nullable=False),
        pa.field("first", pa.int64()),  # queue offsets consumed now, both inclusive; null: only the position changed
        pa.field("last", pa.int64()),
        pa.field("consumer_offset", pa.int64(), nullable=False),  # behind this record
    ]
)
FORGOTTEN = -1  # the position of a group that was deleted
EMITTED_EVENT_COUNT = 65_536  # events in a batch of rows
Range = tuple[int, int]
Event = tuple[str, str, int, int, int, int | None, int | None, int]


class Queue:
    """The state of a group in a queue."""

    def __init__(self) -> None:
        self._next_offset = 0
        self._open: set[int] = set()  # in flight or waiting
        self._lowest: list[int] = []  # a heap of them, and of some that are gone
        self._moved: set[int] = set()  # sent back before the position has passed them

    @property
    def consumer_offset(self) -> int:
        """Everything before it is consumed."""
        while self._lowest and self._lowest[0] not in self._open:
            heapq.heappop(self._lowest)
        return min(self._lowest[0], self._next_offset) if self._lowest else self._next_offset

    def hand_out(self, next_offset: int) -> None:
        """Messages before an offset were handed out; those that are still to be consumed are given to `wait`."""
        self._next_offset = max(self._next_offset, next_offset)

    def wait(self, offsets: Iterable[int]) -> None:
        """Messages are in flight, or wait to be handed out."""
        for offset in offsets:
            if offset not in self._open:
                self._open.add(offset)
                heapq.heappush(self._lowest, offset)

    def end(self, offsets: Sequence[int], *, moved: bool) -> list[Range]:
        """Messages are done with; those that are consumed by it."""
        ended = sorted({offset for offset in offsets if offset in self._open})
        self._open.difference_update(ended)
        if moved:
            self._moved.update(offset for offset in offsets if offset >= self._next_offset)
            return []
        return _ranges(ended)

    def go_to(self, next_offset: int, *, is_reset: bool, is_new: bool) -> list[Range]:
        """The group goes on at a position; the messages that are consumed by it."""
        before = self.consumer_offset
        consumed: list[Range] = []
        if not (is_reset or is_new) and next_offset > before:
            consumed = _ranges(sorted(offset for offset in self._open if offset < next_offset))
            begin = self._next_offset
            for moved in sorted(offset for offset in self._moved if begin <= offset < next_offset):
                consumed += [(begin, moved - 1)] if begin < moved else []
                begin = moved + 1
            consumed += [(begin, next_offset - 1)] if begin < next_offset else []
        if is_reset or next_offset < before:  # what follows is consumed anew
            self._moved.clear()
        self._moved = {offset for offset in self._moved if offset >= next_offset}
        self._next_offset = next_offset
        self._open.clear()
        self._lowest.clear()
        return consumed

    def load(self, state: pb.QueueState) -> None:
        """A part of a full state; it says again what the changes before it said."""
        self._next_offset = state.next_offset
        self.wait(lease.queue_offset for lease in state.leases)
        self.wait(waiting.queue_offset for waiting in state.waiting)
        self._moved.update(offset for offset in state.moved_offsets if offset >= state.next_offset)


class Group:
    """The queues of one group, and what became of them since the last `take`."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, int], Queue] = {}
        self._consumed: dict[tuple[str, int], list[Range]] = {}
        self._shown: dict[tuple[str, int], int] = {}

    def load(self, group: pb.GroupState) -> None:
        """A part of a full state."""
        for state in group.queues:
            place, queue, _ = self._queue(state.queue)
            queue.load(state)
            self._consumed.setdefault(place, [])

    def apply(self, change: pb.Change) -> None:
        """Apply a change."""
        match change.WhichOneof("change"):
            case "handed_out":
                out = change.handed_out
                place, queue, _ = self._queue(out.queue)
                queue.hand_out(out.next_offset)
                queue.wait(lease.queue_offset for lease in out.leases)
                queue.wait(waiting.queue_offset for waiting in out.passed)
                self._consumed.setdefault(place, [])
            case "ended":
                place, queue, _ = self._queue(change.ended.queue)
                consumed = queue.end(change.ended.queue_offsets, moved=change.ended.moved)
                self._consumed.setdefault(place, []).extend(consumed)
            case "returned":
                place, queue, _ = self._queue(change.returned.queue)
                queue.wait(one.queue_offset for one in change.returned.waiting)
                self._consumed.setdefault(place, [])
            case "moved":
                place, queue, is_new = self._queue(change.moved.queue)
                moved = change.moved
                consumed = queue.go_to(moved.next_offset, is_reset=moved.is_reset, is_new=is_new)
                self._consumed.setdefault(place, []).extend(consumed)
            case "group_deleted":
                for place in self._queues:
                    self._consumed.setdefault(place, [])
                self._queues.clear()

    def take(self) -> Iterator[tuple[str, int, Range | None, int]]:
        """Topic, queue id, range consumed and position; one for each range, or one for a position that changed."""
        for place, ranges in self._consumed.items():
            queue = self._queues.get(place)
            position = FORGOTTEN if queue is None else queue.consumer_offset
            for one in ranges:
                yield *place, one, position
            if not ranges and self._shown.get(place, FORGOTTEN) != position:
                yield *place, None, position
            self._shown[place] = position
        self._consumed.clear()

    def _queue(self, ref: pb.QueueRef) -> tuple[tuple[str, int], Queue, bool]:
        place = (ref.topic, ref.queue_id)
        queue = self._queues.get(place)
        if queue is None:
            self._queues[place] = fresh = Queue()
            return place, fresh, True
        return place, queue, False


def events_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: makes rows of EVENT_SCHEMA from rows of `state_records.CHANGE_SCHEMA`.

    Args:
        batches: sorted by group, commit-log offset and number; each group is in one task.
    """
    events: list[Event] = []
    group, name, offset, time_millis = Group(), "", -1, 0

    def flush() -> None:
        for topic, queue_id, consumed, position in group.take():
            first, last = consumed or (None, None)
            events.append((name, topic, queue_id, offset, time_millis, first, last, position))

    for batch in batches:
        for row in batch.to_pylist():
            if row["consumer_group"] != name or row["commit_log_offset"] != offset:
                flush()
                group = group if row["consumer_group"] == name else Group()
                name, offset, time_millis = row["consumer_group"], row["commit_log_offset"], row["time_millis"]
            if row["is_full"]:
                group.load(pb.GroupState.FromString(row["data"]))
            else:
                group.apply(pb.Change.FromString(row["data"]))
        if len(events) >= EMITTED_EVENT_COUNT:
            yield _batch(events)
            events.clear()
    flush()
    if events:
        yield _batch(events)


def _ranges(offsets: list[int]) -> list[Range]:
    """Runs of ascending offsets."""
    found: list[Range] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found


def _batch(events: list[Event]) -> pa.RecordBatch:
    columns = list(zip(*events, strict=True))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, EVENT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENT_SCHEMA)
