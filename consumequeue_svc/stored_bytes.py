"""StoredBytes: how many bytes of the log are records of a queue; a function of its units, and so of the log.

What was counted is not read again. Since the last time, the queue has units more, which are added, and the log begins later,
so units of what went are taken away:

    counted before            [ begin ............ end )
    now                            [ begin ............ end )
                              taken                    added

Where units to be taken are gone with their file, or the queue was cut or begun anew, all of it is counted again: 0.1 s for
4 million messages.
"""

import threading
from typing import NamedTuple

from consumequeue_svc.consume_queue import ConsumeQueue
from store.format.derived.queue_unit import record_bytes_of

# Units that are read at once: 1.3 MB.
READ_UNIT_COUNT = 65_536
# Retention may remove files of the queue while it is counted; then it is counted from the new begin on.
COUNT_MAX = 4


class Counted(NamedTuple):
    """The records of the units [begin, end) of a queue, in its generation."""

    generation: int
    begin: int
    end: int
    size_bytes: int


class StoredBytes:
    """See above; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[str, Counted] = {}  # by the folder of the queue

    def of(self, queue: ConsumeQueue, log_first_offset: int) -> int:
        """Bytes of a queue's records that begin at this offset of the log (bytes) or behind it."""
        name = queue.units.directory_name
        with self._lock:
            counted = self._counted.get(name)
        for _ in range(COUNT_MAX):
            counted = _count(queue, log_first_offset, counted)
            if queue.units.begin <= counted.begin and queue.generation == counted.generation:
                break
            counted = None  # its first files went meanwhile
        if counted is None:
            return 0  # it is being built again, or loses its files faster than they can be counted
        with self._lock:
            self._counted[name] = counted
        return counted.size_bytes


def _count(queue: ConsumeQueue, log_first_offset: int, counted: Counted | None) -> Counted:
    generation, units = queue.generation, queue.units
    end = units.end
    begin = min(units.min_offset(log_first_offset), end)
    if counted is None or counted.generation != generation or not _goes_on(counted, units.begin, begin, end):
        return Counted(generation, begin, end, _bytes_of(queue, begin, end))
    size_bytes = counted.size_bytes + _bytes_of(queue, counted.end, end) - _bytes_of(queue, counted.begin, begin)
    if units.begin > counted.begin:  # what was to be taken away went while it was read
        return Counted(generation, begin, end, _bytes_of(queue, begin, end))
    return Counted(generation, begin, end, size_bytes)


def _goes_on(counted: Counted, first: int, begin: int, end: int) -> bool:
    """Whether the range of before, and what is to be taken from it, can be read."""
    return first <= counted.begin <= begin <= counted.end <= end


def _bytes_of(queue: ConsumeQueue, begin: int, end: int) -> int:
    return sum(
        record_bytes_of(queue.units.read_bytes(at, min(at + READ_UNIT_COUNT, end)))
        for at in range(begin, end, READ_UNIT_COUNT)
    )
