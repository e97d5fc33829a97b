"""Bodies as their producers gave them: zlib, LZ4 (frames) and Zstandard undone, as the system flag declares them."""

from reput_client.bodies import INFLATED_BYTES_MAX
from reput_client.errors import BodyCompressionError
from store.format.body_compression import BodyNotInflatedError, compression_name, inflate


def decompressed(stored: bytes, sys_flag: int, offset_msg_id: str) -> bytes:
    """The body before compression; the stored one when it is not compressed.

    Args:
        stored: the stored body.
        sys_flag: says whether and how it is compressed.
        offset_msg_id: whose it is, for errors.

    Raises:
        BodyCompressionError: damaged, of an unknown kind, or over 64 MiB.
    """
    try:
        return inflate(stored, sys_flag, INFLATED_BYTES_MAX)
    except BodyNotInflatedError as error:
        compression = compression_name(sys_flag)
        raise BodyCompressionError(
            f"The body of message {offset_msg_id} ({compression}) cannot be decompressed: {error}. With "
            "decompress=false it comes as stored.",
            metadata={"offsetMsgId": offset_msg_id, "compression": compression},
        ) from error
