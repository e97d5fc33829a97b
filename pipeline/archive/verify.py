"""The job `archive --verify`: reads every byte of an archive and checks it, with one task for each segment.

    manifest        CRC-32; it continues the manifest before; each file that it names exists with the stated size
    index           CRC-32 of front and blocks; count of records as in the manifest
    Parquet         page checksums, count of rows as in the manifest, and each row's record: CRCs, offset, size
    all together    each record of the index is in one row; each record begins where the one before ends
    topic table     CRC-32
    log file        records, tail and zeros have the SHA-256 of the archived file, as a restore would make it

Each finding names its file. The job writes only an unnamed temporary file of at most the size of a log file, because rows
are sorted by queue and a log file by offset.
"""

import functools
import hashlib
import tempfile
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.job import JobReport, Progress, refuse_unshared, run_here, run_on_spark, silent
from pipeline.object_files import open_root
from services.object_uri import named
from store.archive import layout
from store.archive.archive_reader import ArchiveReader, SegmentReader
from store.archive.manifest import Segment, check_archive, read_segment, segment_offsets
from store.archive.parquet_files import FRAME_COLUMNS, ParquetFiles
from store.archive.segment_writer import file_crc32, read_tail
from store.archive.topic_table import read_topic_table
from store.errors import RecordCorruptedError, ServiceUnavailableError, StoreCorruptedError, StoreError
from store.files.file_system import FileSystem, RealFileSystem
from store.format.record import decode_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Finding = dict[str, Any]
# The archive may be in an object store; the log file that its segment yields is written here.
_LOCAL = RealFileSystem()
# More findings for one file would make the report too long to read.
RECORD_FINDING_COUNT_MAX = 100
_STATED_OFFSET = slice(28, 36)  # the record's own commit-log offset, in its bytes


def run(
    spark: "SparkSession | None",
    archive: Path | str,
    *,
    broker_name: str = "broker-a",
    progress: Progress = silent,
) -> JobReport:
    """Reads and checks all of a shard's archive.

    Args:
        spark: the session whose executors run the tasks; None: this process runs them one after another.
        archive: the archive, or its URI in an object store.
        broker_name: the shard.
        progress: called with the count of segments done.

    Returns:
        Counts, and a finding for each damaged or missing part.

    Raises:
        UnsupportedStoreError: the directory is not an archive.
    """
    report = JobReport.begin("archive-verify")
    place = str(archive)
    fs, archive = open_root(archive, "archive")
    check_archive(fs, archive)
    refuse_unshared(spark, place, "archive")
    offsets = segment_offsets(fs, archive, broker_name)
    run_tasks = run_here(progress) if spark is None else run_on_spark(spark, progress)
    task = functools.partial(verify_one, place, broker_name)
    outcomes = list(run_tasks("verify", task, offsets))
    report.findings += [finding for outcome in outcomes for finding in outcome["findings"]]
    problem = ArchiveReader(archive, broker_name, fs).problem()
    if problem is not None and problem.metadata.get("beginOffset"):
        report.findings.append(_finding("log_missing", str(archive), problem))
    try:
        read_topic_table(fs, archive, broker_name)
    except StoreCorruptedError as error:
        report.findings.append(_finding("topics_damaged", error.metadata["file"], error))
    report.counts |= {
        "segment_count": len(offsets),
        "record_count": sum(outcome["record_count"] for outcome in outcomes),
    }
    report.outputs["archive"] = named(archive)
    return report.end()


def verify_segment(fs: FileSystem, archive: Path, segment: Segment) -> Iterator[Finding]:
    """Findings for the damaged parts of a segment."""
    for path, size_bytes in (
        (segment.keys_path, segment.keys_size_bytes),
        *((f.path, f.size_bytes) for f in segment.files),
    ):
        if fs.exists(archive / path) and fs.stat_size(archive / path) != size_bytes:
            what = f"it has {fs.stat_size(archive / path)} bytes, the manifest says {size_bytes}"
            yield {"kind": "file_size", "file": str(archive / path), "what": what}
    for file in segment.files:
        parquet_file = archive / file.path
        if file.crc32 >= 0 and fs.exists(parquet_file) and file_crc32(fs, parquet_file) != file.crc32:
            what = f"the CRC-32 of the whole file differs from the manifest's, {file.crc32}"
            yield {"kind": "file_changed", "file": str(parquet_file), "what": what}
    with tempfile.TemporaryFile(prefix="reput-verify-", buffering=0) as log_file:
        yield from _contents(fs, archive, segment, log_file)


