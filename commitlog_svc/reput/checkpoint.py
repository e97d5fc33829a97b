"""RocketMQ's `checkpoint` file, as this log and its two builders fill it.

It holds store times: of the last flushed record, of the last one in the queues and of the last one in the indexes. RocketMQ
starts its recovery at the smallest of them, so none may be ahead of the disk. This project recovers from offsets of its own
and writes the file for RocketMQ only.
"""

import dataclasses
import threading
from pathlib import Path

from commitlog_svc.reput.followers import SWITCHED_OFF, Follower, FollowerRegistry
from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem
from store.files.json_state import read_derived, write_bytes_atomic
from store.format import paths
from store.format.checkpoint import StoreCheckpoint, decode_checkpoint, encode_checkpoint

QUEUE_BUILDER = "consumequeue"
INDEX_BUILDER = "index"


class CheckpointFile:
    """The file of one store root; thread-safe.

    Args:
        fs: the disk port.
        root: the store root.
        followers: has the progress of the builders.
    """

    def __init__(self, fs: FileSystem, root: Path, followers: FollowerRegistry) -> None:
        self._fs = fs
        self._path = Path(paths.checkpoint_file(str(root)))
        self._followers = followers
        self._lock = threading.Lock()
        self._written = StoreCheckpoint()

    def load(self) -> None:
        """Reads the file; a damaged one is ignored."""
        data = read_derived(self._fs, self._path)
        if data is not None:
            try:
                self._written = decode_checkpoint(data)
            except StoreCorruptedError:
                self._written = StoreCheckpoint()

    @property
    def confirm_offset(self) -> int:
        """The confirmed offset in the file (bytes); 0 when it has none."""
        return self._written.confirm_phy_offset

    def write(self, confirm_offset: int, flushed_store_time_millis: int, *, is_replicated: bool = False) -> None:
        """Replaces the file if anything has changed.

        Args:
            confirm_offset: up to where the log may be shown (bytes).
            flushed_store_time_millis: of the newest flushed record.
            is_replicated: whether the log has replicas.

        Raises:
            DiskFullError, FlushFailedError: the old file stays.
        """
        with self._lock:
            queues, indexes = (self._followers.find(name) for name in (QUEUE_BUILDER, INDEX_BUILDER))
            checkpoint = dataclasses.replace(
                self._written,
                physic_msg_timestamp=flushed_store_time_millis,
                logics_msg_timestamp=_store_time_millis(queues, self._written.logics_msg_timestamp),
                index_msg_timestamp=_store_time_millis(indexes, self._written.index_msg_timestamp),
                # Without replicas written only where a broker wrote one; a value ahead of the log would mislead that broker.
                confirm_phy_offset=confirm_offset if self._written.confirm_phy_offset or is_replicated else 0,
            )
            checkpoint = checkpoint.limited_to(confirm_offset)  # the log may have been cut since a broker wrote it
            if checkpoint == self._written:
                return
            write_bytes_atomic(self._fs, self._path, encode_checkpoint(checkpoint))
            self._written = checkpoint


def _store_time_millis(builder: Follower | None, written_millis: int) -> int:
    """The store time that a builder has reported; before its first report the time in the file."""
    if builder is None or builder.next_offset in (None, SWITCHED_OFF):
        return written_millis
    return builder.store_time_millis
