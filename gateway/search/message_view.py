"""A message as a filter sees it: what is stored, its body inflated where the stored one is compressed.

zlib is inflated, up to a limit. A body that is compressed otherwise, or does not inflate, cannot be looked into: that is
an error of this message, never a message that does not match.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from store.errors import RecordCorruptedError, UnsupportedStoreError
from store.format.sys_flag import CompressionType, compression_type, is_compressed

# Producers send at most 4 MiB; what inflates to more than this is no message but an attack on whoever looks inside.
INFLATED_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class MessageView:
    """A stored message; `body` are the stored bytes. Times are milliseconds since 1970, hosts `IP:port`."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_size_bytes: int
    flag: int
    sys_flag: int
    born_time_millis: int
    born_host: str
    store_time_millis: int
    store_host: str
    reconsume_times: int
    tags: str
    keys: tuple[str, ...]
    unique_key: str
    properties: Mapping[str, str]
    body: bytes

    def inflated_body(self) -> bytes:
        """The body as it was sent.

        Raises:
            RecordCorruptedError: it is no whole zlib stream.
            UnsupportedStoreError: it is compressed by LZ4 or Zstandard, or inflates to more than is looked at.
        """
        if not is_compressed(self.sys_flag):
            return self.body
        if compression_type(self.sys_flag) not in (CompressionType.ZLIB, CompressionType.ZLIB_UNMARKED):
            kind = (self.sys_flag >> 8) & 7
            raise UnsupportedStoreError(
                f"The body of the message at byte {self.commit_log_offset} is compressed by method {kind}: only zlib's "
                "(0 and 3) can be searched. Leave out the conditions on bodies to find the message.",
                commitLogOffset=self.commit_log_offset,
                compressionType=kind,
            )
        inflater = zlib.decompressobj()
        try:
            body = inflater.decompress(self.body, INFLATED_BYTES_MAX)
        except zlib.error as error:
            raise self._does_not_inflate(str(error)) from error
        if not inflater.eof and len(body) >= INFLATED_BYTES_MAX:
            raise UnsupportedStoreError(
                f"The body of the message at byte {self.commit_log_offset} inflates to more than the "
                f"{INFLATED_BYTES_MAX} bytes that are searched.",
                commitLogOffset=self.commit_log_offset,
            )
        if not inflater.eof:
            raise self._does_not_inflate("it is cut short")
        return body

    def _does_not_inflate(self, why: str) -> RecordCorruptedError:
        return RecordCorruptedError(
            f"The body of the message at byte {self.commit_log_offset} is marked as zlib and does not inflate: {why}.",
            commitLogOffset=self.commit_log_offset,
        )
