"""Forgetting what the page cache says of files, so that they read as the disk holds them.

After a refused flush Linux marks the pages clean and goes on showing them: what is read then may not be on the disk. Nor
does it forget a large folio while any part of it is dirty, as when somebody wrote on during that flush. So everything
dirty is written first. Whether that flush says OK means nothing and is not asked: what counts is what is read afterwards.
Each file is opened anew for this, so that no descriptor in use ever sees a second flush after a refused one.
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
