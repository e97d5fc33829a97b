"""Auditing the names and lengths of index files, and who else lies between them."""

from datetime import datetime
from pathlib import Path

from store.audit.findings import Findings
from store.files.file_system import FileSystem
from store.format.paths import is_index_file_name
from store.readers.index_reader import IndexLayout


def check_index_files(fs: FileSystem, directory: Path, layout: IndexLayout | None, findings: Findings) -> None:
    """Checks the folder `index/`.

    Args:
        fs: the door to the disk.
        directory: the folder.
        layout: how the files are divided; None when nothing says it.
        findings: takes what is wrong.
    """
    for name in fs.listdir(directory):
        path = directory / name
        if not is_index_file_name(name):
            findings.add("INDEX_FOREIGN_FILE", path, 0, "this name is none of an index file")
            continue
        if not _is_time(name):
            findings.add("INDEX_FILE_NAME", path, 0, "its name is no time: the next file could not be named")
        if layout is None:
            findings.add("INDEX_UNREADABLE", path, 0, "its bytes do not say how it is divided into slots and entries")
            continue
        size, length = layout.file_size_bytes, fs.stat_size(path)
        if length != size:
            findings.add("INDEX_FILE_SIZE", path, min(length, size), f"it has {length} bytes, not {size}")


def _is_time(name: str) -> bool:
    """Whether a name is yyyyMMddHHmmssSSS."""
    try:
        datetime.strptime(name[:14], "%Y%m%d%H%M%S")
    except ValueError:
        return False
    return True
