"""CatchUp: how far a replica is that lacked much of its leader's log when its stream began."""

import threading
import time
from collections import deque
from collections.abc import Callable

from reput.commitlog.v1 import replication_pb2 as pb

RATE_SECONDS = 5.0  # the rate is that of the last ones
SAMPLE_SECONDS = 0.5
FAR_BYTES_MIN = 32 << 20  # what a replica lacks that is far behind: its progress is shown


class CatchUp:
    """Thread-safe.

    Args:
        begin_offset: where the stream began (bytes).
        end_offset: where the leader's log ended then (bytes).
        clock: seconds, rising.
    """

    def __init__(self, begin_offset: int, end_offset: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._begin_offset = begin_offset
        self.end_offset = end_offset
        self._clock = clock
        self._lock = threading.Lock()
        self._fetched_bytes = 0
        self._kept_bytes = 0
        self._samples: deque[tuple[float, int]] = deque([(clock(), 0)])

    def note(self, size_bytes: int) -> None:
        """So many bytes have come, or, negative, were thrown away."""
        with self._lock:
            self._fetched_bytes += size_bytes
            now = self._clock()
            if now - self._samples[-1][0] >= SAMPLE_SECONDS:
                self._samples.append((now, self._fetched_bytes))
                while now - self._samples[1][0] > RATE_SECONDS:
                    self._samples.popleft()

    def note_kept(self, size_bytes: int) -> None:
        """So many bytes are still there from before this process or this stream; they count as fetched, not as speed."""
        with self._lock:
            self._kept_bytes += size_bytes

    def progress(self, durable_offset: int = 0) -> pb.CatchUp:
        """How far it is now; what lies before `durable_offset` has surely come."""
        with self._lock:
            since, before = self._samples[0]
            seconds = self._clock() - since
            return pb.CatchUp(
                begin_offset=self._begin_offset,
                end_offset=self.end_offset,
                fetched_bytes=max(self._kept_bytes + self._fetched_bytes, durable_offset - self._begin_offset),
                total_bytes=self.end_offset - self._begin_offset,
                bytes_per_second=max(0, round((self._fetched_bytes - before) / seconds)) if seconds > 0 else 0,
            )
