"""Times of retention: at which hours expired files are removed, and how old each file is.

A file's age counts from the moment it was first seen complete (a record follows in a later file), by AgeClock. Its
modification time and the store times in it are not used: both come from a wall clock that may have been wrong. So the files
of a foreign store age from the day on which they were first served here.
"""

from collections.abc import Iterable

from store.errors import InvalidArgumentError

HOUR_COUNT = 24


def parse_delete_hours(text: str) -> frozenset[int]:
    """The hours in RocketMQ's `deleteWhen`: `04`, or several with `;` between them.

    Raises:
        InvalidArgumentError: there is no hour, or one is not from 0 to 23.
    """
    words = [word.strip() for word in text.split(";") if word.strip()]
    if not words or not all(word.isascii() and word.isdigit() and int(word) < HOUR_COUNT for word in words):
        raise InvalidArgumentError(
            f"{text!r} is not a list of hours: write hours from 00 to 23 with ';' between them, such as 04;16",
            field="delete_when_hours",
        )
    return frozenset(map(int, words))


class FileAges:
    """When each complete file was first seen, by its first offset; milliseconds of an AgeClock."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def restore(self, seen: dict[int, int], complete_offsets: Iterable[int]) -> None:
        """Restores what an earlier process noted, for files that still exist and are complete."""
        self._seen = {offset: seen[offset] for offset in complete_offsets if offset in seen}

    def see(self, complete_offsets: Iterable[int], now_millis: int) -> bool:
        """Notes files, and returns whether one was new. Removed files are forgotten."""
        seen = {offset: self._seen.get(offset, now_millis) for offset in complete_offsets}
        is_new = any(offset not in self._seen for offset in seen)
        self._seen = seen
        return is_new

    def age_millis(self, offset: int, now_millis: int) -> int:
        """How long ago a file was first seen complete; 0 when it never was."""
        return max(0, now_millis - self._seen.get(offset, now_millis))

    def as_dict(self) -> dict[int, int]:
        """The data for a later process: see `restore`."""
        return dict(self._seen)
