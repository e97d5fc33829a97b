"""Bodies as their producers gave them: the compression that RocketMQ's system flag declares, undone.

Bit 0 says that the body is compressed; bits 8 to 10 say how: 1 LZ4, 2 Zstandard, 3 zlib; 0 is zlib too, from producers
that knew no other (MessageSysFlag, CompressionType). Only zlib is in the standard library.
"""

import zlib

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
        BodyCompressionError: compressed in another way than zlib, damaged, or over 64 MiB.
    """
    compression = compression_of(sys_flag)
    if compression == "none":
        return stored
    if compression != "zlib":
        raise BodyCompressionError(
            f"the body is compressed with {compression}, which needs a library: decompress stored_body",
            metadata={"compression": compression},
        )
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(stored, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise BodyCompressionError(f"the body does not inflate: {error}") from error
    if not inflater.eof:
        raise BodyCompressionError(f"the body is cut short, or inflates to over {INFLATED_BYTES_MAX} bytes")
    return content