def _contents(fs: FileSystem, archive: Path, segment: Segment, log_file: FileIO) -> Iterator[Finding]:
    """Findings for the segment's bytes; the log file that they yield is written to `log_file`."""
    tail: bytes | None = None
    tail_file = str(archive / (segment.tail_path or layout.segment_file("", segment.broker_name, segment.first_offset)))
    try:
        tail = read_tail(fs, archive, segment)
    except StoreError as error:
        yield _finding("tail_damaged", tail_file, error)
    if tail is not None and len(tail) != segment.tail_size_bytes:
        what = f"the tail has {len(tail)} bytes, the manifest says {segment.tail_size_bytes}"
        yield {"kind": "tail_damaged", "file": tail_file, "what": what}
    places: list[tuple[int, int]] = []
    is_whole = True
    parquet = ParquetFiles(fs)
    for number in range(len(segment.files)):
        for found in _rows(fs, parquet, archive, segment, number, places, log_file):
            is_whole = False
            yield found
    index = str(archive / segment.keys_path)
    try:
        reader = SegmentReader(fs, archive, segment, parquet)
        indexed = reader.all_offsets()
        reader.check_blocks()
        astray = is_whole and any(reader.frame(at)[_STATED_OFFSET] != at.to_bytes(8, "big") for at, _ in places)
    except ServiceUnavailableError:
        raise  # the archive's disk is not available: its bytes may be right
    except StoreError as error:
        yield _finding("index_damaged", index, error)
        return
    if not is_whole:
        return
    places.sort()
    if indexed != [offset for offset, _ in places] or astray:
        yield {"kind": "index_wrong", "file": index, "what": "its records differ from those of the Parquet files"}
    at = segment.first_offset
    for offset, size_bytes in places:
        if offset != at:
            what = f"no record starts at commit-log offset {at}; the next one starts at {offset}"
            yield {"kind": "records_missing", "file": index, "what": what}
        at = offset + size_bytes
    if at != segment.records_end_offset:
        what = f"its records end at commit-log offset {at}, the manifest says {segment.records_end_offset}"
        yield {"kind": "records_missing", "file": index, "what": what}
    elif tail is not None:
        _LOCAL.pwrite(log_file.fileno(), tail, segment.records_end_offset - segment.first_offset)
        log_file.truncate(segment.file_end_offset - segment.first_offset)  # zeros up to there
        log_file.seek(0)
        digest = hashlib.file_digest(log_file, "sha256").hexdigest()
        if digest != segment.log_sha256:
            # The records are right and in their places, so that only the tail can be wrong.
            what = (
                f"records and tail yield a log file with the SHA-256 {digest}, the manifest says {segment.log_sha256}"
            )
            yield {"kind": "log_differs", "file": tail_file, "what": what}


def _rows(
    fs: FileSystem,
    parquet: ParquetFiles,
    archive: Path,
    segment: Segment,
    number: int,
    places: list[tuple[int, int]],
    log_file: FileIO,
) -> Iterator[Finding]:
    """Findings for a Parquet file. Its records are written to `log_file`; offset and size are added to `places` (bytes)."""
    file = segment.files[number]
    path = archive / file.path
    row_count = damaged_count = 0
    try:
        for table in parquet.tables(path, parquet.columns(path)):
            row_count += len(table)
            columns = [table.column(name).to_pylist() for name in ("physicalOffset", "topic", *FRAME_COLUMNS)]
            for offset, topic, head, body, tail in zip(*columns, strict=True):
                frame = head + body + tail
                places.append((offset, len(frame)))
                if segment.first_offset <= offset <= segment.file_end_offset - len(frame):
                    _LOCAL.pwrite(log_file.fileno(), frame, offset - segment.first_offset)
                try:
                    record = decode_record(frame, commit_log_offset=offset)
                    if topic != record.topic.encode("utf-8", "replace").decode() or topic != file.topic:
                        raise RecordCorruptedError(f"its topic is {record.topic!r}, in a file of {file.topic!r}")
                except RecordCorruptedError as error:
                    damaged_count += 1
                    if damaged_count <= RECORD_FINDING_COUNT_MAX:
                        yield _finding("record_damaged", str(path), error, commit_log_offset=offset)
    except StoreCorruptedError as error:
        yield _finding("parquet_damaged", str(path), error)
        return
    if row_count != file.row_count:
        what = f"it has {row_count} rows, the manifest says {file.row_count}"
        yield {"kind": "row_count", "file": str(path), "what": what}


def _finding(kind: str, file: str, error: StoreError, **more: Any) -> Finding:
    return {"kind": kind, "file": file, **more, "what": error.message}


def verify_one(archive: str, broker_name: str, first_offset: int) -> dict[str, Any]:
    """One Spark task: verifies one segment."""
    fs, root = open_root(archive, "archive")
    try:
        segment = read_segment(fs, root, broker_name, first_offset)
    except StoreError as error:
        return {"findings": [_finding("manifest_damaged", str(error.metadata["file"]), error)], "record_count": 0}
    findings = list(verify_segment(fs, root, segment))
    return {"findings": findings, "record_count": segment.record_count}
