"""Filling an index file from its first entry to its last, as a rebuild does: `IndexFileState` in one pass over the keys.

The online builder plans a run before it writes it, so that a failed write changes nothing (`IndexFileState.plan`, which
sorts). A rebuild writes a file that nobody reads yet: it takes each key as it comes. The plain twin is `plan` and `commit`.
"""

import numpy as np
import numpy.typing as npt

from store.builders.index_state import IndexFileState, Ints
from store.format.index_layout import ENTRY_SIZE, key_hash
from store.kernels import loading

KERNEL = "index_fill_kernel"


def key_hashes(texts: bytes, ends: Ints) -> npt.NDArray[np.int32]:
    """The index hashes (`index_layout.key_hash`) of many `topic#key` texts.

    Args:
        texts: all of them in UTF-8, one behind the other.
        ends: where each ends in `texts`, rising.
    """
    hashes = np.zeros(len(ends), dtype=np.int32)
    kernel, done = loading.ready(KERNEL), 0
    data = np.frombuffer(texts, dtype=np.uint8)
    while done < len(ends):
        begin = int(ends[done - 1]) if done else 0
        if kernel is not None:
            data.flags.writeable = False
            done += kernel.hash_texts(data[begin:], ends[done:] - begin, hashes[done:])
        if done < len(ends):  # one that is not ASCII, or no kernel
            begin = int(ends[done - 1]) if done else 0
            hashes[done] = key_hash(str(texts[begin : int(ends[done])], "utf-8"))
            done += 1
    return hashes


class IndexFiller:
    """Fills one file.

    Args:
        state: of a file that this class has filled from its first entry on.
        run_key_count_max: keys a call may bring; their entries are made in one buffer of 20 bytes for each.
    """

    def __init__(self, state: IndexFileState, run_key_count_max: int) -> None:
        self.state = state
        self._words = np.empty(run_key_count_max * ENTRY_SIZE // 4, dtype=np.uint32)

    def fill(self, hashes: npt.NDArray[np.int32], offsets: Ints, times_millis: Ints) -> memoryview:
        """Makes keys part of the file; their entries as bytes, valid until the next call.

        Args:
            hashes: key hashes (`index_layout.key_hash`).
            offsets: each key's commit-log offset, in bytes.
            times_millis: each key's store time.
        """
        state, count = self.state, len(hashes)
        assert count <= min(state.room, len(self._words) * 4 // ENTRY_SIZE), count
        kernel = loading.ready(KERNEL)
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
