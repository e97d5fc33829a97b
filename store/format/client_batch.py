"""A batch of messages as a client of RocketMQ sends it, the body of SEND_BATCH_MESSAGE. Numbers are big-endian.

    for each message:
    0      i32   size of this message here, all of it (bytes)
    4      i32   magic, 0
    8      i32   CRC, 0
    12     i32   flag
    16     i32   length of the body (bytes), then the body
           i16   length of the properties (bytes), then the properties (store/format/properties.py)

Topic, queue and times of all of them stand in the request. Source: `MessageDecoder.encodeMessages` of RocketMQ 5.3.3.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from store.errors import InvalidMessageError

_HEAD = struct.Struct(">iiiii")  # to the length of the body
_PROPERTIES_SIZE = struct.Struct(">h")
ENTRY_SIZE_BYTES_MIN = _HEAD.size + _PROPERTIES_SIZE.size

assert ENTRY_SIZE_BYTES_MIN == 22


class BatchEntry(NamedTuple):
    """A message of a batch.

    Attributes:
        flag: the application's own 32 bits.
        body: its bytes.
        properties: as the client wrote them.
    """

    flag: int
    body: bytes
    properties: bytes


def encode_client_batch(entries: Iterable[BatchEntry]) -> bytes:
    """The bytes of a batch; struct.error for properties of 32,768 bytes and more."""
    parts: list[bytes] = []
    for flag, body, properties in entries:
        size = ENTRY_SIZE_BYTES_MIN + len(body) + len(properties)
        parts += [_HEAD.pack(size, 0, 0, flag, len(body)), body, _PROPERTIES_SIZE.pack(len(properties)), properties]
    return b"".join(parts)


def decode_client_batch(data: bytes, count_max: int | None = None) -> list[BatchEntry]:
    """The messages of a batch.

    Args:
        data: the batch.
        count_max: messages that it may have; None: any number.

    Raises:
        InvalidMessageError: field `body`: it is cut, the lengths of a message disagree, or there are too many messages.
    """
    entries: list[BatchEntry] = []
    at = 0
    while at < len(data):
        if count_max is not None and len(entries) >= count_max:
            raise InvalidMessageError(f"The batch has more than {count_max} messages: send several.", field="body")
        try:
            size, _, _, flag, body_size = _HEAD.unpack_from(data, at)
            body_at = at + _HEAD.size
            (properties_size,) = _PROPERTIES_SIZE.unpack_from(data, body_at + body_size) if body_size >= 0 else (-1,)
        except struct.error as error:
            raise _damaged(at, "it is cut") from error
        properties_at = body_at + body_size + _PROPERTIES_SIZE.size
        end = properties_at + properties_size
        if body_size < 0 or properties_size < 0 or end > len(data) or size != end - at:
            raise _damaged(at, "its lengths disagree")
        entries.append(BatchEntry(flag, data[body_at : body_at + body_size], data[properties_at:end]))
        at = end
    return entries


def flag_of_first(data: bytes) -> int:
    """The flag of the first message of a batch that has ENTRY_SIZE_BYTES_MIN bytes at least."""
    flag: int = _HEAD.unpack_from(data)[3]
    return flag


def _damaged(at: int, why: str) -> InvalidMessageError:
    return InvalidMessageError(f"The message at byte {at} of the batch cannot be read: {why}.", field="body", offset=at)
