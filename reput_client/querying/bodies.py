"""Message bodies decompressed, as RocketMQ's system flag declares.

Bit 0: the body is compressed. Bits 8 to 10: 1 LZ4, 2 Zstandard, 3 zlib, 0 also zlib, from producers older than the others
(RocketMQ's MessageSysFlag, CompressionType). LZ4 and Zstandard need the packages `lz4` and `backports-zstd`.
"""

import sys
import zlib
from typing import Any

from reput_client.errors import BodyCompressionError

COMPRESSED_BIT = 0x1
COMPRESSION_BITS = 0x700
COMPRESSION_NAMES = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}
INFLATED_BYTES_MAX = 64 << 20  # stored bodies have a few MiB at most: one that inflates to more is an attack


def compression_of(sys_flag: int) -> str:
    """How a body is compressed: none, zlib, lz4, zstd or unknown."""
    if not sys_flag & COMPRESSED_BIT:
        return "none"
    return COMPRESSION_NAMES.get(sys_flag & COMPRESSION_BITS, "unknown")


def inflate(stored: bytes, sys_flag: int) -> bytes:
    """The body before compression.

    Raises:
        BodyCompressionError: of a compression unknown to RocketMQ, damaged, over 64 MiB, or its package is not installed.
    """
    compression = compression_of(sys_flag)
    if compression == "none":
        return stored
    try:
        decoder, error_type = _decoder(compression)
    except ImportError as error:
        raise BodyCompressionError(
            f"the body is compressed with {compression}, and {error.name} is not installed: pip install 'reput-client[bodies]'",
            metadata={"compression": compression},
        ) from error
    try:
        content: bytes = decoder.decompress(stored, INFLATED_BYTES_MAX)
    except error_type as error:
        raise BodyCompressionError(f"the body does not inflate: {error}") from error
    if not decoder.eof:
        raise BodyCompressionError(f"the body is cut short, or inflates to over {INFLATED_BYTES_MAX} bytes")
    return content


def _decoder(compression: str) -> tuple[Any, type[Exception]]:
    """A new decoder and the error that it raises for bad bytes; its package is loaded with the first body that needs it."""
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
        "the body has a compression unknown to RocketMQ: stored_body has its bytes",
        metadata={"compression": compression},
    )
