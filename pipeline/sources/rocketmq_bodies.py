"""Bodies as their producers gave them: zlib, LZ4 (frames) and Zstandard undone, as the system flag declares them."""

import pyarrow as pa

from reput_client.bodies import INFLATED_BYTES_MAX, compression_of, inflate
from reput_client.errors import BodyCompressionError

_ARROW_CODECS = {"lz4": "lz4", "zstd": "zstd"}


def decompressed(stored: bytes, sys_flag: int, offset_msg_id: str) -> bytes:
    """The body before compression; the stored one when it is not compressed.

    Args:
        stored: the stored body.
        sys_flag: says whether and how it is compressed.
        offset_msg_id: whose it is, for errors.

    Raises:
        BodyCompressionError: damaged, of an unknown kind, or over 64 MiB.
    """
    compression = compression_of(sys_flag)
    try:
        if compression not in _ARROW_CODECS:
            return inflate(stored, sys_flag)
        with pa.CompressedInputStream(pa.BufferReader(stored), _ARROW_CODECS[compression]) as stream:
            body: bytes = stream.read(INFLATED_BYTES_MAX + 1)
    except (BodyCompressionError, OSError) as error:
        raise _unreadable(offset_msg_id, compression, str(error)) from error
    if len(body) > INFLATED_BYTES_MAX:
        raise _unreadable(offset_msg_id, compression, f"it inflates to over {INFLATED_BYTES_MAX} bytes")
    return body


def _unreadable(offset_msg_id: str, compression: str, why: str) -> BodyCompressionError:
    return BodyCompressionError(
        f"The body of message {offset_msg_id} ({compression}) cannot be decompressed: {why}. With decompress=false it "
        "comes as stored.",
        metadata={"offsetMsgId": offset_msg_id, "compression": compression},
    )
