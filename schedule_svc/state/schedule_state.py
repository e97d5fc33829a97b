"""ScheduleState: what the log says about the messages that wait; pure.

It is read at the begin of a life, and given to the kinds of waiting messages. They keep it from there on.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Passed(NamedTuple):
    """A place in the order in which timers are due: a time (ms since 1970), and a position among those of that time."""

    due_millis: int = 0
    queue_offset: int = 0


@dataclass(slots=True)
class TimersState:
    """The timer topic.

    Attributes:
        next_queue_offset: messages before this position ...
        passed: ... that are due before this place are done,
        pending: but for these positions, which wait.
        done: positions of others that are done, with the time when they were due (ms since 1970).
    """

    next_queue_offset: int = 0
    passed: Passed = field(default_factory=Passed)
    pending: set[int] = field(default_factory=set)
    done: dict[int, int] = field(default_factory=dict)

    def end(self, ended: Iterable[tuple[int, int]]) -> None:
        """Note messages that wait no longer: their positions, and when they were due."""
        for queue_offset, due_millis in ended:
            # One that is in neither list may be passed, or not: the list says it in both cases.
            self.pending.discard(queue_offset)
            self.done[queue_offset] = due_millis

    def is_done(self, due_millis: int, queue_offset: int) -> bool:
        """Whether a message waits no longer."""
        if queue_offset in self.done:
            return True
        is_passed = queue_offset < self.next_queue_offset and (due_millis, queue_offset) < self.passed
        return is_passed and queue_offset not in self.pending


@dataclass(slots=True)
class TransactionsState:
    """The positions at which transactions go on, in the half topic and in the topic of op records."""

    half_offset: int = 0
    op_offset: int = 0


@dataclass(slots=True)
class ScheduleState:
    """All of it. `levels`: the next position, by delay level from 1 on. `draft`: a full state that has no end yet."""

    levels: dict[int, int] = field(default_factory=dict)
    timers: TimersState = field(default_factory=TimersState)
    transactions: TransactionsState = field(default_factory=TransactionsState)
    draft: "ScheduleState | None" = None

    def begin_full(self) -> None:
        """A full state begins. It counts from its end on."""
        self.draft = ScheduleState()

    def end_full(self) -> None:
        """The full state is whole."""
        if self.draft is not None:
            self.levels, self.timers = self.draft.levels, self.draft.timers
            self.transactions, self.draft = self.draft.transactions, None
