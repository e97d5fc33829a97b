"""Restores the log file of one archive segment byte for byte; SHA-256 proves it."""

import mmap
import os
from pathlib import Path

from store.archive.manifest import Segment, damaged
from store.archive.parquet_files import FRAME_COLUMNS, ParquetFiles
from store.archive.segment_writer import log_digest, read_tail
from store.files.file_system import FileSystem
from store.format.paths import commit_log_dir, log_file_name

RESTORE_COLUMNS = ("physicalOffset", *FRAME_COLUMNS)


def restore_log_file(
    fs: FileSystem, archive: Path, segment: Segment, out: Path, *, archive_fs: FileSystem | None = None
) -> int:
    """Writes the log file of a segment below a store root and flushes it; returns its size in bytes.

    Args:
        fs: the port to the disk.
        archive: the archive.
        segment: one of its segments.
        out: the store root that is being made.
        archive_fs: the port to the archive's disk; None for the same as that of `out`.

    Raises:
        StoreCorruptedError: the archive's files do not yield the archived log file; metadata has `file`.
        DiskFullError: no space for the file.
    """
    size_bytes = segment.file_end_offset - segment.first_offset
    directory = Path(commit_log_dir(str(out)))
    fs.mkdirs(directory)
    target = directory / log_file_name(segment.first_offset)
    temporary = target.with_name(f".{target.name}.tmp")
    fd = fs.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        fs.fallocate(fd, 0, size_bytes)  # without a block on the disk, a write through the map could raise SIGBUS
        with mmap.mmap(fd, size_bytes) as log_file:
            record_count = _write_records(archive_fs or fs, archive, segment, log_file)
            tail = read_tail(archive_fs or fs, archive, segment)
            at = segment.records_end_offset - segment.first_offset
            log_file[at : at + len(tail)] = tail
            log_file.flush()
            with memoryview(log_file) as view:
                digest = log_digest(view)
        if record_count != segment.record_count or digest != segment.log_sha256:
            raise damaged(
                archive / (segment.files[0].path if segment.files else segment.keys_path),
                0,
                f"the files of the segment at {segment.first_offset} yield {record_count} records and the SHA-256 "
                f"{digest}, the manifest says {segment.record_count} and {segment.log_sha256}",
            )
        fs.fdatasync(fd)
    except BaseException:
        fs.unlink(temporary)
        raise
    finally:
        fs.close(fd)
    fs.rename(temporary, target)
    fs.fsync_dir(directory)
    return size_bytes


def _write_records(fs: FileSystem, archive: Path, segment: Segment, log_file: mmap.mmap) -> int:
    parquet = ParquetFiles(fs)
    count = 0
    for file in segment.files:
        path = archive / file.path
        for table in parquet.tables(path, RESTORE_COLUMNS):
            for offset, head, body, tail in zip(*(column.to_pylist() for column in table.columns), strict=True):
                begin = offset - segment.first_offset
                frame = head + body + tail
                if not 0 <= begin <= len(log_file) - len(frame):
                    raise damaged(
                        path, 0, f"a record in it states the commit-log offset {offset}, outside its log file"
                    )
                log_file[begin : begin + len(frame)] = frame
            count += len(table)
    return count
