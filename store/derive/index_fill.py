"""Fills an index file from its first entry to its last, as a rebuild does, with the compiled twin of `IndexFileState`.

The builder plans a run before it writes it, so that a failed write changes nothing; `IndexFileState.plan` sorts for that.
A rebuild writes a file that no process reads yet: the kernel takes each key as it comes. Without the kernel `plan` and
`commit` do the work.
"""

import numpy as np
import numpy.typing as npt

from store.compiled import loading
from store.derive.index_state import IndexFileState, Ints
from store.format.derived.index_layout import ENTRY_SIZE

KERNEL = "store.derive.index_fill_kernel"


class IndexFiller:
    """Fills one file.

    Args:
        state: of a file that this class alone fills, from its first entry on.
        run_key_count_max: keys that one call may bring; the buffer takes 20 bytes for each.
    """

    def __init__(self, state: IndexFileState, run_key_count_max: int) -> None:
        self.state = state
        self._words = np.empty(run_key_count_max * ENTRY_SIZE // 4, dtype=np.uint32)

    def fill(self, hashes: npt.NDArray[np.int32], offsets: Ints, times_millis: Ints) -> memoryview:
        """Adds keys to the file; returns their entries as bytes, valid until the next call.

        Args:
            hashes: key hashes (`index_layout.key_hash`).
            offsets: each key's commit-log offset, in bytes.
            times_millis: each key's store time.
        """
        state, count = self.state, len(hashes)
        assert count <= min(state.room, len(self._words) * 4 // ENTRY_SIZE), count
        kernel = loading.load(KERNEL)
        if kernel is None or not count:
            run = state.plan(hashes.astype(np.int64), offsets, times_millis)
            state.commit(run)
            return memoryview(run.data)
        header = state.header
        opened = kernel.fill_entries(
            hashes, offsets, times_millis, header.entry_count, header.begin_time_millis, state.heads, self._words
        )
        assert opened >= 0, (count, header)
        if header.entry_count <= 1:
            header = header._replace(begin_time_millis=int(times_millis[0]), begin_commit_log_offset=int(offsets[0]))
        state.header = header._replace(
            end_time_millis=int(times_millis[-1]),
            end_commit_log_offset=int(offsets[-1]),
            used_slot_count=header.used_slot_count + opened,
            entry_count=header.entry_count + count,
        )
        return self._words.data.cast("B")[: count * ENTRY_SIZE]
