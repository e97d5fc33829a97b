"""The time of a flush by the disk itself, shown beside figures that include flushes."""

import os
import pathlib
import time

from benchmarks.figures import quantile

BLOCK = bytes(4096)
FLUSH_COUNT = 200


def fdatasync_p99_millis(directory: pathlib.Path, count: int = FLUSH_COUNT) -> float:
    """p99 of an fdatasync after a write of 4 KiB into a preallocated file, as a commit log does."""
    path = directory / "fdatasync.probe"
    samples = []
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.posix_fallocate(descriptor, 0, count * len(BLOCK))
        for i in range(count):
            os.pwrite(descriptor, BLOCK, i * len(BLOCK))
            start = time.perf_counter()
            os.fdatasync(descriptor)
            samples.append((time.perf_counter() - start) * 1000)
    finally:
        os.close(descriptor)
        path.unlink()
    return quantile(samples, 0.99)
