"""Power cut of a mounted ext4 or xfs: FS_IOC_SHUTDOWN without flushing the journal.

From that moment nothing reaches the disk any more: what was not flushed is gone at the next mount.
"""

import fcntl
import os
import struct
from pathlib import Path

FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


def cut_power(mount_point: Path) -> None:
    """The file system goes down, at once and for good; unmount and mount it to see what was kept."""
    fd = os.open(mount_point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    finally:
        os.close(fd)
