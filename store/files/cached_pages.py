"""Drops the page cache of files, so that reads return what the disk holds.

After a refused flush Linux marks the pages clean and still returns them: bytes that are read then may be missing on the disk.
Linux also keeps a large folio while any part of it is dirty, for example when another write came during that flush. So all
dirty pages are written first. The result of that flush is ignored, because only the bytes that are read afterwards count.
Each file is opened anew for this, so that no descriptor in use sees a second flush after a refused one.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from store.errors import FlushFailedError
from store.files.file_system import FileSystem


def drop_cached_pages(fs: FileSystem, paths: Iterable[Path]) -> None:
    """Drops the cached pages of each file."""
    for path in paths:
        fd = fs.open(path, os.O_RDONLY)
        try:
            with suppress(FlushFailedError):
                fs.fdatasync(fd)
            fs.drop_cache(fd, 0)
        finally:
            fs.close(fd)
