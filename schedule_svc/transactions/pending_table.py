"""PendingTable: the half messages that wait for a verdict, in columns.

Rows are in the order of the half topic, so a row is found by its queue offset or its commit-log offset by bisection. What a
record says (topic, unique key, times, checks) is filled in later: most transactions end before anyone asks for it. A row that
ended stays until half of the rows are such, or until all are.

Memory: ROW_BYTES for each row: 68 MB for one million half messages. Nothing else grows with them.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NamedTuple

from schedule_svc.transactions.half_messages import CheckRules, HalfMessage, asked_hash, key_hash

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Places = npt.NDArray[np.intp]

# Seven columns of 8 bytes, four of 4 or less; growing leaves some room.
ROW_BYTES = 68
# Rows that ended are removed when there are so many, and more than others.
TRIM_COUNT_MIN = 4_096
# Topic number of a row whose record was not read yet.
UNREAD = -1


class DueHalf(NamedTuple):
    """A half message with which something is to be done. `is_check`: else its record is old."""

    queue_offset: int
    topic: str
    is_check: bool


class PendingTable:
    """See the top of this file; not thread-safe.

    Args:
        rules: when producers are asked.
        next_queue_offset: of the half topic: everything before it is known.
    """

    def __init__(self, rules: CheckRules, next_queue_offset: int = 0) -> None:
        self.next_queue_offset = next_queue_offset
        self._rules = rules
        self._topics: list[str] = []
        self._topic_numbers: dict[str, int] = {}
        self._choices: dict[tuple[str, ...], int] = {}  # hashes of what has more than one name; at most two of a topic
        self._ended_count = 0
        self._unread_count = 0
        self._clear()

    def __len__(self) -> int:
        """Half messages that wait."""
        return len(self._queue_offsets) - self._ended_count

    @property
    def unread_count(self) -> int:
        """Half messages that wait and whose records were not read yet."""
        return self._unread_count

    @property
    def first_queue_offset(self) -> int:
        """Every half message before it has ended."""
        self._drop_first()
        return self._queue_offsets[self._first] if self._first < len(self._queue_offsets) else self.next_queue_offset

    @property
    def first_commit_log_offset(self) -> int:
        """The commit-log offset of the first half message that waits (bytes); -1 for none."""
        self._drop_first()
        return self._commit_log_offsets[self._first] if self._first < len(self._queue_offsets) else -1

    def add(self, queue_offset: int, commit_log_offset: int, store_millis: int) -> None:
        """Add the next half message; its record is not read yet."""
        assert queue_offset >= self.next_queue_offset
        self.next_queue_offset = queue_offset + 1
        self._queue_offsets.append(queue_offset)
        self._commit_log_offsets.append(commit_log_offset)
        self._store_millis.append(store_millis)
        self._made_millis.append(0)
        self._next_check_millis.append(0)
        self._key_hashes.append(0)
        self._asked_hashes.append(0)
        self._topics_of.append(UNREAD)
        self._check_counts.append(0)
        self._unheard_counts.append(0)
        self._waits.append(1)
        self._unread_count += 1

    def pass_ended(self, queue_offset: int) -> None:
        """Note that the next half message has ended already."""
        assert queue_offset >= self.next_queue_offset
        self.next_queue_offset = queue_offset + 1

    def fill(self, queue_offset: int, half: HalfMessage) -> None:
        """Fill in what the record of a half message says; nothing when it has ended."""
        place = self._place(queue_offset)
        if place < 0:
            return
        number = self._topic_numbers.get(half.topic)
        if number is None:
            number = self._topic_numbers[half.topic] = len(self._topics)
            self._topics.append(half.topic)
        if self._topics_of[place] == UNREAD:
            self._unread_count -= 1
        self._topics_of[place] = number
        self._store_millis[place] = half.store_millis
        self._made_millis[place] = half.made_millis
        self._next_check_millis[place] = self._rules.next_check_millis(half)
        self._key_hashes[place] = key_hash(half.topic, half.unique_key)
        self._asked_hashes[place] = hashed = asked_hash(half.asked)
        if len(half.asked) > 1:
            self._choices[half.asked] = hashed
        self._check_counts[place] = min(half.check_count, 32_767)
        self._unheard_counts[place] = min(half.unheard_count, 127)

    def postpone(self, queue_offset: int, next_check_millis: int, store_millis: int) -> None:
        """Do nothing with a half message until a time (ms since 1970), and take its record for as old as this."""
        place = self._place(queue_offset)
        if place >= 0:
            self._next_check_millis[place] = next_check_millis
            self._store_millis[place] = max(store_millis, self._store_millis[place])

    def end(self, queue_offset: int) -> bool:
        """End a half message; whether it waited."""
        place = self._place(queue_offset)
        if place < 0:
            return False
        self._end_at(place)
        self._trim()
        return True

    def end_before(self, queue_offset: int) -> int:
        """End the half messages before a queue offset; how many waited."""
        stop = bisect_left(self._queue_offsets, queue_offset)
        if stop <= self._first:
            return 0
        places = [place for place in range(self._first, stop) if self._waits[place]]
        for place in places:
            self._end_at(place)
        self._trim()
        return len(places)

    def waits(self, queue_offset: int) -> bool:
        """Whether a half message waits, as far as is known."""
        return self._place(queue_offset) >= 0

    def commit_log_offset(self, queue_offset: int) -> int:
        """The commit-log offset of a half message that waits (bytes); -1 for one that does not wait."""
        place = self._place(queue_offset)
        return self._commit_log_offsets[place] if place >= 0 else -1

    def check_count(self, queue_offset: int) -> int:
        """How often producers were asked for a half message that waits."""
        place = self._place(queue_offset)
        return self._check_counts[place] if place >= 0 else 0

    def unheard_count(self, queue_offset: int) -> int:
        """How many checks of a half message that waits no producer got, as far as this life knows."""
        place = self._place(queue_offset)
        return self._unheard_counts[place] if place >= 0 else 0

    def next_check_millis(self, queue_offset: int) -> int:
        """When producers are to be asked next for a half message that waits (ms since 1970)."""
        place = self._place(queue_offset)
        return self._next_check_millis[place] if place >= 0 else 0

    def find(self, topic: str, unique_key: str) -> list[int]:
        """Queue offsets of the half messages that wait and may have this topic and unique key, the oldest first."""
        import numpy as np  # with the first half message: it takes memory

        if not len(self):
            return []
        hashes, waits = self._view(self._key_hashes), self._view(self._waits, "b")
        places = np.flatnonzero((hashes == key_hash(topic, unique_key)) & (waits != 0))
        return self._offsets_at(places)

    def unread(self, count: int, stored_before_millis: int) -> list[int]:
        """Queue offsets of the first half messages whose records were not read and were stored before a time."""
        import numpy as np

        if not self._unread_count:
            return []
        topics, waits = self._view(self._topics_of, "i"), self._view(self._waits, "b")
        stored = self._view(self._store_millis)
        places = np.flatnonzero((topics == UNREAD) & (waits != 0) & (stored < stored_before_millis))
        return self._offsets_at(places[:count])

    def due(self, now_millis: int, asked: AbstractSet[str], stored_before_millis: int, count: int) -> list[DueHalf]:
        """The first half messages with which something is to be done.

        Args:
            now_millis: now (ms since 1970).
            asked: producers of these can be asked; see HalfMessage.
            stored_before_millis: records older than this are renewed, also when nobody can be asked (ms since 1970).
            count: at most so many.
        """
        import numpy as np

        if not len(self):
            return []
        known = [asked_hash((name,)) for name in asked]
        known += [hashed for names, hashed in self._choices.items() if not asked.isdisjoint(names)]
        hashes = np.array(known, dtype=np.int64)
        topics_of, waits = self._view(self._topics_of, "i"), self._view(self._waits, "b")
        can_ask = np.isin(self._view(self._asked_hashes), hashes)
        is_over = self._view(self._check_counts, "h") >= self._rules.count_max
        checks = (self._view(self._next_check_millis) <= now_millis) & (can_ask | is_over)
        old = self._view(self._store_millis) < stored_before_millis
        places = np.flatnonzero((checks | old) & (waits != 0) & (topics_of != UNREAD))[:count]
        rows = zip(self._offsets_at(places), topics_of[places].tolist(), checks[places].tolist(), strict=True)
        return [DueHalf(queue_offset, self._topics[number], is_check) for queue_offset, number, is_check in rows]

    def page(
        self, topic: str, after: tuple[int, int], count: int, holds: Callable[[str], object] | None = None
    ) -> list[tuple[int, int, int]]:
        """The oldest half messages behind a place in the order of making.

        Args:
            topic: only those of a topic; empty: all.
            after: time of making (ms since 1970) and key hash of the place: both stay when a half message is renewed.
            count: at most so many.
            holds: only those of topics for which it is true; None: all.

        Returns:
            Time of making, key hash and queue offset of each.
        """
        import numpy as np

        if not len(self):
            return []
        made, hashes = self._view(self._made_millis), self._view(self._key_hashes)
        topics_of, waits = self._view(self._topics_of, "i"), self._view(self._waits, "b")
        wanted = (waits != 0) & (topics_of != UNREAD)
        wanted &= (made > after[0]) | ((made == after[0]) & (hashes > after[1]))
        if topic:
            wanted &= topics_of == self._topic_numbers.get(topic, -2)
        if holds is not None:
            wanted &= np.isin(topics_of, [number for number, name in enumerate(self._topics) if holds(name)])
        places = np.flatnonzero(wanted)
        if len(places) > count:  # those of equal time belong together until they are ordered by their hash
            last = np.partition(made[places], count - 1)[count - 1]
            places = places[made[places] <= last]
        places = places[np.lexsort((hashes[places], made[places]))][:count]
        return list(zip(made[places].tolist(), hashes[places].tolist(), self._offsets_at(places), strict=True))

    # -- rows

    def _clear(self) -> None:
        self._first = 0  # the rows before it have ended
        self._queue_offsets = array("q")
        self._commit_log_offsets = array("q")
        self._store_millis = array("q")
        self._made_millis = array("q")
        self._next_check_millis = array("q")
        self._key_hashes = array("q")
        self._asked_hashes = array("q")
        self._topics_of = array("i")
        self._check_counts = array("h")
        self._unheard_counts = array("b")
        self._waits = array("b")

    def _columns(self) -> Sequence[str]:
        return (
            "_queue_offsets", "_commit_log_offsets", "_store_millis", "_made_millis", "_next_check_millis",
            "_key_hashes", "_asked_hashes", "_topics_of", "_check_counts", "_unheard_counts", "_waits",
        )  # fmt: skip

    def _place(self, queue_offset: int) -> int:
        """The row of a half message that waits; -1 when it does not."""
        place = bisect_left(self._queue_offsets, queue_offset)
        is_there = place < len(self._queue_offsets) and self._queue_offsets[place] == queue_offset
        return place if is_there and self._waits[place] else -1

    def _end_at(self, place: int) -> None:
        self._waits[place] = 0
        self._ended_count += 1
        if self._topics_of[place] == UNREAD:
            self._unread_count -= 1

    def _drop_first(self) -> None:
        while self._first < len(self._waits) and not self._waits[self._first]:
            self._first += 1

    def _trim(self) -> None:
        if self._ended_count == len(self._queue_offsets):
            self._clear()
            self._ended_count = 0
            return
        if self._ended_count < TRIM_COUNT_MIN or self._ended_count < len(self):
            return
        import numpy as np

        places = np.flatnonzero(self._view(self._waits, "b"))
        for name in self._columns():
            column: array[int] = getattr(self, name)
            kept = np.frombuffer(column, dtype=column.typecode)[places]
            setattr(self, name, array(column.typecode, kept.tobytes()))
        self._ended_count = self._first = 0

    def _offsets_at(self, places: "Places") -> list[int]:
        offsets: list[int] = self._view(self._queue_offsets)[places].tolist()
        return offsets

    @staticmethod
    def _view(column: "array[int]", code: str = "q") -> Any:
        """A column for numpy; the column cannot grow while the view is there."""
        import numpy as np

        return np.frombuffer(column, dtype=code)
