"""Audits the names and lengths of the files in the queue folders."""

from itertools import pairwise
from pathlib import Path

from store.audit.findings import Findings
from store.files.file_system import FileSystem
from store.format.paths import consume_queue_dir, log_file_name, parse_queue_folder_name
from store.readers.queue_reader import file_offsets, queue_strangers


def check_queue_files(
    fs: FileSystem, directory: Path, name: str, file_size_bytes: int, findings: Findings
) -> tuple[int, bool]:
    """Checks one queue's folder.

    Args:
        fs: the file system.
        directory: the folder.
        name: the queue's name in findings.
        file_size_bytes: size of a queue file.
        findings: gets what is wrong.

    Returns:
        length of all files (bytes), and whether nothing is wrong.
    """
    offsets = file_offsets(fs, directory)
    total, is_sound = 0, True
    for offset in offsets:
        path = directory / log_file_name(offset)
        length = fs.stat_size(path)
        total += length
        if offset % file_size_bytes:
            what = f"queue {name}: files have {file_size_bytes} bytes each: none can begin at {offset}"
            findings.add("QUEUE_FILE_NAME", path, 0, what)
            is_sound = False
        elif length != file_size_bytes:
            what = f"queue {name}: it has {length} bytes, a queue file has {file_size_bytes}"
            findings.add("QUEUE_FILE_SIZE", path, min(length, file_size_bytes), what)
            is_sound = False
    on_grid = [offset for offset in offsets if offset % file_size_bytes == 0]
    for before, behind in pairwise(on_grid):
        if behind - before > file_size_bytes:
            path = directory / log_file_name(before + file_size_bytes)
            findings.add("QUEUE_FILE_MISSING", path, 0, f"queue {name}: it is missing between two others")
            is_sound = False
    return total, is_sound


def tell_strangers(fs: FileSystem, root: Path, queues: set[tuple[str, int]], findings: Findings) -> None:
    """Reports everything in `consumequeue/` that does not belong to a queue; it is harmless."""
    for path, what in queue_strangers(fs, root):
        findings.add("QUEUE_FOREIGN_FILE", path, 0, what)
    base = Path(consume_queue_dir(str(root)))
    for topic in fs.listdir(base):
        for name in fs.listdir(base / topic) if fs.is_dir(base / topic) else ():
            queue_id = parse_queue_folder_name(name)
            if queue_id is not None and (topic, queue_id) not in queues and fs.is_dir(base / topic / name):
                findings.add("QUEUE_FOREIGN_FILE", base / topic / name, 0, "this folder has no queue files")
