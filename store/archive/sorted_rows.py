"""Sorted rows in blocks of one size, as the indexes of an archive and of the cold tier have them; a lookup reads few blocks.

blocks   | rows 0 .. n-1 | rows n .. 2n-1 | ...     read at need, each with a check of its own
fences   | of row 0      | of row n       | ...     the first value of each block, in memory: they tell which block to read
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[Any]


class SortedRows:
    """One section of an index.

    Args:
        row_count: its rows.
        rows_per_block: of every block but the last.
        read: the rows of the blocks [begin, end), checked and joined.
        fences: the fences of a field; its argument is "" where a row is one number.
    """

    def __init__(
        self,
        row_count: int,
        rows_per_block: int,
        read: Callable[[int, int], Rows],
        fences: Callable[[str], Rows],
    ) -> None:
        self.row_count = row_count
        self._per_block = rows_per_block
        self._read = read
        self._fences = fences

    def rows(self, begin: int, end: int) -> Rows:
        """The rows [begin, end), of which there is at least one."""
        first = begin // self._per_block
        rows = self._read(first, (end - 1) // self._per_block + 1)
        return rows[begin - first * self._per_block : end - first * self._per_block]

    def search(
        self, value: int, field: str = "", *, right: bool = False, begin: int = 0, end: int | None = None
    ) -> int:
        """The row in [begin, end), whose values rise, before which a value belongs; with `right` behind equal ones.

        Args:
            value: of the field.
            field: of the rows; "" where a row is one number.
            right: see above.
            begin: a row.
            end: a row; None: behind the last.
        """
        end = self.row_count if end is None else end
        if begin >= end:
            return begin
        fences = self._fences(field)
        side: Any = "right" if right else "left"
        wanted = fences.dtype.type(value)
        first = -(-begin // self._per_block)  # the first block that begins there
        inside = fences[first : (end - 1) // self._per_block + 1]
        number = first - 1 + int(np.searchsorted(inside, wanted, side=side))
        if number < begin // self._per_block:
            return begin
        low = max(begin, number * self._per_block)
        rows = self.rows(low, min(end, (number + 1) * self._per_block))
        return low + int(np.searchsorted(rows[field] if field else rows, wanted, side=side))

    def find(self, value: int, field: str = "") -> tuple[int, Any] | None:
        """The number of the last row with a value, and the row; None without any. Reads one block."""
        for first, rows in self.equal(value, field):
            return (first + len(rows) - 1, rows[-1]) if len(rows) else None
        return None

    def equal(self, value: int, field: str = "") -> Iterator[tuple[int, Rows]]:
        """The rows with a value, a block at a time, the last block first: the number of the first such row, and the rows."""
        fences = self._fences(field)
        wanted = fences.dtype.type(value)
        number = int(np.searchsorted(fences, wanted, side="right")) - 1
        while number >= 0:
            at = number * self._per_block
            rows = self.rows(at, min(at + self._per_block, self.row_count))
            values = rows[field] if field else rows
            begin, end = (int(np.searchsorted(values, wanted, side=side)) for side in ("left", "right"))
            yield at + begin, rows[begin:end]
            if begin:
                return
            number -= 1
