"""A log is cut at its first damage: the bytes before it stay in place, the bytes behind it are kept aside.

The steps, each on the disk before the next: copy the bytes behind the cut; move later files away, the last one first;
remove what records the old end; zero the rest of the cut file. After a crash in between the log is still damaged at
that place and can be cut again.
"""

import os
from pathlib import Path

from store.audit.findings import Findings
from store.audit.log_audit import LogFiles
from store.files.aside import Aside
from store.files.file_system import FileSystem
from store.files.mapped_files import MappedFile
from store.format.paths import own_state_dir


def cut_log(fs: FileSystem, root: Path, end_offset: int, aside: Aside) -> None:
    """Make `end_offset` (bytes) the end of the log.

    Raises:
        OSError, StoreError: the disk failed; finished steps stay.
    """
    files = LogFiles(fs, root, Findings(root))
    files.close()
    size = files.file_size_bytes
    kept = {offset for offset in files.sizes if offset < end_offset} or set(list(files.sizes)[:1])
    for offset in sorted(kept):
        _keep_bytes_behind(fs, files, offset, end_offset, aside)
    for path in files.misplaced:
        aside.move(path)
    for offset in sorted(files.sizes.keys() - kept, reverse=True):
        aside.move(files.directory / f"{offset:020d}")
    state = Path(own_state_dir(str(root), "commitlog"))
    aside.move(state / "snapshot.json")
    aside.move(state / "durable")
    for offset in sorted(kept):
        _give_right_size(fs, files, offset)
    last = max(kept, default=None)
    if last is not None and last + size > end_offset:
        file = MappedFile(fs, files.directory / f"{last:020d}", last, size)
        try:
            file.zero(max(end_offset, last), file.last_offset)
            file.flush()
        finally:
            file.close()


def _keep_bytes_behind(fs: FileSystem, files: LogFiles, offset: int, end_offset: int, aside: Aside) -> None:
    """Copy the bytes of a kept file behind the cut, or behind its proper size."""
    length, size = files.sizes[offset], files.file_size_bytes
    cut = min(max(end_offset - offset, 0), size)
    if length > cut:
        aside.copy(files.directory / f"{offset:020d}", begin=cut, suffix=f".from.{offset + cut}")


def _give_right_size(fs: FileSystem, files: LogFiles, offset: int) -> None:
    size = files.file_size_bytes
    if files.sizes[offset] == size:
        return
    path = files.directory / f"{offset:020d}"
    fd = fs.open(path, os.O_RDWR)
    try:
        if files.sizes[offset] > size:
            fs.ftruncate(fd, size)
        else:
            fs.fallocate(fd, 0, size)
        fs.fdatasync(fd)
    finally:
        fs.close(fd)
