"""Reading a file from inside a kernel: no call, no buffer and no object of Python for each piece of it."""
# numba and llvmlite build code from untyped functions.
# mypy: allow-untyped-defs, allow-untyped-calls

import ctypes
from typing import Any

import numpy as np

from store.compiled.compiling import Bytes, Number, compiled, intrinsic

# Where ssize_t pread(int fd, void *buf, size_t count, off_t offset) of the C library lies in this process. Kernels get it as an
# argument: machine code in a file is not linked with anything.
PREAD_AT: int = ctypes.cast(ctypes.CDLL(None).pread, ctypes.c_void_p).value or 0


def _call(typing_context, function, fd, target, size, offset):
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types

    signature = types.int64(types.int64, types.int32, types.uint64, types.int64, types.int64)

    def generate(context, builder, signature, arguments):
        long = ir.IntType(64)
        kind = ir.FunctionType(long, [ir.IntType(32), long, long, long])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    return signature, generate


_call_pread: Any = intrinsic(_call)


@compiled
def pread(function: Number, fd: Number, offset: Number, size: Number, target: Bytes, at: Number) -> Number:
    """Reads bytes of a file into target[at:at + size], which must lie inside; returns how many, -1 when it failed.

    `function` is PREAD_AT. Fewer than `size`: the file ends there, or a signal came.
    """
    return np.int64(
        _call_pread(
            np.int64(function),
            np.int32(fd),
            np.uint64(target.ctypes.data) + np.uint64(at),
            np.int64(size),
            np.int64(offset),
        )
    )


def touch() -> None:
    """Compiles it; no file has the number -1."""
    pread(PREAD_AT, -1, 0, 0, np.zeros(1, dtype=np.uint8), 0)
