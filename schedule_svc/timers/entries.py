"""Entries: what is known of some timers, in columns, sorted by the order in which they are due.

    due_millis          i64   when the message is due (ms since 1970)
    queue_offset        i64   its position in queue 0 of the timer topic
    commit_log_offset   i64   its record (bytes)
    key                 i64   hash of its topic and unique key (`timer_record.py`); 0: it has none
    size_bytes          i32   of its record

36 bytes each.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
ENTRY_SIZE_BYTES = 36


@dataclass(frozen=True, slots=True)
class Entries:
    """See the top of this file."""

    dues_millis: Int64s
    queue_offsets: Int64s
    commit_log_offsets: Int64s
    keys: Int64s
    sizes_bytes: Int32s

    def __len__(self) -> int:
        return len(self.dues_millis)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int, int]]) -> "Entries":
        """Entries from rows with the columns in their order, sorted."""
        table = np.array(rows, dtype=np.int64).reshape(-1, 5)
        sizes_bytes = table[:, 4].astype(np.int32)
        return cls(table[:, 0], table[:, 1], table[:, 2], table[:, 3], sizes_bytes).sorted()

    @classmethod
    def joined(cls, parts: Sequence["Entries"]) -> "Entries":
        """All of them, sorted."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.of(())
        return cls(
            np.concatenate([part.dues_millis for part in parts]),
            np.concatenate([part.queue_offsets for part in parts]),
            np.concatenate([part.commit_log_offsets for part in parts]),
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.sizes_bytes for part in parts]),
        ).sorted()

    def sorted(self) -> "Entries":
        """The same by due time and position."""
        return self.pick(np.lexsort((self.queue_offsets, self.dues_millis)))

    def pick(self, at: npt.NDArray[np.intp] | Mask | slice) -> "Entries":
        """Some of them; a slice is a view."""
        return Entries(
            self.dues_millis[at],
            self.queue_offsets[at],
            self.commit_log_offsets[at],
            self.keys[at],
            self.sizes_bytes[at],
        )

    def place(self, due_millis: int, queue_offset: int = 0) -> int:
        """The index of the first one that is not before a place in the order."""
        begin = int(np.searchsorted(self.dues_millis, due_millis))
        end = int(np.searchsorted(self.dues_millis[begin:], due_millis, side="right")) + begin
        return begin + int(np.searchsorted(self.queue_offsets[begin:end], queue_offset))
