"""Forgetting what the page cache says of files, so that they read as the disk holds them.

After a refused flush Linux marks the pages clean and goes on showing them: what is read then may not be on the disk.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from store.files.file_system import FileSystem


def drop_cached_pages(fs: FileSystem, paths: Iterable[Path]) -> None:
    """Drops the clean cached pages of each file."""
    for path in paths:
        fd = fs.open(path, os.O_RDONLY)
        try:
            fs.drop_cache(fd, 0)
        finally:
            fs.close(fd)
