"""The commit log's settings."""

from collections.abc import Collection
from typing import Literal

import pydantic

from commitlog_svc.reput.followers import parse_names
from commitlog_svc.retention.disk_space import DiskLimits
from commitlog_svc.retention.retention import RetentionLimits
from commitlog_svc.retention.retention_times import parse_delete_hours
from services.settings.service_settings import StoreSettings
from store.errors import InvalidArgumentError
from store.format.host import Host

FILE_SIZE_BYTES_MIN = 4096
# A record's size is a signed 32-bit number, and so is a blank's.
FILE_SIZE_BYTES_MAX = (1 << 31) - 1
FILE_RESERVED_SECONDS_MAX = 100 * 366 * 86_400  # a hundred years, practically without end


class CommitLogSettings(StoreSettings):
    """Settings of the commitlog service; sizes are bytes, times milliseconds.

    Attributes:
        file_size_bytes: size of a new store's log files; an existing store keeps its size.
        flush_mode: whether an append waits for the disk when its request does not say.
        flush_interval_millis: the greatest age of an unflushed record for which no request waits.
        unflushed_bytes_max: the most unflushed bytes; at this limit appends wait for the disk.
        message_size_bytes_max: the largest body.
        properties_crc: close each record with RocketMQ's `__CRC32#`, which guards all of it.
        auto_create_topic: the first message of a topic creates it.
        default_topic_queue_count: number of queues of a topic that is created so.
        file_reserved_seconds: time after which a log file expires, from the moment it was first seen complete.
        delete_when_hours: hours of the day, local time, at which expired files are removed; `04` or `04;16`.
        disk_clean_ratio_percent, disk_clean_free_bytes: disk use and free bytes at which expired files
            are removed at any hour.
        disk_clean_forcibly_ratio_percent, disk_clean_forcibly_free_bytes: likewise: files are removed before they expire.
        disk_full_ratio_percent, disk_full_free_bytes: likewise: appends are refused.
        clean_file_forcibly_enabled: whether files may be removed before they expire.
        delete_files_interval_millis: least time between the removals of two files.
        delete_file_batch_count_max: most files removed in each clean_resource_interval_millis.
        clean_resource_interval_millis: see above.
        followers: names of the followers that retention waits for from the start, with commas between them. Others join
            with their first report (docs/adr/0037-followers-and-the-confirm-offset.md).
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
    file_reserved_seconds: int = pydantic.Field(259_200, ge=1, le=FILE_RESERVED_SECONDS_MAX)
    delete_when_hours: str = "04"
    disk_clean_ratio_percent: int = pydantic.Field(75, ge=1, le=100)
    disk_clean_forcibly_ratio_percent: int = pydantic.Field(85, ge=1, le=100)
    disk_full_ratio_percent: int = pydantic.Field(90, ge=1, le=100)
    disk_clean_free_bytes: int = pydantic.Field(10 << 30, ge=0)
    disk_clean_forcibly_free_bytes: int = pydantic.Field(3 << 30, ge=0)
    disk_full_free_bytes: int = pydantic.Field(1 << 30, ge=0)
    clean_file_forcibly_enabled: bool = True
    delete_files_interval_millis: int = pydantic.Field(100, ge=0, le=60_000)
    delete_file_batch_count_max: int = pydantic.Field(10, ge=1, le=50)
    clean_resource_interval_millis: int = pydantic.Field(10_000, ge=0, le=3_600_000)
    followers: str = "consumequeue,index"

    @pydantic.field_validator("store_host")
    @classmethod
    def _is_host(cls, value: str) -> str:
        try:
            return str(Host.parse(value))
        except InvalidArgumentError as error:
            raise ValueError(error.message) from error

    @pydantic.field_validator("delete_when_hours")
    @classmethod
    def _are_hours(cls, value: str) -> str:
        try:
            parse_delete_hours(value)
        except InvalidArgumentError as error:
            raise ValueError(error.message) from error
        return value

    @pydantic.field_validator("followers")
    @classmethod
    def _are_followers(cls, value: str) -> str:
        try:
            parse_names(value)
        except InvalidArgumentError as error:
            raise ValueError(error.message) from error
        return value

    @property
    def follower_names(self) -> Collection[str]:
        """The followers that are expected."""
        return parse_names(self.followers)

    @property
    def retention_limits(self) -> RetentionLimits:
        """When log files are removed."""
        return RetentionLimits(
            self.file_reserved_seconds * 1000,
            parse_delete_hours(self.delete_when_hours),
            self.delete_files_interval_millis,
            self.delete_file_batch_count_max,
            self.clean_resource_interval_millis,
            self.clean_file_forcibly_enabled,
        )

    @property
    def disk_limits(self) -> DiskLimits:
        """The levels of the disk; see retention/disk_space.py."""
        return DiskLimits(
            self.disk_clean_ratio_percent,
            self.disk_clean_forcibly_ratio_percent,
            self.disk_full_ratio_percent,
            self.disk_clean_free_bytes,
            self.disk_clean_forcibly_free_bytes,
            self.disk_full_free_bytes,
        )
