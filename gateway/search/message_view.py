"""A message as a filter sees it: what is stored, its body inflated where the stored one is compressed.

Bodies are inflated up to a limit. One that is damaged, compressed by no method of RocketMQ's, or inflates to more cannot be
looked into: that is an error of this message, never a message that does not match.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from store.errors import RecordCorruptedError, UnsupportedStoreError
from store.format.body_compression import BodyNotInflatedError, compression_name, inflate

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
            RecordCorruptedError: it is not what its flag says, or damaged.
            UnsupportedStoreError: it is compressed by no method of RocketMQ's, or inflates to more than is looked at.
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
