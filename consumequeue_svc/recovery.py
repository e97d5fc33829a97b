"""Where to go on after a start.

- Our own checkpoint fits the files: every queue is cut back to the end that it says (all before was flushed), and the
  log is followed from its offset. It fits when no file before those ends is missing or of a wrong length and the last
  units of each queue are the ones that it remembers.
- Otherwise (a foreign store, or files missing, short or changed): the log is replayed from its first record over what
  is there (see `consume_queue.py`). Only a cleanly stopped store whose log is larger than ADOPTED_LOG_BYTES_MIN is
  taken as it is, because reading all of it would take many minutes.

A replay begins by writing a checkpoint that fits nothing: what it leaves half done when it is killed must not look
like what an older checkpoint remembers. On its way it writes down how far each queue is confirmed, so that a kill costs
no more than the work since then.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from consumequeue_svc.consume_queue import ConsumeQueue
from consumequeue_svc.consume_queue_table import ConsumeQueueTable, QueueId
from store.builders.last_record import LastRecord
from store.errors import UnsupportedStoreError
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state

ADOPTED_LOG_BYTES_MIN = 8 << 30
ROCKSDB_DIRECTORIES = ("consumequeue_r", "rocksdb")
VERSION = 2


@dataclass(frozen=True, slots=True)
class Resume:
    """Where to follow the log from (bytes; -1 = its first record), and how.

    Attributes:
        next_offset: everything before is applied.
        store_time_millis: of the newest record applied; 0 for none.
        is_replay: compare with what is there.
        is_marked: the checkpoint says already that files may be ahead of it.
        last_record: the newest record applied, where known.
    """

    next_offset: int
    store_time_millis: int
    is_replay: bool
    is_marked: bool = False
    last_record: LastRecord | None = None


def refuse_rocksdb(fs: FileSystem, root: Path) -> None:
    """UnsupportedStoreError for a store whose queues lie in RocksDB."""
    for name in ROCKSDB_DIRECTORIES:
        if fs.is_dir(root / name):
            raise UnsupportedStoreError(
                f"{root / name} holds queues in RocksDB, which cannot be read: "
                "only stores with storeType=default are supported",
                directory=root / name,
            )


def saved_file_size_bytes(fs: FileSystem, checkpoint: Path) -> int | None:
    """The size that queue files had at the last checkpoint; None without one."""
    size = (read_json_state(fs, checkpoint) or {}).get("file_size_bytes")
    return size if isinstance(size, int) else None


def checkpoint_state(
    table: ConsumeQueueTable,
    next_offset: int,
    store_time_millis: int,
    *,
    last_record: LastRecord | None,
    is_clean: bool,
) -> dict[str, Any]:
    """What a checkpoint says: everything before an offset is applied; true once what is written now is flushed."""
    queues: dict[str, list[list[int]]] = {}
    for (topic, queue_id), queue in table.items():
        row = [queue_id, queue.first_file_offset, queue.units.end, queue.tail_crc()]
        queues.setdefault(topic, []).append(row)
    return {
        "version": VERSION,
        "next_offset": next_offset,
        "store_time_millis": store_time_millis,
        "last_record": [last_record.commit_log_offset, last_record.fingerprint] if last_record else None,
        "clean": is_clean,
        "file_size_bytes": table.file_size_bytes,
        "queues": queues,
    }


def save_replay_mark(fs: FileSystem, path: Path, table: ConsumeQueueTable) -> None:
    """Writes down that a replay begins: what it has not confirmed cannot be relied on."""
    write_json_state(fs, path, replay_state(table, -1, 0, None))


def replay_state(
    table: ConsumeQueueTable, next_offset: int, store_time_millis: int, last_record: LastRecord | None
) -> dict[str, Any]:
    """What the checkpoint of a running replay says: how far each queue is confirmed; true once that is flushed."""
    queues: dict[str, list[list[int]]] = {}
    for (topic, queue_id), queue in table.items():
        if queue.replayed is not None:
            row = [queue_id, queue.first_file_offset, queue.replayed, queue.units.tail_crc(queue.replayed)]
            queues.setdefault(topic, []).append(row)
    return {
        "version": VERSION,
        "next_offset": next_offset,
        "store_time_millis": store_time_millis,
        "last_record": [last_record.commit_log_offset, last_record.fingerprint] if last_record else None,
        "clean": False,
        "replay": True,
        "file_size_bytes": table.file_size_bytes,
        "queues": queues,
    }


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
    found = _resume_own(state, table) if state is not None else None
    if found is not None:
        return found
    queues = [queue for _, queue in table.items()]
    is_whole = all(queue.is_whole(queue.first_file_offset, queue.units.end) for queue in queues)
    if state is None and is_clean_store and is_whole and log_size_bytes > ADOPTED_LOG_BYTES_MIN and queues:
        for queue in queues:
            queue.mark_all_dirty()
        return Resume(table.next_log_offset(), 0, is_replay=False)
    # Where nothing is, there is nothing to compare with, and what is built can be saved on the way.
    return Resume(-1, 0, is_replay=bool(queues))


def _resume_own(state: dict[str, Any], table: ConsumeQueueTable) -> Resume | None:
    """Cuts the files back to a checkpoint; None when they do not hold what it says."""
    try:
        saved = {
            (str(topic), int(queue_id)): (int(first), int(end), int(crc))
            for topic, queues in state["queues"].items()
            for queue_id, first, end, crc in queues
        }
        last_record = LastRecord(*map(int, state["last_record"])) if state["last_record"] else None
        is_clean = bool(state["clean"])
        found = Resume(
            int(state["next_offset"]),
            int(state["store_time_millis"]),
            is_replay=False,
            is_marked=not is_clean,
            last_record=last_record,
        )
        if state["version"] != VERSION or state["file_size_bytes"] != table.file_size_bytes or found.next_offset < 0:
            return None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    present = dict(table.items())
    if state.get("replay"):
        return _resume_replay(found, saved, present)
    for queue_id, (first, end, crc) in saved.items():
        queue = present.get(queue_id)
        if queue is None or not queue.is_whole(first, end) or queue.units.end < end:
            return None
        if queue.units.end != end and is_clean:
            return None  # someone else went on writing
        if queue.units.tail_crc(end) != crc or queue.units.next_log_offset_before(end) > found.next_offset:
            return None
    if is_clean and present.keys() != saved.keys():
        return None
    for queue_id, queue in present.items():
        first, end, _ = saved.get(queue_id, (0, 0, 0))
        queue.cut(end)
        queue.drop_before(first)
    table.drop_empty()
    return found


def _resume_replay(
    found: Resume, saved: dict[QueueId, tuple[int, int, int]], present: dict[QueueId, ConsumeQueue]
) -> Resume | None:
    """Goes on with a replay; None when what it had confirmed is not there any more."""
    for queue_id, (first, end, crc) in saved.items():
        queue = present.get(queue_id)
        if queue is None or not queue.is_whole(first, end) or queue.units.end < end:
            return None
        if queue.units.tail_crc(end) != crc:
            return None
    for queue_id, (_, end, _) in saved.items():
        present[queue_id].replayed = end
    return replace(found, is_replay=True)
