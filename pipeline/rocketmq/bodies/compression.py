"""Bodies as their producers sent them: zlib, LZ4 (frame format) and Zstandard decompressed as the system flag states.

A body may inflate to a thousand times its size, and a page has a thousand of them. So each has a limit, and a batch of rows
ends where its bodies have another (`inflated_parts`).
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from reput_client.errors import BodyCompressionError
from store.format.body_compression import INFLATED_BYTES_MAX, BodyNotInflatedError, compression_name, inflate
from store.format.sys_flag import COMPRESSED


def decompressed(stored: bytes, sys_flag: int, offset_msg_id: str) -> bytes:
    """The body before compression; the stored one when it is not compressed.

    Args:
        stored: the stored body.
        sys_flag: states whether and how it is compressed.
        offset_msg_id: the message, for errors.

    Raises:
        BodyCompressionError: the body is damaged, of an unknown method, or over INFLATED_BYTES_MAX.
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


def inflated_parts(
    bodies: pa.Array, sys_flags: np.ndarray, size_bytes_max: int
) -> Iterator[tuple[int, int, dict[int, bytes | None]]]:
    """Rows in parts: begin, end, and of the compressed bodies among them the inflated ones, by their place in the part.

    Args:
        bodies: as they are stored.
        sys_flags: of the same messages.
        size_bytes_max: of the inflated bodies of a part together, where it has more than one.
    """
    begin, size_bytes, plain = 0, 0, dict[int, bytes | None]()
    for place in np.flatnonzero(sys_flags & COMPRESSED).tolist():
        body = decompressed_or_none(bodies[place].as_py() or b"", int(sys_flags[place]))
        if plain and size_bytes + len(body or b"") > size_bytes_max:
            yield begin, place, plain
            begin, size_bytes, plain = place, 0, {}
        plain[place - begin] = body
        size_bytes += len(body or b"")
    yield begin, len(bodies), plain
