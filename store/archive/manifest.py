"""Manifests: what the archive holds of one log file, how it is published, and the list of a shard's.

    {"crc32": N, "segment": {...}}      N is the CRC-32 of the segment as compact JSON with sorted keys

The manifest of a segment is written last, by rename. So a segment is in the archive wholly or not at all: files that no
manifest names are left over from a killed run, and are ignored. A new manifest with the same first offset replaces the older
one; its files have other names (`layout.py`).
"""

import errno
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from store.archive import layout
from store.errors import ServiceUnavailableError, StoreCorruptedError, StoreError, UnsupportedStoreError
from store.files.file_system import FileStamp, FileSystem
from store.files.json_state import read_bytes, temporary_of, write_bytes_atomic

# Coarser than the timestamps of file systems: two changes within it may have the same timestamp.
SETTLED_NANOS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One Parquet file of a segment.

    Attributes:
        path: relative to the archive.
        topic: the topic of its messages.
        date: the day they were stored, UTC.
        row_count: number of rows.
        size_bytes: size of the file.
        topic_is_shortened: the folder's name does not hold the whole topic.
        crc32: of the whole file, so also of parts without a page checksum, such as Bloom filters; -1 if not known.
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
        record_count: number of records.
        begin_time_millis: the earliest store time, 0 without records.
        end_time_millis: the latest store time, 0 without records.
        log_sha256: of the whole log file, 64 hexadecimal digits; a restore must result in it.
        tail: the bytes behind the last record up to the last one that is not zero, in hexadecimal digits.
        tail_path: the file that holds a long tail, relative to the archive; else empty.
        tail_size_bytes: size of the tail.
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
        """The first byte of the log behind this segment."""
        return self.file_end_offset if self.is_sealed else self.records_end_offset

    def has_topic(self, topic: str) -> bool:
        """Whether a record has this topic."""
        return any(file.topic == topic for file in self.files)

    def paths(self) -> list[str]:
        """Every file that it names, relative to the archive."""
        return [*(file.path for file in self.files), self.keys_path, *([self.tail_path] if self.tail_path else [])]


def encode_segment(segment: Segment) -> bytes:
    """The manifest's bytes."""
    fields = asdict(segment)
    return json.dumps({"crc32": zlib.crc32(_compact(fields)), "segment": fields}, sort_keys=True, indent=1).encode()


def decode_segment(data: bytes, file: Path) -> Segment:
    """The segment of a manifest; StoreCorruptedError, which names `file`, when the manifest is damaged."""
    try:
        document = json.loads(data)
        fields: dict[str, Any] = document["segment"]
        if document["crc32"] != zlib.crc32(_compact(fields)):
            raise ValueError("its CRC-32 does not match")
        files = tuple(ArchivedFile(**row) for row in fields.pop("files"))
        return Segment(**fields, files=files)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(file, 0, f"not a manifest: {error}") from error


def damaged(file: Path | str, offset: int, what: str) -> StoreCorruptedError:
    """The error for a damaged file of an archive.

    Args:
        file: the file.
        offset: the byte at which the damage was found.
        what: what is wrong there.
    """
    return StoreCorruptedError(
        f"{file} of the archive is damaged at byte {offset}: {what}. Bring the file back from a copy, or remove its "
        "segment's manifest and archive the log file again while there is one",
        file=file,
        offset=offset,
    )


def unreadable(file: Path | str, error: OSError) -> ServiceUnavailableError:
    """The error for an archive, or a file of it, that the file system refuses to read; it is not a sign of damage.

    Args:
        file: the file or the archive.
        error: the error of the file system; the metadata has the name of its number, such as `ESTALE`.
    """
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    return ServiceUnavailableError(
        f"{file} of the archive cannot be read ({name}: {error.strerror or error}); this is not a sign of "
        "damage. Check its file system, and whether this process may read the file",
        service="archive",
        file=file,
        errno=name,
    )


@contextmanager
def reading(archive: Path) -> Iterator[None]:
    """Makes the file system's refusals ServiceUnavailableErrors: the archive can be read again once its disk can."""
    try:
        yield
    except OSError as error:
        raise unreadable(error.filename or archive, error) from error


def create_archive(fs: FileSystem, root: Path) -> None:
    """Makes the directory an archive, unless it is one already; UnsupportedStoreError when it holds other files."""
    if is_new_archive(fs, root):
        write_bytes_atomic(fs, Path(layout.archive_file(str(root))), encode_archive())


def is_new_archive(fs: FileSystem, root: Path) -> bool:
    """Whether a place has to be made an archive; UnsupportedStoreError when it holds other files."""
    file = Path(layout.archive_file(str(root)))
    if fs.exists(file):
        check_archive(fs, root)
        return False
    if set(fs.listdir(root)) - {temporary_of(file).name}:  # it is there if a making was killed
        raise UnsupportedStoreError(
            f"{root} holds files and is not an archive: name an empty directory, or one that does not exist yet",
            directory=root,
        )
    return True


def encode_archive() -> bytes:
    """The bytes of `archive.json`."""
    return json.dumps({"format": layout.FORMAT_NAME, "version": layout.FORMAT_VERSION}).encode()


