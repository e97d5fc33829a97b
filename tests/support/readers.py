"""Readers of whole stores for tests: all queues of a root, and its index."""

from pathlib import Path

from store.files.file_system import FileSystem, RealFileSystem
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import index_key, key_hash
from store.format.derived.queue_unit import UNIT_SIZE_BYTES
from store.format.paths import log_file_name, queue_dir
from store.readers.index_reader import (
    TIME_MILLIS_MAX,
    IndexFileView,
    IndexLayout,
    Walk,
    list_index_files,
    search_views,
)
from store.readers.queue_reader import QueueUnits, file_offsets, list_queue_ids


class QueueReader:
    """All consume queues of a store root, read-only, with everything that the builder has written so far.

    Args:
        root: the store root.
        fs: the file system.
    """

    def __init__(self, root: Path, fs: FileSystem | None = None) -> None:
        self._root = root
        self._fs = fs or RealFileSystem()
        self._files = OpenFiles(self._fs)

    def topics(self) -> list[str]:
        """Topics that have a queue, sorted."""
        return sorted({topic for topic, _ in list_queue_ids(self._fs, self._root)})

    def queues(self, topic: str) -> list[int]:
        """Queue ids of a topic, rising."""
        return [queue_id for name, queue_id in list_queue_ids(self._fs, self._root) if name == topic]

    def queue(self, topic: str, queue_id: int) -> QueueUnits:
        """One queue as it is now; empty if it has no files."""
        directory = Path(queue_dir(str(self._root), topic, queue_id))
        offsets = file_offsets(self._fs, directory)
        size = self._fs.stat_size(directory / log_file_name(offsets[0])) if offsets else UNIT_SIZE_BYTES
        units = QueueUnits(self._files, directory, max(size - size % UNIT_SIZE_BYTES, UNIT_SIZE_BYTES))
        units.load()
        return units


class IndexReader:
    """All index files of a store root, read-only, with everything that the builder has flushed so far.

    Args:
        root: the store root.
        layout: how the files are divided.
        fs: the file system.
    """

    def __init__(self, root: Path, layout: IndexLayout, fs: FileSystem | None = None) -> None:
        self._root = root
        self._layout = layout
        self._fs = fs or RealFileSystem()
        self._files = OpenFiles(self._fs)

    def views(self) -> list[IndexFileView]:
        """The files, oldest first."""
        return [IndexFileView(self._files, path, self._layout) for path in list_index_files(self._fs, self._root)]

    def search(
        self,
        topic: str,
        key: str,
        *,
        below_offset: int | None = None,
        begin_millis: int = 0,
        end_millis: int = TIME_MILLIS_MAX,
        count: int = 64,
        walk: Walk | None = None,
    ) -> list[int]:
        """Candidates for a key; see `search_views`."""
        return search_views(
            self.views(),
            key_hash(index_key(topic, key)),
            below_offset=below_offset,
            begin_millis=begin_millis,
            end_millis=end_millis,
            count=count,
            walk=walk if walk is not None else Walk(),
        )
