"""Bodies as their producers gave them: the compression that RocketMQ's system flag declares, undone.

Bit 0 says that the body is compressed; bits 8 to 10 say how: 1 LZ4, 2 Zstandard, 3 zlib; 0 is zlib too, from producers
that knew no other (MessageSysFlag, CompressionType).
"""

import sys
import zlib
from typing import Any

from reput_client.errors import BodyCompressionError

COMPRESSED_BIT = 0x1
COMPRESSION_BITS = 0x700
COMPRESSION_NAMES = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}
INFLATED_BYTES_MAX = 64 << 20  # a stored body has a few MiB at most: what inflates to more is an attack


def compression_of(sys_flag: int) -> str:
    """How a body is compressed: none, zlib, lz4, zstd or unknown."""
    if not sys_flag & COMPRESSED_BIT:
        return "none"
    return COMPRESSION_NAMES.get(sys_flag & COMPRESSION_BITS, "unknown")


def inflate(stored: bytes, sys_flag: int) -> bytes:
    """The body before compression.

    Raises:
        BodyCompressionError: compressed in a way that RocketMQ has not, damaged, or over 64 MiB.
    """
    compression = compression_of(sys_flag)
    if compression == "none":
        return stored
    decoder, error_type = _decoder(compression)
    try:
        content = decoder.decompress(stored, INFLATED_BYTES_MAX)
    except error_type as error:
        raise BodyCompressionError(f"the body does not inflate: {error}") from error
    if not decoder.eof:
        raise BodyCompressionError(f"the body is cut short, or inflates to over {INFLATED_BYTES_MAX} bytes")
    return content


def _decoder(compression: str) -> tuple[Any, type[Exception]]:
    """A fresh decoder and what it raises for bytes that are none of its kind; loaded with the first body that needs it."""
    if compression == "zlib":
        return zlib.decompressobj(), zlib.error
    if compression == "lz4":
        from lz4.frame import LZ4FrameDecompressor

        return LZ4FrameDecompressor(), RuntimeError
    if compression == "zstd":
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd

        return zstd.ZstdDecompressor(), zstd.ZstdError
    raise BodyCompressionError(
        "the body is compressed in a way that RocketMQ has not: stored_body has its bytes",
        metadata={"compression": compression},
    )
