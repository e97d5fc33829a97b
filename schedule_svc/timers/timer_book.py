"""TimerBook: what this life knows of the timers: which wait, and which of those that are not passed are done.

A timer is done when it was delivered, rolled or recalled. The index gives timers in the order in which they are due and forgets
them. So only those have to be remembered as done that are still in it: recalled ones, and those that the changes behind the
newest full state name. Each is forgotten when its turn comes.

Its methods are called under the lock of the life.
"""

import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from reput.schedule.v1 import state_pb2
from schedule_svc.life import NEVER_MILLIS, Life
from schedule_svc.state.codec import timers_change, timers_pieces
from schedule_svc.state.schedule_state import TimersState
from schedule_svc.timers.runs import Entries, Int64s, SavedRuns
from schedule_svc.timers.timer_index import TimerIndex
from schedule_svc.timers.timer_record import TIMER_QUEUE, TimerFacts
from store.format.delivery.timer_due import PRECISION_MILLIS
from store.format.topic import TIMER_TOPIC

# Records that take back a message which is not known yet. More are forgotten, the oldest first: such messages are delivered.
BACK_COUNT_MAX = 100_000


class TimerBook:
    """See the top of this file.

    Args:
        life: what the kinds share.
        index: the timers that wait.
        state: as the log has it.

    Attributes:
        done: positions that are done and may still be in the index, with the time when they were due (ms since 1970).
        in_hand: taken from the index, and not yet submitted.
        kept: positions that wait, but are in the index at another time than their records say.
        on_added: called when there are new timers, not under the lock.
        is_known: everything of the log as it was at the begin of the life is in the index.
        delivered_count: messages appended.
        recalled_count: messages recalled.
        skipped_count: messages that were not there any more, or could not be delivered.
    """

    def __init__(self, life: Life, index: TimerIndex, state: TimersState) -> None:
        self.index = index
        self.done = state.done
        self.in_hand = Entries.of(())
        self.kept: set[int] = set()
        self.on_added: Callable[[], None] = lambda: None
        self.is_known = False
        self.delivered_count = self.recalled_count = self.skipped_count = 0
        self._life = life
        self._state = state
        self._has_changed = bool(state.done or state.passed.due_millis)
        self._tombstone_count = 0
        self._added = threading.Condition()
        self._backs: dict[tuple[int, int], None] = {}

    def load(self, saved: SavedRuns | None, min_offset: int) -> None:
        """Begin with the files, or with nothing."""
        self.index.load(saved, self._state, min_offset)
        self.done = {offset: due_millis for offset, due_millis in self.done.items() if offset >= min_offset}
        self._state.done = self.done
        self._tombstone_count = self.index.count_in(self._sorted_done())

    def has_state(self) -> bool:
        """Whether the log must keep anything."""
        return self._has_changed

    def pending_count(self) -> int:
        """Messages that wait."""
        return max(0, self.index.count() + len(self.in_hand) - self._tombstone_count)

    def pieces(self) -> Iterator[state_pb2.FullState]:
        """What the full state says."""
        if self._has_changed:
            if self.is_known:
                next_queue_offset, passed, late = self.index.summary()
                waiting = {*late, *self.in_hand.queue_offsets.tolist(), *self.kept}
            else:  # nothing was delivered since the state was read
                next_queue_offset, passed = self._state.next_queue_offset, self._state.passed
                waiting = self._state.pending
            done = [
                (offset, due_millis)
                for offset, due_millis in sorted(self.done.items())
                if offset >= next_queue_offset or (due_millis, offset) >= passed
            ]
            yield from timers_pieces(next_queue_offset, passed, sorted(waiting - self.done.keys()), done)

    def change(self, ended: Sequence[tuple[int, int]]) -> state_pb2.Change:
        """The change that says that timers are done: their positions, and when they were due (ms since 1970)."""
        self._has_changed = True
        return timers_change(sorted(ended))

    def add(
        self, rows: Sequence[tuple[int, int, TimerFacts, int]], next_queue_offset: int, last_log_offset: int
    ) -> list[tuple[int, int]]:
        """Add a page of the timer topic.

        Args:
            rows: position, commit log offset, what the record says, size of the record (bytes).
            next_queue_offset: the position behind the page.
            last_log_offset: of its last record (bytes).

        Returns:
            What is done by this, taken back or stored again by a broker: positions, and when they are due (ms since 1970).
        """
        entries: list[tuple[int, int, int, int, int]] = []
        ended: list[tuple[int, int]] = []
        for queue_offset, commit_log_offset, facts, size_bytes in rows:
            if facts.takes_back:
                continue
            if queue_offset in self.done:
                self._tombstone_count += 1  # it is forgotten when its turn comes
            elif self._state.is_done(facts.due_millis, queue_offset):
                continue
            elif (facts.slot_millis, facts.key) in self._backs:
                ended.append((queue_offset, facts.due_millis))
            entries.append((facts.due_millis, queue_offset, commit_log_offset, facts.key, size_bytes))
        self.index.add(Entries.of(entries), next_queue_offset, last_log_offset)
        self._end(ended)
        for queue_offset, _, facts, _ in rows:
            if facts.takes_back:
                found = self.waiting(facts.slot_millis, facts.slot_millis + PRECISION_MILLIS, facts.key)
                before = _both_of(found)
                self._note_back(facts)
            elif facts.roll_count and facts.key:
                # The message before it waits in the same second, and is the same one.
                found = self.waiting(facts.slot_millis, facts.slot_millis + PRECISION_MILLIS, facts.key)
                before = [one for one in sorted(_both_of(found)) if one[0] < queue_offset][:1]
            else:
                continue
            self._end(before)
            ended += before
        return ended

    def note_added(self) -> None:
        """A page was added; not under the lock."""
        with self._added:
            self._added.notify_all()
        self.on_added()

    def wait_until_known(self, timeout_seconds: float) -> bool:
        """Wait until everything that the log has now is in the index; False when the time ran out. Not under the lock."""
        end = self._life.reader.recent.end(TIMER_TOPIC, TIMER_QUEUE)
        with self._added:
            return self._added.wait_for(lambda: self.is_known and self.index.next_queue_offset >= end, timeout_seconds)

    def waiting(self, after_millis: int, until_millis: int, key: int) -> Entries:
        """The messages of a key that wait, due after a time, and at another one or before."""
        found = self.index.find(after_millis, until_millis, key)
        return found.pick(
            np.array([offset not in self.done for offset in found.queue_offsets.tolist()], dtype=np.bool_)
        )

    def end(self, due_millis: int, queue_offset: int) -> bool:
        """Note that a message is done; False when it does not wait here: it was done before, or is being delivered."""
        if queue_offset in self.done or not self.index.has(due_millis, queue_offset):
            return False
        self._end([(queue_offset, due_millis)])
        return True

    def end_unusable(self, queue_offsets: Sequence[int]) -> list[tuple[int, int]]:
        """Note that messages are done that never come into the index, as it is not known when they are due.

        Returns:
            Their positions, without those that were done before, and a time that is never passed.
        """
        ended = [(offset, NEVER_MILLIS) for offset in queue_offsets if offset not in self.done]
        self.done.update(ended)
        return ended

    def count(self, delivered_count: int, skipped_count: int) -> None:
        """Count messages whose end is in the log."""
        with self._life.lock:
            self.delivered_count += delivered_count
            self.skipped_count += skipped_count

    def take(self, until_millis: int, count: int) -> Entries:
        """The messages in hand, else the next ones that are due; without those that are done."""
        if not len(self.in_hand):
            self.in_hand = self.index.take(until_millis, count)
        if self.done and len(self.in_hand):
            waits = np.array(
                [offset not in self.done for offset in self.in_hand.queue_offsets.tolist()], dtype=np.bool_
            )
            gone = self.in_hand.pick(~waits).queue_offsets.tolist()
            self.in_hand = self.in_hand.pick(waits)
            for queue_offset in gone:
                del self.done[queue_offset]
            self._tombstone_count -= len(gone)
            self.index.confirm(len(gone))
        return self.in_hand

    def put_back(self, entries: Entries) -> None:
        """Entries that were in hand wait until the time that they have now."""
        self.kept.update(entries.queue_offsets.tolist())
        self.index.put_back(entries)

    def note_dropped(self, count: int) -> None:
        """So many entries that are done were taken out of the index before their turn; they stay done."""
        self._tombstone_count -= count

    def forget_removed(self, min_offset: int) -> None:
        """Forget what is done before the first position of the topic that is out of the index: it never comes again."""
        known = self.index.count_in(self._sorted_done())
        if known < len(self.done):
            here = np.array(sorted(offset for offset in self.done if offset < min_offset), dtype=np.int64)
            if not self.index.count_in(here):
                for offset in here.tolist():
                    del self.done[offset]

    def _end(self, ended: Sequence[tuple[int, int]]) -> None:
        self.done.update(ended)
        self._tombstone_count += len(ended)

    def _note_back(self, facts: TimerFacts) -> None:
        """Remember a record that takes back messages which may come behind it."""
        if facts.slot_millis + PRECISION_MILLIS >= self._life.clock.millis():
            self._backs[facts.slot_millis, facts.key] = None
            if len(self._backs) > BACK_COUNT_MAX:
                del self._backs[next(iter(self._backs))]

    def _sorted_done(self) -> Int64s:
        return np.array(sorted(self.done), dtype=np.int64)


def _both_of(entries: Entries) -> list[tuple[int, int]]:
    """Positions, and when they are due."""
    return list(zip(entries.queue_offsets.tolist(), entries.dues_millis.tolist(), strict=True))
