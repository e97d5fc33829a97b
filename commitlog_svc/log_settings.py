"""What the commit log needs of its settings; `settings.py` knows where they come from."""

from typing import Protocol

from commitlog_svc.disk_space import DiskLimits
from commitlog_svc.retention import RetentionLimits


class LogSettings(Protocol):
    """See `settings.CommitLogSettings`, which has them all."""

    @property
    def read_only(self) -> bool:
        """Touch nothing."""

    @property
    def store_host(self) -> str:
        """`IP:port` written into records."""

    @property
    def file_size_bytes(self) -> int:
        """Size of a log file."""

    @property
    def flush_mode(self) -> str:
        """`async` or `sync`."""

    @property
    def flush_interval_millis(self) -> int:
        """Most age of an unflushed record."""

    @property
    def unflushed_bytes_max(self) -> int:
        """Most bytes that may be unflushed; appends wait beyond."""

    @property
    def message_size_bytes_max(self) -> int:
        """Largest body."""

    @property
    def properties_crc(self) -> bool:
        """Write `__CRC32#`."""

    @property
    def auto_create_topic(self) -> bool:
        """A first message makes its topic."""

    @property
    def default_topic_queue_count(self) -> int:
        """Queues of a new topic."""

    @property
    def retention_limits(self) -> RetentionLimits:
        """When files go."""

    @property
    def disk_limits(self) -> DiskLimits:
        """When the disk counts as filling and as full."""
