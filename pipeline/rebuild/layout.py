"""Sizes of the files of a rebuild: those of the store's own files, or those of the settings if the store has none."""

from dataclasses import dataclass, field
from pathlib import Path

from store.audit.index_files import find_index_layout
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state
from store.format.derived.queue_unit import UNIT_SIZE_BYTES
from store.format.paths import own_state_dir
from store.readers.index_reader import IndexLayout
from store.readers.queue_reader import detect_queue_file_size

QUEUE_FILE_SIZE_BYTES = 6_000_000
INDEX_HASH_SLOT_COUNT = 5_000_000
INDEX_ENTRY_COUNT_MAX = 20_000_000


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Sizes of derived files.

    Attributes:
        queue_file_size_bytes: size of queue files; a multiple of the unit size.
        index: slots and entries of index files.
    """

    queue_file_size_bytes: int = QUEUE_FILE_SIZE_BYTES
    index: IndexLayout = field(default_factory=lambda: IndexLayout(INDEX_HASH_SLOT_COUNT, INDEX_ENTRY_COUNT_MAX))

    def __post_init__(self) -> None:
        assert self.queue_file_size_bytes >= UNIT_SIZE_BYTES, self
        assert self.queue_file_size_bytes % UNIT_SIZE_BYTES == 0, self
        assert self.index.slot_count > 0, self
        assert self.index.entry_count_max > 1, self


def find_layout(fs: FileSystem, root: Path, wanted: StoreLayout) -> tuple[StoreLayout, list[str]]:
    """The layout for a store's queues and indexes, and notes for the report.

    Args:
        fs: the port to the disk.
        root: the store root.
        wanted: the settings; existing files override them.
    """
    notes = []
    queue_file_size = detect_queue_file_size(fs, root) or wanted.queue_file_size_bytes
    if queue_file_size != wanted.queue_file_size_bytes:
        notes.append(
            f"queue files have {queue_file_size} bytes, as in the store; the setting is {wanted.queue_file_size_bytes}"
        )
    index = find_index_layout(fs, root, saved_index_layout(fs, root)) or wanted.index
    if index != wanted.index:
        notes.append(
            f"index files have {index.slot_count} slots and {index.entry_count_max} entries, as in the store; "
            f"the settings are {wanted.index.slot_count} and {wanted.index.entry_count_max}"
        )
    return StoreLayout(queue_file_size, index), notes


def saved_index_layout(fs: FileSystem, root: Path) -> IndexLayout | None:
    """The layout in the state file of the index's owner; None if there is no such file."""
    state = read_json_state(fs, Path(own_state_dir(str(root), "index")) / "checkpoint.json") or {}
    slot_count, entry_count_max = state.get("slot_count"), state.get("entry_count_max")
    if not isinstance(slot_count, int) or not isinstance(entry_count_max, int):
        return None
    return IndexLayout(slot_count, entry_count_max) if slot_count > 0 and entry_count_max > 1 else None
