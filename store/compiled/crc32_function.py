"""Where a C function that computes CRC-32 lies in this process, for kernels, which call it without the GIL.

It is that of zlib-ng, which folds with the processor's polynomial multiplication. Where zlib-ng is not installed it is that of
the zlib that Python uses; where that cannot be found, `ADDRESS` is 0 and kernels call Python's `zlib.crc32`.
"""

import ctypes
import zlib
from collections.abc import Callable
from importlib.util import find_spec

_TEXT = b"123456789"


def zlib_ng() -> "ctypes._NamedFuncPointer":
    """`uint32_t zng_crc32_z(uint32_t crc, const uint8_t *data, size_t size)`.

    Raises:
        ImportError, OSError, AttributeError: it is not there.
    """
    spec = find_spec("zlib_ng.zlib_ng")
    if spec is None or spec.origin is None:
        raise ImportError("zlib-ng is not installed")
    return ctypes.CDLL(spec.origin).zng_crc32_z


def plain_zlib() -> "ctypes._NamedFuncPointer":
    """`unsigned long crc32_z(unsigned long crc, const unsigned char *data, size_t size)`.

    Raises:
        OSError, AttributeError: it is not there.
    """
    return ctypes.CDLL(getattr(zlib, "__file__", None)).crc32_z


def address(*finders: "Callable[[], ctypes._NamedFuncPointer]") -> int:
    """The address of the first function that is there and computes CRC-32; 0 if there is none."""
    for find in finders:
        try:
            function = find()
        except (ImportError, OSError, AttributeError):
            continue
        function.argtypes, function.restype = (ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t), ctypes.c_uint32
        if function(0, _TEXT, len(_TEXT)) == zlib.crc32(_TEXT):
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


ADDRESS = address(zlib_ng, plain_zlib)
