"""The messages of a queue by message group, for a queue of an ordered group; pure.

It finds what lies before and behind a message in flight without a look at all of them. A note may be out of date, so it looks
each position up in the state before it answers, and drops notes of what is over. The state tells it of additions only:

- a position that is in flight or waits now, with its message group;
- a lease that was released and counts again.
"""

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain
from typing import Protocol

# Positions of a message group that are looked through one by one: most message groups have few, and a tuple is small.
FEW_COUNT_MAX = 8
# Notes for each message that there is, before they are made anew.
NOTES_PER_MESSAGE_MAX = 2


class Grouped(Protocol):
    """A message of a message group, in flight or waiting."""

    @property
    def queue_offset(self) -> int:
        """Its position."""

    @property
    def message_group(self) -> str:
        """Its message group."""


class InFlight(Grouped, Protocol):
    """A message in flight."""

    @property
    def is_released(self) -> bool:
        """This delivery is no attempt."""


@dataclass(frozen=True, slots=True)
class _Many:
    """Notes of a message group with more than a few messages.

    Attributes:
        first: a heap that has every position in flight or waiting, the lowest first.
        counting: ascending; it has every position in flight that is not released.
    """

    first: list[int]
    counting: list[int]


class MessageGroups:
    """See the top of this file. Not thread-safe.

    Args:
        leases: messages in flight, by position; the owner changes it and calls `note`.
        waiting: likewise, the messages that wait.
    """

    def __init__(self, leases: Mapping[int, InFlight], waiting: Mapping[int, Grouped]) -> None:
        self._leases = leases
        self._waiting = waiting
        self._noted: dict[str, tuple[int, ...] | _Many] = {}
        self._note_count = 0
        everything: chain[Grouped] = chain(leases.values(), waiting.values())
        for one in sorted(everything, key=lambda one: one.queue_offset):
            self.note(one)

    @property
    def is_outdated(self) -> bool:
        """Whether so much of it is over that it is to be made anew."""
        return self._note_count > NOTES_PER_MESSAGE_MAX * (len(self._leases) + len(self._waiting))

    def note(self, one: Grouped) -> None:
        """A message is in flight or waits now, or its delivery is an attempt again."""
        at, noted = one.queue_offset, self._noted.get(one.message_group, ())
        if isinstance(noted, _Many):
            heappush(noted.first, at)
            insort(noted.counting, at)
        elif at in noted:
            return
        else:
            noted = (*noted, at)
            is_few = len(noted) <= FEW_COUNT_MAX
            self._noted[one.message_group] = noted if is_few else _Many(sorted(noted), sorted(noted))
        self._note_count += 1

    def behind(self, message_group: str, queue_offset: int) -> Sequence[int]:
        """The positions in flight behind this one whose deliveries are not released, ascending."""
        noted = self._noted.get(message_group, ())
        if not isinstance(noted, _Many):
            return sorted(at for at in noted if at > queue_offset and self._counts(message_group, at))
        found: list[int] = []
        while noted.counting and noted.counting[-1] > queue_offset:
            at = noted.counting.pop()
            if self._counts(message_group, at) and at not in found[-1:]:
                found.append(at)
        found.reverse()
        noted.counting.extend(found)
        return found

    def is_behind(self, message_group: str, queue_offset: int) -> bool:
        """Whether an earlier position is in flight or waits."""
        noted = self._noted.get(message_group, ())
        if not isinstance(noted, _Many):
            return any(at < queue_offset and self._is_there(message_group, at) for at in noted)
        while noted.first and noted.first[0] < queue_offset:
            if self._is_there(message_group, noted.first[0]):
                return True
            heappop(noted.first)
        return False

    def _counts(self, message_group: str, at: int) -> bool:
        lease = self._leases.get(at)
        return lease is not None and lease.message_group == message_group and not lease.is_released

    def _is_there(self, message_group: str, at: int) -> bool:
        return any(
            one is not None and one.message_group == message_group
            for one in (self._leases.get(at), self._waiting.get(at))
        )
