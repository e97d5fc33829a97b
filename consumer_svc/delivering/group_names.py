"""GroupNames: which groups a list is asked for, and which page of them."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupNames:
    """A page of groups by name.

    Attributes:
        count_max: of the page; 0: all.
        after: only names behind it.
        contains: what names hold, in upper or lower case.
        only: the only name; empty: all.
    """

    count_max: int = 0
    after: str = ""
    contains: str = ""
    only: str = ""

    def page(self, names: Iterable[str]) -> tuple[list[str], bool]:
        """The names of the page in order, and whether there are more behind them."""
        contains = self.contains.lower()
        wanted = (
            name
            for name in names
            if name > self.after and self.only in ("", name) and (not contains or contains in name.lower())
        )
        if not self.count_max:
            return sorted(wanted), False
        first = heapq.nsmallest(self.count_max + 1, wanted)
        return first[: self.count_max], len(first) > self.count_max


ALL_GROUPS = GroupNames()
