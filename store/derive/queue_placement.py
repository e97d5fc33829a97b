"""Which units stand in a queue, and at which positions: the only place where this is decided.

place_unit: the queue unit of a record: which records have one, and where it belongs. Records of prepared and of rolled-back
transactions have none: RocketMQ moves a committed message to its real queue by a record of its own. Batches of batch queues
have none. Source: `CommitLogDispatcherBuildConsumeQueue` of RocketMQ 5.3.3.

place_light_units: likewise its units in light queues, at the positions that its broker gave it. Source: `ConsumeQueue`.

`queue_runs.py` does the same for many records at once; `DispatchColumns` has their light units.

QueuePlacement decides whether a unit stands in the queue. A record states its position in its queue. The positions of a
queue's records, in log order, are 0, 1, 2 and so on, with these exceptions (from `ConsumeQueue` of RocketMQ 5.3.3 unless said
otherwise):

- The first record is not number 0: the queue begins with the file that holds its position; the positions before it in
  that file are filled with fillers.
- A position is behind the end: the gap is filled with fillers. RocketMQ would write the unit at the wrong place.
- A position is taken: the record is left out of the queue.
- Position 0 comes again: the topic was deleted and created again. The queue is cleared and begins anew, unless the unit
  is the one at position 0: then the same record came twice, and it is left out.
- A gap is wider than the log has room for records: the position is damaged, and the record is left out. A record
  without `__CRC32#` may state any position; one flipped high bit would otherwise write gigabytes of fillers.

The builder of the queues, the rebuild of the pipeline and fsck use this class. It knows no file.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from store.derive.dispatch import DispatchRequest
from store.format.derived.queue_unit import FILLER, UNIT, UNIT_SIZE_BYTES, decode_queue_unit, encode_queue_unit
from store.format.record import FRAME_SIZE_BYTES_MIN
from store.format.sys_flag import INNER_BATCH, TransactionType

# A record whose sys_flag has this bit has no unit. PREPARED and ROLLBACK have it, NONE and COMMIT do not.
NO_UNIT_BIT = int(TransactionType.PREPARED)
# A record that is an inner batch takes several positions of a queue of another form (`batchconsumequeue/`): no unit, either.
NO_UNIT_BITS = NO_UNIT_BIT | INNER_BATCH

assert {kind for kind in TransactionType if kind & NO_UNIT_BIT} == {TransactionType.PREPARED, TransactionType.ROLLBACK}


def is_batch(sys_flag: int) -> bool:
    """Whether a record is an inner batch, and no part of a transaction that is open or rolled back.

    A broker takes such records only for topics in batch queues.
    """
    return sys_flag & NO_UNIT_BITS == INNER_BATCH


class PlacedUnit(NamedTuple):
    """A unit (20 bytes), its queue, and its position in the queue."""

    topic: str
    queue_id: int
    queue_offset: int
    unit: bytes


def place_unit(request: DispatchRequest) -> PlacedUnit | None:
    """The unit of a record; None if it has none."""
    if request.sys_flag & NO_UNIT_BITS:
        return None
    unit = UNIT.pack(request.commit_log_offset, request.record_size_bytes, request.tags_code)
    return PlacedUnit(request.topic, request.queue_id, request.queue_offset, unit)


class LightUnit(NamedTuple):
    """A record's unit in a light queue.

    Attributes:
        queue: its name.
        queue_offset: position there, in messages.
        commit_log_offset: the record's first byte in the log.
        record_size_bytes: the record's whole length.
        tags_code: that of the record's own queue unit.
    """

    queue: str
    queue_offset: int
    commit_log_offset: int
    record_size_bytes: int
    tags_code: int


def place_light_units(request: DispatchRequest) -> list[LightUnit]:
    """The units of a record in light queues: none where it has none in its own queue."""
    if request.sys_flag & NO_UNIT_BITS:
        return []
    fields = (request.commit_log_offset, request.record_size_bytes, request.tags_code)
    return [LightUnit(*place, *fields) for place in request.light_places]


def light_position_max(commit_log_offset: int) -> int:
    """The greatest position in a light queue that a record at this offset (bytes) of the log can have.

    A light queue has a position for each record that names it, so the records before this one bound it. A sender made up what
    is beyond, at a broker that replaces nothing: the commit log does not go on behind it, and no unit stands there.
    """
    return commit_log_offset // FRAME_SIZE_BYTES_MIN + BURNT_POSITION_COUNT_MAX


Buffer = bytes | memoryview
FILLER_BYTES = encode_queue_unit(FILLER)
# Fillers are written in pieces of 320 KiB, however wide the gap is.
FILL_UNIT_COUNT = 16_384
# RocketMQ uses up a position for a message that it refuses (#6570), so a gap may exist without records in the log.
# More than this many in a row have not been seen; their fillers take 80 kB.
BURNT_POSITION_COUNT_MAX = 4096


class Placement(Enum):
    """The place of a unit, or why it has none."""

    NEXT = "it stands behind the last unit"
    FIRST = "the queue begins with it"
    BEHIND_GAP = "it stands behind a gap, which is filled"
    ANEW = "the queue is cleared and begins with it"
    TAKEN = "left out: its position is taken"
    DAMAGED = "left out: its position is damaged"


class UnitRun(NamedTuple):
    """Units at consecutive positions from `queue_offset` on, as bytes; only the first may have position 0."""

    queue_offset: int
    units: Buffer


class PlacedUnits(NamedTuple):
    """Units that stand in the queue, at consecutive positions from `queue_offset` on.

    Attributes:
        placement: on the first of them; the others are NEXT.
        fill_begin: positions from here up to `queue_offset` hold fillers; equal to `queue_offset` if there are none.
        queue_offset: position of the first unit.
        units: their bytes.
    """

    placement: Placement
    fill_begin: int
    queue_offset: int
    units: Buffer


class QueuePlacement:
    """Follows one queue through the log.

    Args:
        file_unit_count: units in a file of the queue.
        end: position behind the queue's last unit; None for a queue without units.
        log_end_offset: gives the offset (bytes) behind the record of the last unit, 0 if that is unknown.
        number_0: gives the unit at position 0, empty if that is unknown.

    Both functions are called only when the answer matters, and only for what was there before the first call of `place`.

    Attributes:
        end: as above, with the units placed so far.
        filled_count: positions that hold fillers because of the units placed so far.
        taken_count: units left out because their position is taken.
        damaged: position and commit-log offset (bytes) of the units left out because their position is damaged.
    """

    def __init__(
        self,
        file_unit_count: int,
        end: int | None = None,
        *,
        log_end_offset: Callable[[], int] = lambda: 0,
        number_0: Callable[[], bytes] = lambda: b"",
    ) -> None:
        self.end = end
        self.filled_count = 0
        self.taken_count = 0
        self.damaged: list[tuple[int, int]] = []
        self._file_unit_count = file_unit_count
        self._log_end_offset_before = log_end_offset
        self._number_0_before = number_0
        self._last = b""
        self._number_0 = b""

    def judge(self, position: int, unit: Buffer) -> Placement:
        """The placement of the next record's unit, the first 20 bytes of `unit`; changes nothing."""
        end = self.end
        if position == end:
            return Placement.NEXT
        if end is not None and position < end and position != 0:
            return Placement.TAKEN
        known_position, known_offset = (0, 0) if end is None else (end, self._log_end_offset())
        log_bytes = decode_queue_unit(unit).commit_log_offset - known_offset
        room_count = max(log_bytes, 0) // FRAME_SIZE_BYTES_MIN + BURNT_POSITION_COUNT_MAX
        if not 0 <= position <= known_position + room_count:
            return Placement.DAMAGED
        if end is None:
            return Placement.FIRST
        if position == 0:
            is_same = unit[:UNIT_SIZE_BYTES] == (self._number_0 or self._number_0_before())
            return Placement.TAKEN if is_same else Placement.ANEW
        return Placement.BEHIND_GAP

    def place(self, runs: Iterable[UnitRun]) -> Iterator[PlacedUnits]:
        """Gives the next units, in log order, those that stand in the queue.

        Behind a unit that is placed, the rest of its run is NEXT, and behind one that is taken, the rest is taken up to
        the end. So a run is judged once, not unit by unit.
        """
        for run in runs:
            position, units = run
            while units:
                placement = self.judge(position, units)
                if placement is Placement.TAKEN:
                    assert self.end is not None
                    count = min(self.end - position, len(units) // UNIT_SIZE_BYTES) if position else 1
                    self.taken_count += count
                elif placement is Placement.DAMAGED:
                    count = 1
                    self.damaged.append((position, decode_queue_unit(units).commit_log_offset))
                else:
                    yield self._placed(placement, position, units)
                    break
                position, units = position + count, units[count * UNIT_SIZE_BYTES :]

    def _placed(self, placement: Placement, position: int, units: Buffer) -> PlacedUnits:
        fill_begin = position
        if placement is Placement.BEHIND_GAP:
            assert self.end is not None
            fill_begin = self.end
        elif placement is not Placement.NEXT:
            fill_begin -= position % self._file_unit_count
        self.filled_count += position - fill_begin
        if position == 0:
            self._number_0 = bytes(units[:UNIT_SIZE_BYTES])
        self.end = position + len(units) // UNIT_SIZE_BYTES
        self._last = bytes(units[-UNIT_SIZE_BYTES:])
        return PlacedUnits(placement, fill_begin, position, units)

    def _log_end_offset(self) -> int:
        return decode_queue_unit(self._last).next_offset if self._last else self._log_end_offset_before()


def fillers(begin: int, end: int) -> Iterator[UnitRun]:
    """Fillers for the positions [begin, end), in pieces of at most FILL_UNIT_COUNT."""
    for position in range(begin, end, FILL_UNIT_COUNT):
        yield UnitRun(position, FILLER_BYTES * min(FILL_UNIT_COUNT, end - position))
