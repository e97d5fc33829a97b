"""Filters by their expressions, the least recently used ones forgotten."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from store.errors import IllegalFilterError

# A filter takes some 100 bytes for each character of its expression, so all of them at most 100 MiB.
CACHED_CHARACTERS_MAX: Final = 1024 * 1024
_ENTRY_CHARACTERS: Final = 256  # what an entry takes however short it is
Filter = TypeVar("Filter")


class FilterCache(Generic[Filter]):
    """Filters that were made, and expressions that were refused.

    Args:
        characters_max: of all expressions that are kept, each counted as 256 more.
    """

    def __init__(self, characters_max: int = CACHED_CHARACTERS_MAX) -> None:
        self._characters_max = characters_max
        self._characters = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, str], Filter | IllegalFilterError] = OrderedDict()

    def get(self, kind: str, expression: str, make: Callable[[str], Filter]) -> Filter:
        """The filter of an expression, made if it is not known.

        Raises:
            IllegalFilterError: `make` raises it, or did so before.
        """
        key = (kind, expression)
        with self._lock:
            known = self._entries.get(key)
            if known is not None:
                self._entries.move_to_end(key)
        if known is None:
            try:
                known = make(expression)
            except IllegalFilterError as error:
                known = error
            self._keep(key, known)
        if isinstance(known, IllegalFilterError):
            raise IllegalFilterError(
                known.message, **known.metadata
            )  # an error has one traceback, its callers are many
        return known

    def _keep(self, key: tuple[str, str], entry: Filter | IllegalFilterError) -> None:
        size = len(key[1]) + _ENTRY_CHARACTERS
        if size > self._characters_max:
            return
        with self._lock:
            if key not in self._entries:
                self._entries[key] = entry
                self._characters += size
            while self._characters > self._characters_max:
                (_, expression), _ = self._entries.popitem(last=False)
                self._characters -= len(expression) + _ENTRY_CHARACTERS
