"""How far the builders have come, and RocketMQ's `checkpoint` that says so in its way.

The checkpoint holds store times: of the last flushed record, of the last one in the queues and of the last one in the
indexes. RocketMQ starts its recovery at the smallest of them, so none may ever be ahead of the disk. For ourselves they
are no more than a courtesy: our safe points are offsets.
"""

import dataclasses
import threading
from dataclasses import dataclass
from pathlib import Path

from store.errors import InvalidArgumentError, StoreCorruptedError
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes, write_bytes_atomic
from store.format import paths
from store.format.checkpoint import StoreCheckpoint, decode_checkpoint, encode_checkpoint

BUILDERS = ("consumequeue", "index")
SWITCHED_OFF = -1  # what a builder reports that needs nothing of the log


@dataclass(frozen=True, slots=True)
class BuilderProgress:
    """Everything before `next_offset` (bytes of the log) is applied and on the disk; SWITCHED_OFF: nothing ever will be."""

    next_offset: int
    store_time_millis: int


class ProgressTable:
    """Progress by builder, and the checkpoint file; thread-safe.

    Args:
        fs: the door to the disk.
        root: the store root.
    """

    def __init__(self, fs: FileSystem, root: Path) -> None:
        self._fs = fs
        self._path = Path(paths.checkpoint_file(str(root)))
        self._lock = threading.Lock()
        self._builders: dict[str, BuilderProgress] = {}
        self._written = StoreCheckpoint()

    def load(self) -> None:
        """Reads the checkpoint; one that is damaged counts as none."""
        data = read_bytes(self._fs, self._path)
        if data is not None:
            try:
                self._written = decode_checkpoint(data)
            except StoreCorruptedError:
                self._written = StoreCheckpoint()

    def report(self, builder: str, next_offset: int, store_time_millis: int, flushed_offset: int) -> None:
        """A builder says how far it has come, or that it is SWITCHED_OFF.

        Raises:
            InvalidArgumentError: no such builder, or an offset that is not in the flushed log.
        """
        if builder not in BUILDERS:
            raise InvalidArgumentError(f"there is no builder {builder!r}", field="builder", builder=builder)
        if next_offset != SWITCHED_OFF and not 0 <= next_offset <= flushed_offset:
            raise InvalidArgumentError(
                f"{builder} cannot be at {next_offset}: the log is flushed up to {flushed_offset}",
                field="next_offset",
                nextOffset=next_offset,
                flushedOffset=flushed_offset,
            )
        with self._lock:
            self._builders[builder] = BuilderProgress(next_offset, store_time_millis)

    def next_offsets(self) -> dict[str, int]:
        """Where each builder that ever reported is; SWITCHED_OFF is said too."""
        with self._lock:
            return {name: progress.next_offset for name, progress in self._builders.items()}

    def needed_offsets(self) -> dict[str, int]:
        """From where on each builder needs the log: all of it while it has not reported; without those that need nothing."""
        reported = self.next_offsets()
        needed = {name: reported.get(name, 0) for name in BUILDERS}
        return {name: offset for name, offset in needed.items() if offset != SWITCHED_OFF}

    def write_checkpoint(self, flushed_offset: int, flushed_store_time_millis: int) -> None:
        """Replaces the checkpoint if anything has changed."""
        with self._lock:
            running = {name: b for name, b in self._builders.items() if b.next_offset != SWITCHED_OFF}
            queues, indexes = running.get("consumequeue"), running.get("index")
            checkpoint = dataclasses.replace(
                self._written,
                physic_msg_timestamp=flushed_store_time_millis,
                logics_msg_timestamp=queues.store_time_millis if queues else self._written.logics_msg_timestamp,
                index_msg_timestamp=indexes.store_time_millis if indexes else self._written.index_msg_timestamp,
                # Kept only where a broker kept one; ahead of the log it would mislead that broker.
                confirm_phy_offset=flushed_offset if self._written.confirm_phy_offset else 0,
            )
            if checkpoint == self._written:
                return
            write_bytes_atomic(self._fs, self._path, encode_checkpoint(checkpoint))
            self._written = checkpoint
