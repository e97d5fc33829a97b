"""RecentUnits: the queue units of the newest records, as they came over Reput, and the ends of all queues.

A consumer that keeps up reads from here and asks no other service. Older units come from the consumequeue service. Of light
queues only the newest units are here, not the ends of all: there may be a million queues.
"""

import bisect
import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.derive.queue_placement import NO_UNIT_BITS, LightUnit
from store.format.derived.queue_unit import QueueUnit

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns, Int32s, Int64s

# Units kept, of all queues together: 20 bytes each, in columns.
UNIT_COUNT_MAX = 262_144
# Batches kept: at a low rate each has one unit, and costs some 500 bytes.
RUN_COUNT_MAX = 16_384
# Units of light queues that are kept, of all and of one: some 250 bytes each.
LIGHT_UNIT_COUNT_MAX = 32_768
LIGHT_QUEUE_UNIT_COUNT_MAX = 4_096

QueueKey = tuple[str, int]


@dataclass(slots=True)  # not frozen, which makes it three times as slow
class _Run:
    """Units of one queue at consecutive positions, the rows [begin, end) of the columns of their batch; never changed."""

    key: QueueKey
    first: int
    begin: int
    end: int
    columns: "tuple[Int64s, Int32s, Int64s]"  # commit-log offsets, sizes (bytes), tags codes

    def __len__(self) -> int:
        return self.end - self.begin

    def part(self, at: int, stop: int) -> "list[Int64s | Int32s]":
        """The columns of the units [at, stop) of this run."""
        return [column[self.begin + at : self.begin + stop] for column in self.columns]


@dataclass(frozen=True, slots=True)
class UnitColumns:
    """Units of a queue at consecutive positions, from `queue_offset` on."""

    queue_offset: int
    commit_log_offsets: "Int64s"
    sizes_bytes: "Int32s"

    def __len__(self) -> int:
        return len(self.commit_log_offsets)

    def part(self, queue_offset: int, end_offset: int) -> "UnitColumns":
        """Those from one position to another; the first must be here or right behind the last."""
        begin, end = queue_offset - self.queue_offset, max(queue_offset, end_offset) - self.queue_offset
        return UnitColumns(queue_offset, self.commit_log_offsets[begin:end], self.sizes_bytes[begin:end])


