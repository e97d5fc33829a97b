"""Safe points: the commit log's state in `reput/commitlog/`, with which a restart does not read the whole log.

    snapshot.json   an offset up to which the log was on the disk, the last record before it, the next offset of each queue,
                    the topics in batch queues, each with the offset of its last batch, some record starts before that
                    offset, and what counts of the next file
    light-positions.<n>   the next positions of light queues: append/topics/light_offsets.py
    durable         i64 offset | u32 CRC-32 of it     written after each flush, not flushed itself

`snapshot.json` counts only if the log still has exactly that last record there. `durable` is never ahead of the disk. After a
power cut, or when it could not be written, it is behind; then a part of the log that was durable may be cut as a torn tail.
Bytes before it were acknowledged as durable: what is wrong there is damage, never a torn tail.
"""

import contextlib
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commitlog_svc.append.topics.light_offsets import JournalPlace
from commitlog_svc.append.topics.queue_offsets import QueueKey
from store.errors import DiskFullError
from store.files.file_system import FileSystem
from store.files.json_state import read_derived, read_json_state, write_json_state
from store.files.mapped_files import MappedFileQueue
from store.format.checkpoint import DURABLE_MARK_NAME, decode_durable_mark, encode_durable_mark

SNAPSHOT_NAME = "snapshot.json"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The log at one moment: all before `commit_log_offset` on the disk, the last record before it, the queues' ends.

    A snapshot from the middle of a recovery is not complete: it lacks queues whose records are all further on, or in files
    that were removed. `batch_topics` have an inner batch in the log, each with the commit-log offset of the last one; snapshots
    of older versions do not name them, or without their offsets. `light` has the positions in light queues; None: they are not
    known. `tail_starts` are those of `lookup.TailStarts`; nothing depends on there being any.
    """

    commit_log_offset: int
    first_offset: int
    last_record: tuple[int, int] | None
    last_record_crc: int
    last_store_time_millis: int
    queue_offsets: dict[QueueKey, int]
    batch_topics: Mapping[str, int] = field(default_factory=dict)
    is_whole: bool = True
    light: JournalPlace | None = None
    tail_starts: tuple[int, ...] = ()


def write_snapshot(fs: FileSystem, directory: Path, snapshot: Snapshot) -> None:
    """Replaces the snapshot."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, queue_id), next_offset in snapshot.queue_offsets.items():
        topics.setdefault(topic, {})[str(queue_id)] = next_offset
    state = {
        "commit_log_offset": snapshot.commit_log_offset,
        "first_offset": snapshot.first_offset,
        "last_record": list(snapshot.last_record) if snapshot.last_record else None,
        "last_record_crc": snapshot.last_record_crc,
        "last_store_time_millis": snapshot.last_store_time_millis,
        "queue_offsets": topics,
        "batch_topics": dict(snapshot.batch_topics),
        "is_whole": snapshot.is_whole,
        "light": None if snapshot.light is None else list(snapshot.light),
        "tail_starts": [offset for offset in snapshot.tail_starts if offset <= snapshot.commit_log_offset],
    }
    write_json_state(fs, directory / SNAPSHOT_NAME, state)


def read_snapshot(fs: FileSystem, directory: Path, files: MappedFileQueue) -> Snapshot | None:
    """The snapshot, if there is one and the log still agrees with it; without topics whose last inner batch was removed."""
    state = read_json_state(fs, directory / SNAPSHOT_NAME)
    if state is None:
        return None
    try:
        last = state["last_record"]
        snapshot = Snapshot(
            int(state["commit_log_offset"]),
            int(state["first_offset"]),
            (int(last[0]), int(last[1])) if last else None,
            int(state["last_record_crc"]),
            int(state["last_store_time_millis"]),
            {
                (topic, int(queue_id)): int(next_offset)
                for topic, queues in state["queue_offsets"].items()
                for queue_id, next_offset in queues.items()
            },
            _batch_topics(state, files.first_offset),
            bool(state.get("is_whole", True)),
            None if state.get("light") is None else JournalPlace(*map(int, state["light"])),
            tuple(map(int, state.get("tail_starts", ()))),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None
    if snapshot.last_record is None:
        return None
    offset, size_bytes = snapshot.last_record
    ends_there = snapshot.commit_log_offset == offset + size_bytes
    if not ends_there or not files.first_offset <= offset < snapshot.commit_log_offset <= files.last_offset:
        return None
    return snapshot if zlib.crc32(files.read(offset, size_bytes)) == snapshot.last_record_crc else None


def _batch_topics(state: Mapping[str, Any], first_offset: int) -> dict[str, int]:
    topics = state.get("batch_topics", {})
    if isinstance(topics, list):  # of an older version: the batches lie anywhere before the end
        topics = dict.fromkeys(topics, int(state["commit_log_offset"]) - 1)
    return {str(topic): int(at) for topic, at in topics.items() if int(at) >= first_offset}


class DurableMark:
    """The file `durable`, or another one of its form, open for writing.

    Args:
        fs: the disk port.
        directory: `reput/commitlog`.
        name: of the file.
    """

    def __init__(self, fs: FileSystem, directory: Path, name: str = DURABLE_MARK_NAME) -> None:
        self._fs = fs
        self._directory = directory
        self._fd = fs.open(directory / name, os.O_RDWR | os.O_CREAT)

    def begin(self, offset: int) -> None:
        """Writes and flushes the mark and its directory entry; a recovery has ended at `offset`.

        Otherwise a power cut could lose the mark, and a torn tail with later sectors in it would look like damage.
        """
        self.write(offset)
        self._fs.fdatasync(self._fd)
        self._fs.fsync_dir(self._directory)

    def write(self, offset: int) -> None:
        """Writes that the log is on the disk up to `offset`."""
        with contextlib.suppress(DiskFullError, OSError):
            self._fs.pwrite(self._fd, encode_durable_mark(offset), 0)

    def close(self) -> None:
        """Closes the file."""
        self._fs.close(self._fd)


def read_durable_mark(fs: FileSystem, directory: Path, name: str = DURABLE_MARK_NAME) -> int | None:
    """The offset in `durable`, or in another file of its form; None when there is no such file or it is torn."""
    data = read_derived(fs, directory / name)
    return None if data is None else decode_durable_mark(data)
