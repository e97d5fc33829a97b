"""Runs of plainly good records, checked by the kernel `log_walk_kernel`; for the walk of the log."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from store.kernels import loading

KERNEL = "log_walk_kernel"
QueueOffsets = Mapping[tuple[str, int], int]
# Good records: the piece of the log, where in it they begin and end, and the commit-log offset of their begin.
SeeStretch = Callable[[bytes, int, int, int], None]

# Where the kernel refuses one record after another it is asked again behind ever more of them.
PLAIN_RUN_COUNT_MAX = 1024
# A run shorter than both did not pay.
RUN_COUNT_MIN = 8
RUN_BYTES_MIN = 1 << 16


class RecordRun(NamedTuple):
    """Good records one behind the other.

    Attributes:
        record_count: how many, 1 at least.
        last_at: where in the chunk the last one starts.
        next_at: the first byte behind it in the chunk.
        is_guarded: whether the last one carries a `__CRC32#`.
        store_time_millis_max: the greatest store time.
    """

    record_count: int
    last_at: int
    next_at: int
    is_guarded: bool
    store_time_millis_max: int


class RecordRuns:
    """Finds runs, when the kernel is loaded; one for a walk.

    Args:
        see_run: takes the queue offset of the last record of each queue in a run.
        see_stretch: takes each run too, see `SeeStretch`.
    """

    def __init__(self, see_run: Callable[[QueueOffsets], None], see_stretch: SeeStretch | None = None) -> None:
        self._see_run = see_run
        self._see_stretch = see_stretch
        self._plain_left = 0
        self._plain_run_count = 1
        self._queues: np.ndarray[tuple[int, int], np.dtype[np.int64]] | None = None
        self._slots = np.empty(0, dtype=np.int32)

    def check(self, chunk: bytes, at: int, commit_log_offset: int, *, is_guarded: bool) -> RecordRun | None:
        """The run that starts at byte `at`; None when the record there is to be judged without the kernel.

        Args:
            chunk: bytes of the log.
            at: where in it the record starts.
            commit_log_offset: of that place.
            is_guarded: whether the record before carries a `__CRC32#`.
        """
        if self._plain_left:
            self._plain_left -= 1
            return None
        kernel = loading.ready(KERNEL)
        if kernel is None or at >= len(chunk):
            return None
        if self._queues is None:
            self._queues = np.empty((kernel.ROW_COUNT, kernel.QUEUE_COUNT_MAX), dtype=np.int64)
            self._slots = np.empty(kernel.SLOT_COUNT, dtype=np.int32)
        data = np.frombuffer(chunk, dtype=np.uint8)
        record_count, last_at, next_at, is_last_guarded, store_time_millis, queue_count = kernel.check_run(
            data, at, commit_log_offset, is_guarded, self._queues, self._slots
        )
        if record_count >= RUN_COUNT_MIN or next_at - at >= RUN_BYTES_MIN:
            self._plain_run_count = 1
        else:
            self._plain_left = self._plain_run_count
            self._plain_run_count = min(2 * self._plain_run_count, PLAIN_RUN_COUNT_MAX)
        if not record_count:
            return None
        topic_ats, topic_sizes, queue_ids, queue_offsets = self._queues[:, :queue_count].tolist()
        queue_offset_of: dict[tuple[str, int], int] = {}
        for topic_at, topic_size, queue_id, queue_offset in zip(
            topic_ats, topic_sizes, queue_ids, queue_offsets, strict=True
        ):
            queue_offset_of[str(chunk[topic_at : topic_at + topic_size], "ascii"), queue_id] = queue_offset
        self._see_run(queue_offset_of)
        if self._see_stretch is not None:
            self._see_stretch(chunk, at, next_at, commit_log_offset)
        return RecordRun(record_count, last_at, next_at, is_last_guarded, store_time_millis)
