"""A log of the block writes and flushes of a run, and the disk as a power cut at any moment would have left it.

    with FaultyMount(backing, mount_point, record=log_path): ...run on a loop disk with direct I/O...
    for epoch in read_epochs(log_path):
        replay.image(...)           # the disk with this epoch's writes not, partly or wholly there
        replay.advance(epoch)

An epoch is what lies between two flushes. All that came before a flush was asked for is on the disk when it is answered; of
what came after it, any part may be, in any order, a block of 4 KiB at a time.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.tools.fuse_fault import ENTRY, FLUSH, WRITE

BLOCK_BYTES = 4096
COPY_BYTES = 1 << 20


@dataclass(slots=True)
class Epoch:
    """The writes between two flushes, in order, and where in the log the flush that ends them stands (bytes)."""

    writes: list[tuple[int, bytes]] = field(default_factory=list)
    end_bytes: int = 0


def read_epochs(log_path: Path) -> list[Epoch]:
    """All epochs; the last one may lack its flush."""
    data, at = log_path.read_bytes(), 0
    epochs = [Epoch()]
    while at + ENTRY.size <= len(data):
        kind, position, size_bytes = ENTRY.unpack_from(data, at)
        at += ENTRY.size
        if kind == WRITE:
            epochs[-1].writes.append((position, data[at : at + size_bytes]))
            at += size_bytes
        else:
            assert kind == FLUSH, f"no entry at {at} of {log_path}"
            epochs[-1].end_bytes = at
            epochs.append(Epoch())
    epochs[-1].end_bytes = at
    return epochs


def blocks_of(writes: list[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The writes cut into blocks."""
    for position, data in writes:
        for at in range(0, len(data), BLOCK_BYTES):
            yield position + at, data[at : at + BLOCK_BYTES]


def some_of(writes: list[tuple[int, bytes]], dice: random.Random) -> list[tuple[int, bytes]]:
    """A random part of the writes, block by block; of two writes of one block the later one wins if it is there."""
    share = dice.choice((0.1, 0.5, 0.9))
    return [block for block in blocks_of(writes) if dice.random() < share]


class Replay:
    """The disk while its log is played.

    Args:
        base: the image as it was before the first write; not changed.
        scratch: a directory, on a disk in memory.
    """

    def __init__(self, base: Path, scratch: Path) -> None:
        self._state = scratch / "replay.state"
        self._image = scratch / "replay.image"
        copy_sparse(base, self._state)

    def advance(self, epoch: Epoch) -> None:
        """All of an epoch is on the disk."""
        _write(self._state, epoch.writes)

    def image(self, writes: list[tuple[int, bytes]]) -> Path:
        """A copy of the disk, with these writes on it besides; the same file each time."""
        copy_sparse(self._state, self._image)
        _write(self._image, writes)
        return self._image


def copy_sparse(source: Path, target: Path) -> None:
    """Copies a file, its holes as holes."""
    target.unlink(missing_ok=True)
    with source.open("rb") as origin, target.open("wb") as copy:
        size_bytes = os.fstat(origin.fileno()).st_size
        copy.truncate(size_bytes)
        position = 0
        while True:
            try:
                position = os.lseek(origin.fileno(), position, os.SEEK_DATA)
            except OSError:
                return  # only a hole is left
            end = os.lseek(origin.fileno(), position, os.SEEK_HOLE)
            while position < end:
                data = os.pread(origin.fileno(), min(COPY_BYTES, end - position), position)
                os.pwrite(copy.fileno(), data, position)
                position += len(data)


def _write(path: Path, writes: list[tuple[int, bytes]]) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        for position, data in writes:
            os.pwrite(fd, data, position)
    finally:
        os.close(fd)
