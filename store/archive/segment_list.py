"""The segments that an archive has of a shard: its manifests, read again only when their files have changed."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from store.archive import layout
from store.archive.manifest import Segment, check_archive, read_segment, reading, segment_offsets, unreadable
from store.errors import StoreCorruptedError, StoreError
from store.files.file_system import FileStamp, FileSystem

# Coarser than the timestamps of file systems: two changes within it may have the same timestamp.
SETTLED_NANOS = 2_000_000_000


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
