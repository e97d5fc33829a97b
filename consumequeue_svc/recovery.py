"""Where to go on after a start.

- Our own checkpoint fits the files: every queue is cut back to the end that it says (all before was flushed), and the
  log is followed from its offset.
- Otherwise (a foreign store, or files missing, short or changed): the log is replayed from its first record over what
  is there (see `consume_queue.py`). Only a cleanly stopped store whose log is larger than ADOPTED_LOG_BYTES_MIN is
  taken as it is, because reading all of it would take many minutes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from store.errors import UnsupportedStoreError
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state

ADOPTED_LOG_BYTES_MIN = 8 << 30
ROCKSDB_DIRECTORIES = ("consumequeue_r", "rocksdb")
VERSION = 1


@dataclass(frozen=True, slots=True)
class Resume:
    """Where to follow the log from (bytes; -1 = its first record), and how."""

    next_offset: int
    store_time_millis: int
    is_replay: bool


def refuse_rocksdb(fs: FileSystem, root: Path) -> None:
    """UnsupportedStoreError for a store whose queues lie in RocksDB."""
    for name in ROCKSDB_DIRECTORIES:
        if fs.is_dir(root / name):
            raise UnsupportedStoreError(
                f"{root / name} holds queues in RocksDB, which cannot be read: "
                "only stores with storeType=default are supported",
                directory=root / name,
            )


def save_checkpoint(
    fs: FileSystem, path: Path, table: ConsumeQueueTable, next_offset: int, store_time_millis: int, *, is_clean: bool
) -> None:
    """Writes down that everything before an offset is applied and flushed."""
    queues: dict[str, list[list[int]]] = {}
    for (topic, queue_id), queue in table.items():
        queues.setdefault(topic, []).append([queue_id, queue.first_file_offset, queue.units.end])
    state = {
        "version": VERSION,
        "next_offset": next_offset,
        "store_time_millis": store_time_millis,
        "clean": is_clean,
        "queues": queues,
    }
    write_json_state(fs, path, state)


def resume(
    fs: FileSystem, checkpoint: Path, table: ConsumeQueueTable, *, is_clean_store: bool, log_size_bytes: int
) -> Resume:
    """Brings a loaded table to a state from which the log can be followed.

    Args:
        fs: the door to the disk.
        checkpoint: our own checkpoint file.
        table: all queues, loaded.
        is_clean_store: there is no abort marker.
        log_size_bytes: from the log's first record to its end.
    """
    state = read_json_state(fs, checkpoint)
    if state is not None and _fits(state, table):
        return Resume(int(state["next_offset"]), int(state["store_time_millis"]), is_replay=False)
    has_all_files = all(queue.has_all_files for _, queue in table.items())
    if state is None and is_clean_store and has_all_files and log_size_bytes > ADOPTED_LOG_BYTES_MIN and table.items():
        return Resume(table.next_log_offset(), 0, is_replay=False)
    return Resume(-1, 0, is_replay=True)


def _fits(state: dict[str, Any], table: ConsumeQueueTable) -> bool:
    """Whether the files hold what the checkpoint says; if so, cuts them back to it."""
    try:
        saved = {
            (topic, int(queue_id)): (int(first), int(end))
            for topic, queues in state["queues"].items()
            for queue_id, first, end in queues
        }
        next_offset, is_clean = int(state["next_offset"]), bool(state["clean"])
        int(state["store_time_millis"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    if state.get("version") != VERSION or next_offset < 0:
        return False
    present = dict(table.items())
    for queue_id, (first, end) in saved.items():
        queue = present.get(queue_id)
        if queue is None or not queue.has_all_files or queue.first_file_offset != first or queue.units.end < end:
            return False
        if queue.units.end != end and is_clean:
            return False  # someone else went on writing
        if end > queue.units.begin and queue.units.next_log_offset_before(end) > next_offset:
            return False
    if is_clean and present.keys() != saved.keys():
        return False
    for queue_id, queue in present.items():
        queue.cut(saved[queue_id][1] if queue_id in saved else 0)
    table.drop_empty()
    return True
