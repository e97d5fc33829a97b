"""Audits the names and lengths of the files in the index folder."""

from datetime import datetime
from pathlib import Path

from store.audit.findings import Findings
from store.files.file_system import FileSystem
from store.format.paths import is_index_file_name
from store.readers.index_reader import IndexLayout


def check_index_files(fs: FileSystem, directory: Path, layout: IndexLayout | None, findings: Findings) -> None:
    """Checks the folder `index/`.

    Args:
        fs: the file system.
        directory: the folder.
        layout: of the files; None if it cannot be found out.
        findings: gets what is wrong.
    """
    for name in fs.listdir(directory):
        path = directory / name
        if not is_index_file_name(name):
            findings.add("INDEX_FOREIGN_FILE", path, 0, "this is not the name of an index file")
            continue
        if not _is_time(name):
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