def check_archive(fs: FileSystem, root: Path) -> None:
    """UnsupportedStoreError when the directory is not an archive, or one of an unknown version."""
    data = read_bytes(fs, Path(layout.archive_file(str(root))))
    if data is None:
        raise UnsupportedStoreError(
            f"{root} is not an archive (it has no archive.json): name the directory that `reput pipeline archive` wrote",
            directory=root,
        )
    try:
        state = json.loads(data)
        name, version = state["format"], state["version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise damaged(
            layout.archive_file(str(root)), 0, f"it does not state the format of the archive ({error})"
        ) from error
    if (name, version) != (layout.FORMAT_NAME, layout.FORMAT_VERSION):
        raise UnsupportedStoreError(
            f"{root} is an archive of format {name} {version}, not {layout.FORMAT_NAME} {layout.FORMAT_VERSION}: "
            "read it with the version of Reput that wrote it",
            directory=root,
        )


def may_publish(fs: FileSystem, root: Path, segment: Segment) -> bool:
    """Whether a segment may be added, or take the place of the published one: a slow attempt never takes records back."""
    path = Path(layout.segment_file(str(root), segment.broker_name, segment.first_offset))
    data = read_bytes(fs, path)
    if data is None:
        return True
    known = decode_segment(data, path)
    return not known.is_sealed and known.records_end_offset <= segment.records_end_offset


def segment_offsets(fs: FileSystem, root: Path, broker_name: str) -> list[int]:
    """First offsets of a shard's segments, rising."""
    names = fs.listdir(layout.segments_dir(str(root), broker_name))
    return sorted(offset for name in names if (offset := layout.parse_segment_name(name)) is not None)


def read_segment(fs: FileSystem, root: Path, broker_name: str, first_offset: int) -> Segment:
    """A manifest; StoreCorruptedError when it is damaged or missing."""
    path = Path(layout.segment_file(str(root), broker_name, first_offset))
    data = read_bytes(fs, path)
    if data is None:
        raise damaged(path, 0, "it is missing")
    segment = decode_segment(data, path)
    if (segment.broker_name, segment.first_offset) != (broker_name, first_offset):
        raise damaged(path, 0, f"it belongs to {segment.broker_name}, first offset {segment.first_offset}")
    return segment


def _compact(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


class SegmentList:
    """Reads the manifests of one shard; thread-safe.

    Args:
        root: the archive.
        broker_name: the shard.
        fs: the disk port.
        on_change: called with the sound segments when they have changed.
        clock_nanos: nanoseconds since 1970, as the file system counts them.
    """

    def __init__(
        self,
        root: Path,
        broker_name: str,
        fs: FileSystem,
        on_change: Callable[[list[Segment]], None],
        clock_nanos: Callable[[], int] = time.time_ns,
    ) -> None:
        self._root = root
        self._broker_name = broker_name
        self._fs = fs
        self._on_change = on_change
        self._clock_nanos = clock_nanos
        self._lock = Lock()
        # The folder's stamp when its manifests were read; None if it might have changed since.
        self._stamp: FileStamp | None = None
        self._manifests: dict[int, tuple[object, Segment | StoreError]] = {}

    def load(self) -> list[Segment | StoreError]:
        """The published segments, by offset; in place of one whose manifest cannot be read, the error.

        Raises:
            UnsupportedStoreError: the directory is not an archive.
            ServiceUnavailableError: the file system refuses to read it; metadata has `file` and `errno`.
        """
        with reading(self._root):
            return self._load()

    def _load(self) -> list[Segment | StoreError]:
        directory = layout.segments_dir(str(self._root), self._broker_name)
        listed_at_nanos = self._clock_nanos()
        stamp = _stamp(self._fs, directory)
        with self._lock:
            known = self._manifests
            if stamp is not None and stamp == self._stamp:
                return [manifest for _, manifest in known.values()]
        check_archive(self._fs, self._root)
        manifests: dict[int, tuple[object, Segment | StoreError]] = {}
        for offset in segment_offsets(self._fs, self._root, self._broker_name):
            path = os.path.join(directory, f"{offset:020d}.json")
            try:
                file_stamp = _stamp(self._fs, path)
                if file_stamp is None:
                    continue  # removed since it was listed
                if offset in known and known[offset][0] == file_stamp:
                    manifests[offset] = known[offset]
                else:
                    manifests[offset] = file_stamp, read_segment(self._fs, self._root, self._broker_name, offset)
            except StoreCorruptedError as error:
                manifests[offset] = None, error
            except OSError as error:
                manifests[offset] = None, unreadable(path, error)
        if manifests == known:
            manifests = known
        else:
            with self._lock:
                self._manifests = manifests
                self._stamp = None
            self._on_change([manifest for _, manifest in manifests.values() if isinstance(manifest, Segment)])
        # A folder that has just changed may change again within the same timestamp; a damaged manifest may be restored.
        is_settled = stamp is not None and listed_at_nanos - stamp[1] > SETTLED_NANOS
        if is_settled and all(isinstance(manifest, Segment) for _, manifest in manifests.values()):
            with self._lock:
                if (
                    self._manifests is manifests
                ):  # else another thread has replaced them meanwhile; its listing may be newer
                    self._stamp = stamp
        return [manifest for _, manifest in manifests.values()]


def _stamp(fs: FileSystem, path: str) -> FileStamp | None:
    """A value that changes when the file or folder does; None when it does not exist, or is no object of an object store."""
    try:
        return fs.stamp(path)
    except FileNotFoundError:
        return None
