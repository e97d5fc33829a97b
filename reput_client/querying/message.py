"""`Message`: a stored message, as queries give it, and its body decompressed, as RocketMQ's system flag declares.

Bit 0: the body is compressed. Bits 8 to 10: 1 LZ4, 2 Zstandard, 3 zlib, 0 also zlib, from producers older than the others
(RocketMQ's MessageSysFlag, CompressionType). LZ4 and Zstandard need the packages `lz4` and `backports-zstd`.
"""

import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any

from reput.message.v1 import message_pb2
from reput_client.encoding import from_timestamp
from reput_client.errors import BodyCompressionError, BodyOmittedError

COMPRESSED_BIT = 0x1
COMPRESSION_BITS = 0x700
COMPRESSION_NAMES = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}
INFLATED_BYTES_MAX = 64 << 20  # stored bodies have a few MiB at most: one that inflates to more is an attack


def compression_of(sys_flag: int) -> str:
    """The compression of a body: none, zlib, lz4, zstd or unknown."""
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


class MessageSource(Enum):
    """The place in which a gateway found a message."""

    LIVE = message_pb2.MESSAGE_SOURCE_LIVE  # in the log
    ARCHIVE = message_pb2.MESSAGE_SOURCE_ARCHIVE  # in the archive: retention removed it from the log


@dataclass(frozen=True, slots=True)
class Message:
    """A stored message. Times are aware, UTC, exact to the millisecond.

    Attributes:
        topic: the topic.
        queue_id: queue inside the topic.
        queue_offset: position in its queue, in messages.
        commit_log_offset: position in the commit log, in bytes.
        store_size_bytes: size of the whole record.
        stored_body: the body as stored, perhaps compressed; empty when `body_omitted`.
        body_omitted: the page had no room for the body: `download_body` has it.
        keys: business keys.
        tags: the tag; empty when there is none.
        unique_key: the producer's id; empty when there is none.
        offset_msg_id: the id made of store host and commit-log offset.
        properties: every stored property, those of keys, tags and unique key included.
        born_time: when its producer made it.
        born_host: the producer's address.
        store_time: when the store wrote it.
        store_host: the store's name, as an address.
        broker_name: the shard that holds it.
        flag: the application's own 32 bits.
        sys_flag: RocketMQ's system flag bits.
        reconsume_times: how often consumers have sent it back.
        prepared_transaction_offset: offset of the prepared message that this one ends; 0 otherwise.
        body_crc: CRC-32 of the stored body, 31 bits of it.
        source: where the gateway found it; None when it does not say.
        deleted_with_topic: the topic was deleted after the message was stored: no consumer group gets it.
    """

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_size_bytes: int
    stored_body: bytes = field(repr=False)
    body_omitted: bool
    keys: tuple[str, ...]
    tags: str
    unique_key: str
    offset_msg_id: str
    properties: Mapping[str, str] = field(repr=False, hash=False)
    born_time: datetime
    born_host: str
    store_time: datetime
    store_host: str
    broker_name: str
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    source: MessageSource | None = None
    deleted_with_topic: bool = False

    # Pickling and copying: a read-only view of a dict supports neither.
    def __getstate__(self) -> list[Any]:
        values = (getattr(self, each.name) for each in fields(self))
        return [dict(value) if isinstance(value, MappingProxyType) else value for value in values]

    def __setstate__(self, state: list[Any]) -> None:
        for each, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, each.name, MappingProxyType(value) if each.name == "properties" else value)

    @property
    def body(self) -> bytes:
        """The body as its producer gave it.

        Raises:
            BodyOmittedError: the page came without it.
            BodyCompressionError: it cannot be decompressed here.
        """
        if self.body_omitted:
            raise BodyOmittedError(
                f"the page had no room for the body of {self.offset_msg_id}: ask download_body for it",
                metadata={"offsetMsgId": self.offset_msg_id},
            )
        return inflate(self.stored_body, self.sys_flag)

    @property
    def compression(self) -> str:
        """The compression of the stored body: none, zlib, lz4, zstd or unknown."""
        return compression_of(self.sys_flag)


_SOURCES = {each.value: each for each in MessageSource}


def message_of(stored: message_pb2.StoredMessage) -> Message:
    """The message of the contract's `StoredMessage`."""
    return Message(
        topic=stored.topic,
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        commit_log_offset=stored.commit_log_offset,
        store_size_bytes=stored.store_size_bytes,
        stored_body=stored.body,
        body_omitted=stored.body_omitted,
        keys=tuple(stored.keys),
        tags=stored.tags,
        unique_key=stored.unique_key,
        offset_msg_id=stored.offset_msg_id,
        properties=MappingProxyType(dict(stored.properties)),
        born_time=from_timestamp(stored.born_time),
        born_host=stored.born_host,
        store_time=from_timestamp(stored.store_time),
        store_host=stored.store_host,
        broker_name=stored.broker_name,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        reconsume_times=stored.reconsume_times,
        prepared_transaction_offset=stored.prepared_transaction_offset,
        body_crc=stored.body_crc,
        source=_SOURCES.get(stored.source),
        deleted_with_topic=stored.deleted_with_topic,
    )
