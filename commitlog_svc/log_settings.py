"""The settings that the commit log uses; `settings.py` says where they come from."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from commitlog_svc.retention.disk_space import DiskLimits
from commitlog_svc.retention.retention import RetentionLimits


class LogSettings(Protocol):
    """A part of `settings.CommitLogSettings`."""

    @property
    def read_only(self) -> bool:
        """Write nothing and take no lock."""

    @property
    def mirror(self) -> str:
        """The HA port of the broker whose log this store copies; empty: it copies none."""

    @property
    def follow(self) -> bool:
        """Follow a log that a broker writes meanwhile; write nothing there."""

    @property
    def derived(self) -> Path | None:
        """The root of what is derived from a log that is followed."""

    @property
    def store_host(self) -> str:
        """`IP:port` written into records."""

    @property
    def file_size_bytes(self) -> int:
        """Size of a log file."""

    @property
    def lock_wait_seconds(self) -> float:
        """How long to wait for the process that has the store."""

    @property
    def timer_log_file_size_bytes(self) -> int:
        """Size of a file of timerlog."""

    @property
    def flush_mode(self) -> str:
        """`async` or `sync`."""

    @property
    def flush_interval_millis(self) -> int:
        """Greatest age of an unflushed record."""

    @property
    def unflushed_bytes_max(self) -> int:
        """The most unflushed bytes; at this limit appends wait."""

    @property
    def message_size_bytes_max(self) -> int:
        """Largest body."""

    @property
    def properties_crc(self) -> bool:
        """Write `__CRC32#`."""

    @property
    def auto_create_topic(self) -> bool:
        """The first message of a topic creates it."""

    @property
    def enable_lmq(self) -> bool:
        """Take light queues that clients name in INNER_MULTI_DISPATCH."""

    @property
    def light_queue_count_max(self) -> int:
        """Light queues that the log may have."""

    @property
    def default_topic_queue_count(self) -> int:
        """Queues of a new topic."""

    @property
    def delay_levels_millis(self) -> Sequence[int]:
        """Delays of the levels, the first is level 1."""

    @property
    def timer_max_delay_seconds(self) -> int:
        """How far ahead the time of a message may be."""

    @property
    def follower_names(self) -> Collection[str]:
        """The followers that are expected."""

    @property
    def retention_limits(self) -> RetentionLimits:
        """When log files are removed."""

    @property
    def disk_limits(self) -> DiskLimits:
        """The levels of the disk; see retention/disk_space.py."""