class RecentUnits:
    """See the top of this file; thread-safe.

    Args:
        unit_count_max: units kept.
        light_unit_count_max: likewise, of light queues.

    Attributes:
        light_before: units of light queues that are not here lie before this offset of the log (bytes).
    """

    def __init__(self, unit_count_max: int = UNIT_COUNT_MAX, light_unit_count_max: int = LIGHT_UNIT_COUNT_MAX) -> None:
        self.light_before = 0
        self._light_unit_count_max = light_unit_count_max
        self._light: OrderedDict[str, list[LightUnit]] = (
            OrderedDict()
        )  # at consecutive positions; the newest queue stands last
        self._light_count = 0
        self._unit_count_max = unit_count_max
        self._lock = threading.Lock()
        self._runs: deque[_Run] = deque()  # oldest first
        self._runs_by_queue: dict[QueueKey, list[_Run]] = {}  # by position
        self._unit_count = 0
        self._ends: dict[str, dict[int, int]] = {}

    def set_ends(self, ends: Iterable[tuple[str, int, int]]) -> None:
        """Note topic, queue and end of queues."""
        with self._lock:
            for topic, queue_id, end in ends:
                self._see_end(topic, queue_id, end)

    def ends(self, topic: str) -> Mapping[int, int]:
        """The ends of a topic's queues that have messages, by queue; empty for an unknown topic."""
        with self._lock:
            return dict(self._ends.get(topic, ()))

    def end(self, topic: str, queue_id: int) -> int:
        """Position of a queue's next message; 0 for a queue without messages.

        A batch is seen as a whole: a reader that sees a record of it also sees those before it, of other queues too.
        """
        with self._lock:
            return self._ends.get(topic, {}).get(queue_id, 0)

    def topics(self) -> Sequence[str]:
        """The topics that have messages."""
        with self._lock:
            return sorted(self._ends)

    def add(self, columns: "DispatchColumns") -> Mapping[str, Collection[int]]:
        """Add a batch of the tail; returns the topics with new units, and their queues that have them."""
        import numpy as np  # with the first record: it takes memory

        if columns.light_units:
            self._add_light(columns.light_units)
        has_unit = ((columns.sys_flags & NO_UNIT_BITS) == 0).nonzero()[0]
        if not len(has_unit):
            return {}
        keys = columns.topic_numbers[has_unit].astype(np.int64) << 32 | columns.queue_ids[has_unit]
        by_queue = keys.argsort(kind="stable")
        order = has_unit[by_queue]
        keys, offsets = keys[by_queue], columns.queue_offsets[order]
        breaks = (keys[1:] != keys[:-1]) | (offsets[1:] != offsets[:-1] + 1)
        begins = [0, *((breaks.nonzero()[0] + 1).tolist())]
        numbers = columns.topic_numbers[order[begins]].tolist()
        queue_ids, firsts = columns.queue_ids[order[begins]].tolist(), offsets[begins].tolist()
        # Runs are parts of these: they are small, many, and dropped in the order in which they came.
        shared = columns.commit_log_offsets[order], columns.record_sizes_bytes[order], columns.tags_codes[order]
        begins.append(len(order))
        queues: dict[str, set[int]] = {}
        with self._lock:
            for number, queue_id, first, (begin, end) in zip(
                numbers, queue_ids, firsts, itertools.pairwise(begins), strict=True
            ):
                key = (columns.topics[number], queue_id)
                self._add(_Run(key, first, begin, end, shared))
                queues.setdefault(key[0], set()).add(queue_id)
        return queues

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> Sequence[QueueUnit] | None:
        """At most `count` units from a position on; None when the first of them is not here."""
        found: list[QueueUnit] = []
        for run, at, stop in self._stretches(topic, queue_id, queue_offset, count):
            found += map(QueueUnit, *(column.tolist() for column in run.part(at, stop)))
        return found or None

    def light_units(self, queue: str, queue_offset: int, count: int) -> Sequence[LightUnit] | None:
        """At most `count` units of a light queue from a position on, none from its end on; None when they are not known."""
        with self._lock:
            units = self._light.get(queue)
            if not units or queue_offset < units[0].queue_offset:
                return None
            begin = queue_offset - units[0].queue_offset
            return units[begin : begin + count]

    def light_end(self, queue: str) -> int | None:
        """Position of the next message of a light queue; None when it is not known here."""
        with self._lock:
            units = self._light.get(queue)
            return units[-1].queue_offset + 1 if units else None

    def _add_light(self, added: Sequence[LightUnit]) -> None:
        with self._lock:
            for unit in added:
                units = self._light.get(unit.queue)
                if units is None:
                    units = self._light[unit.queue] = []
                else:
                    self._light.move_to_end(unit.queue)
                if units and unit.queue_offset <= units[-1].queue_offset:
                    continue
                if units and unit.queue_offset != units[-1].queue_offset + 1:
                    self._drop_light(units, len(units))  # a gap: what lies before it comes from the queues
                if len(units) >= LIGHT_QUEUE_UNIT_COUNT_MAX:
                    self._drop_light(units, len(units) // 2)
                units.append(unit)
                self._light_count += 1
                while self._light_count > self._light_unit_count_max and len(self._light) > 1:
                    _, oldest = self._light.popitem(last=False)
                    self._drop_light(oldest, len(oldest))

    def _drop_light(self, units: list[LightUnit], count: int) -> None:
        last = units[count - 1]
        self.light_before = max(self.light_before, last.commit_log_offset + last.record_size_bytes)
        self._light_count -= count
        del units[:count]

    def columns(self, topic: str, queue_id: int, queue_offset: int, count: int) -> UnitColumns | None:
        """As `units`, without an object for each."""
        stretches = self._stretches(topic, queue_id, queue_offset, count)
        if not stretches:
            return None
        import numpy as np

        commit_log_offsets, sizes_bytes, _ = zip(*(run.part(at, stop) for run, at, stop in stretches), strict=True)
        return UnitColumns(queue_offset, np.concatenate(commit_log_offsets), np.concatenate(sizes_bytes))

    def _stretches(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[_Run, int, int]]:
        """The parts of runs that follow one another from a position on, at most `count` units together."""
        found: list[tuple[_Run, int, int]] = []
        found_count = 0
        with self._lock:
            runs = self._runs_by_queue.get((topic, queue_id), [])
            place = max(0, bisect.bisect_right(runs, queue_offset, key=_first) - 1)
            while place < len(runs) and found_count < count:
                run = runs[place]
                at = queue_offset + found_count - run.first
                if not 0 <= at < len(run):
                    break
                stop = min(len(run), at + count - found_count)
                found.append((run, at, stop))
                found_count += stop - at
                place += 1
        return found

    def _add(self, run: _Run) -> None:
        topic, queue_id = run.key
        self._see_end(topic, queue_id, run.first + len(run))
        self._runs.append(run)
        self._runs_by_queue.setdefault(run.key, []).append(run)
        self._unit_count += len(run)
        while len(self._runs) > 1 and (self._unit_count > self._unit_count_max or len(self._runs) > RUN_COUNT_MAX):
            oldest = self._runs.popleft()
            self._unit_count -= len(oldest)
            of_queue = self._runs_by_queue[oldest.key]
            del of_queue[0]
            if not of_queue:
                del self._runs_by_queue[oldest.key]

    def _see_end(self, topic: str, queue_id: int, end: int) -> None:
        ends = self._ends.setdefault(topic, {})
        ends[queue_id] = max(ends.get(queue_id, 0), end)


def unpacked(queue_offset: int, packed_units: bytes) -> UnitColumns:
    """Units as the consumequeue service packs them, from a position on."""
    import numpy as np

    from store.derive.queue_runs import UNIT_DTYPE

    units = np.frombuffer(packed_units, dtype=UNIT_DTYPE)
    return UnitColumns(
        queue_offset, units["commit_log_offset"].astype(np.int64), units["record_size_bytes"].astype(np.int32)
    )


def _first(run: _Run) -> int:
    return run.first
