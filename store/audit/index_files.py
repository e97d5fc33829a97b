"""Audits the names and lengths of the files in the index folder."""

from datetime import datetime
from pathlib import Path

from store.audit.findings import Findings
from store.files.file_system import FileSystem
from store.readers.index_reader import IndexLayout, index_strangers, list_index_files


def check_index_files(fs: FileSystem, root: Path, layout: IndexLayout | None, findings: Findings) -> None:
    """Checks the folder `index/`.

    Args:
        fs: the file system.
        root: the store root.
        layout: of the files; None if it cannot be found out.
        findings: gets what is wrong.
    """
    for path, what in index_strangers(fs, root):
        findings.add("INDEX_FOREIGN_FILE", path, 0, what)
    for path in list_index_files(fs, root):
        if not _is_time(path.name):
            findings.add("INDEX_FILE_NAME", path, 0, "its name is not a time: the next file cannot be named")
        if layout is None:
            findings.add("INDEX_UNREADABLE", path, 0, "the number of its slots and entries cannot be found out")
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
