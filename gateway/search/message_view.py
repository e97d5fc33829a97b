"""A message for a filter: the stored fields, and the body, inflated where it is compressed.

Bodies are inflated up to a limit. A body that is damaged, exceeds the limit or uses a compression that RocketMQ does not
have cannot be searched. That is an error of the message; it does not count as a message without a match.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from store.errors import RecordCorruptedError, UnsupportedStoreError
from store.format.body_compression import BodyNotInflatedError, compression_name, inflate

# Producers send at most 4 MiB; a body that inflates to more than this is treated as an attack.
INFLATED_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class MessageView:
    """A stored message; `body` holds the stored bytes. Times are milliseconds since 1970, hosts `IP:port`."""

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
        """The body as its producer sent it.

        Raises:
            RecordCorruptedError: it is damaged, or not compressed as its flag says.
            UnsupportedStoreError: RocketMQ has no such compression, or the body inflates to more than the limit.
        """
        try:
            return inflate(self.body, self.sys_flag, INFLATED_BYTES_MAX)
        except BodyNotInflatedError as error:
            at = self.commit_log_offset
            if error.is_damaged:
                raise RecordCorruptedError(
                    f"The body of the message at byte {at} is marked as {compression_name(self.sys_flag)} and does not "
                    f"inflate: {error}.",
                    commitLogOffset=at,
                ) from error
            raise UnsupportedStoreError(
                f"The body of the message at byte {at} cannot be searched: {error}. Leave out the conditions on bodies "
                "to find the message.",
                commitLogOffset=at,
                compressionType=(self.sys_flag >> 8) & 7,
            ) from error
