"""Bodies as their producers sent them: zlib, LZ4 (frame format) and Zstandard decompressed as the system flag states."""

from reput_client.errors import BodyCompressionError
from reput_client.querying.message import INFLATED_BYTES_MAX
from store.format.body_compression import BodyNotInflatedError, compression_name, inflate


def decompressed(stored: bytes, sys_flag: int, offset_msg_id: str) -> bytes:
    """The body before compression; the stored one when it is not compressed.

    Args:
        stored: the stored body.
        sys_flag: states whether and how it is compressed.
        offset_msg_id: the message, for errors.

    Raises:
        BodyCompressionError: the body is damaged, of an unknown method, or over 64 MiB.
    """
    try:
        return inflate(stored, sys_flag, INFLATED_BYTES_MAX)
    except BodyNotInflatedError as error:
        compression = compression_name(sys_flag)
        raise BodyCompressionError(
            f"The body of message {offset_msg_id} ({compression}) cannot be decompressed: {error}. Read "
            "with decompress=false to get it as stored.",
            metadata={"offsetMsgId": offset_msg_id, "compression": compression},
        ) from error


def decompressed_or_none(stored: bytes, sys_flag: int) -> bytes | None:
    """The body before compression; None where `decompressed` raises an error."""
    try:
        return inflate(stored, sys_flag, INFLATED_BYTES_MAX)
    except BodyNotInflatedError:
        return None
