"""The commit log's settings."""

from typing import Literal

import pydantic

from services.settings import StoreSettings
from store.errors import InvalidArgumentError
from store.format.host import Host

FILE_SIZE_BYTES_MIN = 4096
# A record's size is a signed 32-bit number, and so is a blank's.
FILE_SIZE_BYTES_MAX = (1 << 31) - 1


class CommitLogSettings(StoreSettings):
    """Settings of the commitlog service; sizes are bytes, times milliseconds.

    Attributes:
        file_size_bytes: size of a log file; files that exist decide themselves.
        flush_mode: whether an append that does not say so waits for the disk.
        flush_interval_millis: the most that a power cut may take of what nobody waited for.
        unflushed_bytes_max: the most in bytes; appends that are faster than the disk wait beyond it.
        message_size_bytes_max: the largest body.
        properties_crc: close each record with RocketMQ's `__CRC32#`, which guards all of it.
        auto_create_topic: the first message of a topic makes it.
        default_topic_queue_count: how many queues it gets.
    """

    address: str = "127.0.0.1:8082"
    file_size_bytes: int = pydantic.Field(1 << 30, ge=FILE_SIZE_BYTES_MIN, le=FILE_SIZE_BYTES_MAX)
    flush_mode: Literal["async", "sync"] = "async"
    flush_interval_millis: int = pydantic.Field(10, ge=1, le=60_000)
    unflushed_bytes_max: int = pydantic.Field(32 << 20, ge=1 << 20, le=1 << 30)
    message_size_bytes_max: int = pydantic.Field(4 << 20, ge=1, le=1 << 30)
    properties_crc: bool = True
    auto_create_topic: bool = True
    default_topic_queue_count: int = pydantic.Field(8, ge=1, le=65_536)

    @pydantic.field_validator("store_host")
    @classmethod
    def _is_host(cls, value: str) -> str:
        try:
            return str(Host.parse(value))
        except InvalidArgumentError as error:
            raise ValueError(error.message) from error
