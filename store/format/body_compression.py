"""Message bodies as their producers gave them: undoes the compression that the sysFlag declares, up to a limit.

    sysFlag & 0x701    method       the body holds
    0x001, 0x301       zlib         a stream of RFC 1950; bytes behind it are ignored, as in RocketMQ
    0x101              LZ4          one frame, of `lz4_Frame_format`
    0x201              Zstandard    one frame, of RFC 8878

Source: `CompressionType`, `ZlibCompressor`, `Lz4Compressor` and `ZstdCompressor` of Apache RocketMQ 5.3.3. A body may inflate
to more than a thousand times its size, so the decoders stop at the caller's limit. Their libraries are loaded with the first
body that needs them.
"""

import sys
import zlib
from typing import Protocol

from store.format.sys_flag import CompressionType, compression_type, is_compressed

_NAMES = {
    CompressionType.ZLIB_UNMARKED: "zlib",
    CompressionType.ZLIB: "zlib",
    CompressionType.LZ4: "lz4",
    CompressionType.ZSTD: "zstd",
}

# Of one body. Producers send 4 MiB at most by default: a body that inflates to more than this is treated as an attack.
INFLATED_BYTES_MAX = 16 << 20


class BodyNotInflatedError(Exception):
    """A compressed body must be taken as it is stored.

    Args:
        message: why; a caller puts the name of the method before it.
        is_damaged: True if the bytes are not what the flag says. False if the method is unknown, or the body inflates to
            more than the limit; the bytes may be sound then.
    """

    def __init__(self, message: str, *, is_damaged: bool) -> None:
        super().__init__(message)
        self.is_damaged = is_damaged


class _Decoder(Protocol):
    """What the three decoders have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: bytes, size_bytes_max: int, /) -> bytes: ...


def compression_name(sys_flag: int) -> str:
    """How a body is compressed: `none`, `zlib`, `lz4`, `zstd` or `unknown`."""
    if not is_compressed(sys_flag):
        return "none"
    kind = compression_type(sys_flag)
    return "unknown" if kind is None else _NAMES[kind]


LZ4_FACTOR_MAX = 255
"""Bytes that one byte of LZ4 gives at most: one of a match's length (lz4_Block_format.md)."""


def inflate(stored: bytes, sys_flag: int, size_bytes_max: int) -> bytes:
    """The body before compression; the stored one when it is not compressed.

    Args:
        stored: the stored body.
        sys_flag: says whether and how it is compressed.
        size_bytes_max: most bytes of the body; at most one byte more is inflated.

    Raises:
        BodyNotInflatedError: it is damaged, of an unknown method, or inflates to more.
    """
    if not is_compressed(sys_flag):
        return stored
    # One byte more shows whether the body ends at the limit or is too large.
    content, decoder = _decode(stored, sys_flag, size_bytes_max + 1)
    if len(content) > size_bytes_max:
        raise BodyNotInflatedError(f"it inflates to over {size_bytes_max} bytes", is_damaged=False)
    if not decoder.eof:
        raise BodyNotInflatedError("it is cut short", is_damaged=True)
    if decoder.unused_data and compression_name(sys_flag) != "zlib":
        raise BodyNotInflatedError(f"{len(decoder.unused_data)} bytes follow its end", is_damaged=True)
    return content


def inflate_begin(stored: bytes, sys_flag: int, size_bytes: int) -> tuple[bytes, bool]:
    """The first bytes of the body before compression, at most `size_bytes`, and whether they are the whole body.

    Raises:
        BodyNotInflatedError: it does not begin as the flag says, or is of an unknown method.
    """
    if not is_compressed(sys_flag):
        return stored[:size_bytes], len(stored) <= size_bytes
    content, decoder = _decode(stored, sys_flag, size_bytes)
    return content, decoder.eof


def _decode(stored: bytes, sys_flag: int, size_bytes_max: int) -> tuple[bytes, _Decoder]:
    decoder, error_type = _decoder(sys_flag)
    if compression_name(sys_flag) == "lz4":
        # Its decoder allocates at once as much as it may give.
        size_bytes_max = min(size_bytes_max, len(stored) * LZ4_FACTOR_MAX + 1)
    try:
        return decoder.decompress(stored, size_bytes_max), decoder
    except error_type as error:
        raise BodyNotInflatedError(str(error), is_damaged=True) from error


def _decoder(sys_flag: int) -> tuple[_Decoder, type[Exception]]:
    """A new decoder, and the error type that it raises for bytes that it cannot decode."""
    name = compression_name(sys_flag)
    if name == "zlib":
        return zlib.decompressobj(), zlib.error
    if name == "lz4":
        from lz4.frame import LZ4FrameDecompressor

        return LZ4FrameDecompressor(), RuntimeError
    if name == "zstd":
        if sys.version_info >= (3, 14):  # pragma: no cover - a run has one version of Python
            from compression import zstd
        else:  # pragma: no cover - likewise
            from backports import zstd

        return zstd.ZstdDecompressor(), zstd.ZstdError
    raise BodyNotInflatedError(f"RocketMQ has no compression method {(sys_flag >> 8) & 7}", is_damaged=False)
