"""DiskSpace: how full the disk under the log is, in RocketMQ's three steps and `ok`.

    ok               nothing to do
    clean            expired files are removed at any hour              diskMaxUsedSpaceRatio
    clean-forcibly   files are removed before they expire               diskSpaceCleanForciblyRatio
    full             appends are refused, reading continues             diskSpaceWarningLevelRatio

A step is reached when the disk is used up to its ratio and no more than its watermark is free: at 90 % a disk of ten terabytes
has one free, which is enough; on a disk smaller than the watermarks the ratios alone decide. "Used" is what `df` says:
blocks kept for root count neither as used nor as free.

The result is never older than LOOK_SECONDS, so appends continue by themselves once there is room. When the disk cannot be
asked, its last level stays: the disk itself refuses an append without room.
"""

import enum
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from store.errors import DiskFullError
from store.files.file_system import FileSystem

LOOK_SECONDS = 0.5
# The part of the space free at `full` that AppendInternal may use: retries, dead letters, acknowledgements and due timers
# continue, and consuming lets retention free space. The rest is for the other files that must be written: queues, indexes,
# snapshots.
INTERNAL_RESERVE_PERCENT = 50

_log = structlog.get_logger("reput.commitlog")


class DiskLevel(enum.IntEnum):
    """How full a disk is."""

    OK = 0
    CLEAN = 1
    CLEAN_FORCIBLY = 2
    FULL = 3

    @property
    def word(self) -> str:
        """Its name in the status and the log, such as `clean-forcibly`."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """The begin of each step: the percent in use and, at the same time, the most bytes free."""

    clean_percent: int = 75
    clean_forcibly_percent: int = 85
    full_percent: int = 90
    clean_free_bytes: int = 10 << 30
    clean_forcibly_free_bytes: int = 3 << 30
    full_free_bytes: int = 1 << 30

    def free_bytes_at(self, level: DiskLevel, total_bytes: int) -> int:
        """With no more bytes free than this, a disk of that size is on that step, one above OK, or on a higher one."""
        percent, watermark_bytes = {
            DiskLevel.CLEAN: (self.clean_percent, self.clean_free_bytes),
            DiskLevel.CLEAN_FORCIBLY: (self.clean_forcibly_percent, self.clean_forcibly_free_bytes),
            DiskLevel.FULL: (self.full_percent, self.full_free_bytes),
        }[level]
        return min(watermark_bytes, total_bytes - -(-percent * total_bytes // 100))

    def level(self, total_bytes: int, free_bytes: int) -> DiskLevel:
        """The step that a disk is on."""
        steps = (
            (DiskLevel.FULL, self.full_percent, self.full_free_bytes),
            (DiskLevel.CLEAN_FORCIBLY, self.clean_forcibly_percent, self.clean_forcibly_free_bytes),
            (DiskLevel.CLEAN, self.clean_percent, self.clean_free_bytes),
        )
        if total_bytes <= 0:
            return DiskLevel.OK  # the file system does not report its size
        used_bytes = total_bytes - free_bytes
        for level, percent, watermark_bytes in steps:
            if used_bytes * 100 >= percent * total_bytes and free_bytes <= watermark_bytes:
                return level
        return DiskLevel.OK


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """A disk at one moment."""

    total_bytes: int
    free_bytes: int
    level: DiskLevel


class DiskSpace:
    """The disk of one directory; thread-safe.

    Args:
        fs: the disk port.
        directory: on that disk.
        limits: where the steps begin.
        clock: seconds, rising.
    """

    def __init__(
        self, fs: FileSystem, directory: Path, limits: DiskLimits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._usage = DiskUsage(0, 0, DiskLevel.OK)
        self._looked_at: float | None = None
        self._is_mute = False

    def look(self) -> DiskUsage:
        """The disk as it is now."""
        with self._lock:
            self._looked_at = self._clock()
            try:
                total_bytes, free_bytes = self._fs.disk_usage(self._directory)
            except OSError as error:
                if not self._is_mute:
                    _log.warning("disk.no_answer", directory=str(self._directory), error=str(error))
                self._is_mute = True
                return self._usage
            self._is_mute = False
            level = self._limits.level(total_bytes, free_bytes)
            if level is not self._usage.level:
                say = _log.warning if level > DiskLevel.CLEAN else _log.info
                say("disk.level", level=level.word, free_bytes=free_bytes, total_bytes=total_bytes)
            self._usage = DiskUsage(total_bytes, free_bytes, level)
            return self._usage

    @property
    def usage(self) -> DiskUsage:
        """The disk as it was at most LOOK_SECONDS ago."""
        looked_at = self._looked_at
        if looked_at is None or self._clock() - looked_at >= LOOK_SECONDS:
            return self.look()
        return self._usage

    @property
    def is_full(self) -> bool:
        """Whether appends are refused."""
        return self.usage.level is DiskLevel.FULL

    def refuse_full(self, is_internal: bool = False) -> None:
        """DiskFullError when nothing more should be written; internal appends may use the reserve below FULL."""
        usage = self.usage
        if usage.level is DiskLevel.FULL and not (is_internal and self._has_reserve(usage)):
            raise DiskFullError(
                f"the disk of {self._directory} has {usage.free_bytes} of {usage.total_bytes} bytes left: "
                "free some, then writing continues by itself, or set REPUT_COMMITLOG_DISK_FULL_RATIO_PERCENT",
                directory=self._directory,
                freeBytes=usage.free_bytes,
                totalBytes=usage.total_bytes,
            )

    def _has_reserve(self, usage: DiskUsage) -> bool:
        full_free_bytes = self._limits.free_bytes_at(DiskLevel.FULL, usage.total_bytes)
        return usage.free_bytes * 100 > full_free_bytes * (100 - INTERNAL_RESERVE_PERCENT)
