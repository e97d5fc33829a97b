"""What is in the archive of one log file: a manifest, and how it is published.

    {"crc32": N, "segment": {...}}      N is the CRC-32 of the segment as compact JSON with sorted keys

A manifest is the last thing that is written of a segment, by rename. So a segment is in the archive wholly or not at all:
files that no manifest names are left over from a run that was killed, and count for nothing. A manifest that is there again
under the same first offset takes the older one's place; the names of its files differ (`layout.py`).
"""

import errno
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from store.archive import layout
from store.errors import ServiceUnavailableError, StoreCorruptedError, UnsupportedStoreError
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes, write_bytes_atomic


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One Parquet file of a segment.

    Attributes:
        path: relative to the archive.
        topic: whose messages.
        date: the day they were stored, UTC.
        row_count: how many.
        size_bytes: of the file.
        topic_is_shortened: the folder's name does not say the whole topic.
        crc32: of the whole file: also of what no page checksum guards, such as Bloom filters; -1 is not known.
    """

    path: str
    topic: str
    date: str
    row_count: int
    size_bytes: int
    topic_is_shortened: bool = False
    crc32: int = -1


@dataclass(frozen=True, slots=True)
class Segment:
    """One log file in the archive. Offsets are commit-log offsets in bytes, times milliseconds since 1970 UTC.

    Attributes:
        broker_name: the shard.
        first_offset: the log file's first byte, and its name.
        records_end_offset: the first byte behind its last record.
        file_end_offset: the first byte behind the file.
        is_sealed: nothing will be appended to it any more.
        record_count: how many.
        begin_time_millis: the earliest store time, 0 without records.
        end_time_millis: the latest store time, 0 without records.
        log_sha256: of the whole log file, 64 hexadecimal digits: what a restore must come to.
        tail: what stands behind the last record up to the last byte that is not zero, in hexadecimal digits.
        tail_path: the file that holds it where it is long; relative to the archive, else empty.
        tail_size_bytes: how long it is.
        keys_path: the segment's index, relative to the archive.
        keys_size_bytes: of that file.
        files: the Parquet files, in the order in which the index counts their rows.
    """

    broker_name: str
    first_offset: int
    records_end_offset: int
    file_end_offset: int
    is_sealed: bool
    record_count: int
    begin_time_millis: int
    end_time_millis: int
    log_sha256: str
    tail: str
    tail_path: str
    tail_size_bytes: int
    keys_path: str
    keys_size_bytes: int
    files: tuple[ArchivedFile, ...]

    @property
    def end_offset(self) -> int:
        """The first byte of the log that this segment says nothing about."""
        return self.file_end_offset if self.is_sealed else self.records_end_offset

    def paths(self) -> list[str]:
        """Every file that it names, relative to the archive."""
        return [*(file.path for file in self.files), self.keys_path, *([self.tail_path] if self.tail_path else [])]


def encode_segment(segment: Segment) -> bytes:
    """The manifest's bytes."""
    fields = asdict(segment)
    return json.dumps({"crc32": zlib.crc32(_compact(fields)), "segment": fields}, sort_keys=True, indent=1).encode()


def decode_segment(data: bytes, file: Path) -> Segment:
    """The segment of a manifest; StoreCorruptedError, which names `file`, when it is not what was written."""
    try:
        document = json.loads(data)
        fields: dict[str, Any] = document["segment"]
        if document["crc32"] != zlib.crc32(_compact(fields)):
            raise ValueError("its CRC-32 is another")
        files = tuple(ArchivedFile(**row) for row in fields.pop("files"))
        return Segment(**fields, files=files)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(file, 0, f"no manifest: {error}") from error


def damaged(file: Path | str, offset: int, what: str) -> StoreCorruptedError:
    """The error for a file of an archive that is not what was written.

    Args:
        file: which.
        offset: the byte where that shows.
        what: what is there instead.
    """
    return StoreCorruptedError(
        f"{file} of the archive is damaged at byte {offset}: {what}. Bring the file back from a copy, or remove its "
        "segment's manifest and archive the log file again while there is one",
        file=file,
        offset=offset,
    )


def unreadable(file: Path | str, error: OSError) -> ServiceUnavailableError:
    """The error for a file of an archive, or the archive, that the file system does not let be read; no sign of damage.

    Args:
        file: which.
        error: what the file system said; its number has a name in the metadata, `ESTALE` as an example.
    """
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    return ServiceUnavailableError(
        f"{file} of the archive cannot be read ({name}: {error.strerror or error}); nothing says that it is damaged. See to "
        "the file system that it is on, and whether this process may read it",
        service="archive",
        file=file,
        errno=name,
    )


@contextmanager
def reading(archive: Path) -> Iterator[None]:
    """Makes the file system's refusals ServiceUnavailableErrors: the archive is there again when its disk is."""
    try:
        yield
    except OSError as error:
        raise unreadable(error.filename or archive, error) from error


def create_archive(fs: FileSystem, root: Path) -> None:
    """Makes the directory an archive, unless it is one; UnsupportedStoreError when it holds something else."""
    if fs.exists(layout.archive_file(str(root))):
        check_archive(fs, root)
        return
    if fs.listdir(root):
        raise UnsupportedStoreError(
            f"{root} holds files and is no archive: name an empty directory, or one that is not there yet",
            directory=root,
        )
    state = {"format": layout.FORMAT_NAME, "version": layout.FORMAT_VERSION}
    write_bytes_atomic(fs, Path(layout.archive_file(str(root))), json.dumps(state).encode())


def check_archive(fs: FileSystem, root: Path) -> None:
    """UnsupportedStoreError when the directory is no archive, or one of a version that is not known here."""
    data = read_bytes(fs, Path(layout.archive_file(str(root))))
    if data is None:
        raise UnsupportedStoreError(
            f"{root} is no archive (no archive.json): name the directory that `reput pipeline archive` wrote",
            directory=root,
        )
    try:
        state = json.loads(data)
        name, version = state["format"], state["version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise damaged(layout.archive_file(str(root)), 0, f"it does not say what the directory is ({error})") from error
    if (name, version) != (layout.FORMAT_NAME, layout.FORMAT_VERSION):
        raise UnsupportedStoreError(
            f"{root} is an archive of format {name} {version}, not {layout.FORMAT_NAME} {layout.FORMAT_VERSION}: "
            "read it with the version of Reput that wrote it",
            directory=root,
        )


def publish_segment(fs: FileSystem, root: Path, segment: Segment) -> None:
    """The segment is in the archive from here on; the files that it names must be on the disk."""
    path = Path(layout.segment_file(str(root), segment.broker_name, segment.first_offset))
    write_bytes_atomic(fs, path, encode_segment(segment))


def segment_offsets(fs: FileSystem, root: Path, broker_name: str) -> list[int]:
    """First offsets of a shard's segments, rising."""
    names = fs.listdir(layout.segments_dir(str(root), broker_name))
    return sorted(offset for name in names if (offset := layout.parse_segment_name(name)) is not None)


def read_segment(fs: FileSystem, root: Path, broker_name: str, first_offset: int) -> Segment:
    """A manifest; StoreCorruptedError when it is damaged or missing."""
    path = Path(layout.segment_file(str(root), broker_name, first_offset))
    data = read_bytes(fs, path)
    if data is None:
        raise damaged(path, 0, "it is gone")
    segment = decode_segment(data, path)
    if (segment.broker_name, segment.first_offset) != (broker_name, first_offset):
        raise damaged(path, 0, f"it is of {segment.broker_name} from {segment.first_offset} on")
    return segment


def _compact(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
