"""Outcomes: what became of the half messages that ended last."""

from collections import OrderedDict
from enum import Enum

# Half messages that are remembered: some 150 bytes each.
OUTCOME_COUNT_MAX = 65_536


class Outcome(Enum):
    """What became of a half message; the value is said to a verdict that comes after it."""

    COMMITTED = "it was committed before"
    ROLLED_BACK = "it was rolled back before"
    GIVEN_UP = "no producer knew a verdict in time, so it was moved to TRANS_CHECK_MAX_TIME_TOPIC"
    DROPPED = "no producer knew a verdict in time, and the log did not take it again, so only its half message has it"
    REMOVED = "retention removed its half message before a verdict came"
    ENDED = "it had its verdict before, or was given up"
    UNKNOWN = "there is no half message of it: it was never sent, had its verdict before, or was given up"


class Outcomes:
    """By the queue offset of the half message; a renewed one leads to its successor. Not thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, Outcome | int] = OrderedDict()

    def note(self, queue_offset: int, outcome: "Outcome | int") -> None:
        """Remember what became of a half message: an outcome, or the queue offset of the record that renews it."""
        self._known[queue_offset] = outcome
        if len(self._known) > OUTCOME_COUNT_MAX:
            self._known.popitem(last=False)

    def of(self, queue_offset: int) -> "Outcome | int | None":
        """What became of a half message and its successors; the last known successor, None when nothing is known."""
        found: Outcome | int | None = None
        following: Outcome | int | None = queue_offset
        while isinstance(following, int):
            following = self._known.get(following)
            found = following if following is not None else found
        return found
