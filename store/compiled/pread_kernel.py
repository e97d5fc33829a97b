"""Reading a file from inside a kernel: no call, no buffer and no object of Python for each piece of it."""

from typing import Any

import numpy as np
from numba import types

from store.compiled.compiling import Bytes, Number, compiled

# ssize_t pread(int fd, void *buf, size_t count, off_t offset) of the C library; a pointer is a number here.
_pread: Any = types.ExternalFunction("pread", types.intp(types.intc, types.uintp, types.uintp, types.int64))


@compiled
def pread(fd: Number, offset: Number, size: Number, target: Bytes, at: Number) -> Number:
    """Reads bytes of a file into target[at:at + size], which must lie inside; returns how many, -1 when it failed.

    Fewer than `size`: the file ends there, or a signal came.
    """
    return np.int64(
        _pread(np.int32(fd), np.uint64(target.ctypes.data) + np.uint64(at), np.uint64(size), np.int64(offset))
    )


def touch() -> None:
    """Compiles it; no file has the number -1."""
    pread(-1, 0, 0, np.zeros(1, dtype=np.uint8), 0)
