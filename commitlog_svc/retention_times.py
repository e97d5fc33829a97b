"""Times of retention: at which hours expired files go, and how old each file is.

A file's age counts from the moment it was first seen complete (a record follows in a later file), by AgeClock. Neither its
modification time nor the store times in it are asked: both come from a wall clock that may have been wrong. Files of a
foreign store therefore age from the day on which they were first served here.
"""

from collections.abc import Iterable

from store.errors import InvalidArgumentError

HOUR_COUNT = 24


def parse_delete_hours(text: str) -> frozenset[int]:
    """The hours in RocketMQ's `deleteWhen`: `04`, or several with `;` between them.

    Raises:
        InvalidArgumentError: none, or one that is no hour from 0 to 23.
    """
    words = [word.strip() for word in text.split(";") if word.strip()]
    if not words or not all(word.isascii() and word.isdigit() and int(word) < HOUR_COUNT for word in words):
        raise InvalidArgumentError(
            f"{text!r} is no list of hours: write hours from 00 to 23 with ';' between them, such as 04;16",
            field="delete_when_hours",
        )
    return frozenset(map(int, words))


class FileAges:
    """When each complete file was first seen, by its first offset; milliseconds of an AgeClock."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def restore(self, seen: dict[int, int], complete_offsets: Iterable[int]) -> None:
        """Takes over what an earlier life saw of files that are still there and complete."""
        self._seen = {offset: seen[offset] for offset in complete_offsets if offset in seen}

    def see(self, complete_offsets: Iterable[int], now_millis: int) -> bool:
        """Notes files; whether one was new. Files that are gone are forgotten."""
        seen = {offset: self._seen.get(offset, now_millis) for offset in complete_offsets}
        is_new = any(offset not in self._seen for offset in seen)
        self._seen = seen
        return is_new

    def age_millis(self, offset: int, now_millis: int) -> int:
        """How long ago a file was first seen complete; 0 when it never was."""
        return max(0, now_millis - self._seen.get(offset, now_millis))

    def as_dict(self) -> dict[int, int]:
        """What a later life needs."""
        return dict(self._seen)
