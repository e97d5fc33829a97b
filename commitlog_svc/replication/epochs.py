"""Epochs of a log: which leader wrote which part, and from where on two logs may differ.

    epoch    1          3                4
         |---------|---------|-----------------------|
    begin 0         5,000     9,200                   end of the log

Each leader notes its epoch and the end of its log on the disk before it writes. A follower takes the table of its leader
before it takes bytes. Two logs in which the same epoch begins at the same offset are equal up to the end of that epoch in the
one where it is shorter: one leader wrote both, in order. So the last such epoch says up to where they agree. Source:
`EpochFileCache.findConsistentPoint` of RocketMQ 5.3.3; its file `epochFileCheckpoint` is not written, a broker makes its own.

The id of a store: tells the disk of a replica from an empty one that took its place.

`reput/commitlog/store_id.json` gets a new random id whenever a replica starts with a log that no leader has written to: there
is no epoch in it. The id goes with the log from then on. The coordinator's record names the store of each in-sync replica; a
replica with another one lost what the record says it has, however much of the log it has copied since.
"""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state

EPOCHS_NAME = "epochs.json"
NOWHERE = -1


class Epoch(NamedTuple):
    """A part of a log, by its first byte (commit-log offset); it ends where the next one begins."""

    epoch: int
    begin_offset: int


def agreed_offset(mine: Sequence[Epoch], my_end: int, theirs: Sequence[Epoch], their_end: int) -> int:
    """Up to where two logs are equal (bytes); NOWHERE when no epoch is in both.

    Args:
        mine, theirs: the epochs of the logs, rising.
        my_end, their_end: where the logs end.
    """
    their_ends = dict(zip(theirs, _ends(theirs, their_end), strict=True))
    for epoch, end in reversed(list(zip(mine, _ends(mine, my_end), strict=True))):
        if epoch in their_ends:
            return min(end, their_ends[epoch])
    return NOWHERE


def _ends(epochs: Sequence[Epoch], end_offset: int) -> list[int]:
    """Where each epoch ends; a table may name epochs that begin behind the end of a log which does not have them yet."""
    return [min(epoch.begin_offset, end_offset) for epoch in epochs[1:]] + [end_offset] * bool(epochs)


class EpochFile:
    """The table of one log, `reput/commitlog/epochs.json`; for one thread at a time.

    Args:
        fs: the disk port.
        directory: `reput/commitlog`.

    Attributes:
        epochs: rising.
    """

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._path = directory / EPOCHS_NAME
        self.epochs: tuple[Epoch, ...] = ()

    @property
    def last(self) -> int:
        """The newest epoch; 0 without one."""
        return self.epochs[-1].epoch if self.epochs else 0

    def load(self) -> None:
        """Reads the file. StoreCorruptedError when it is damaged: only it says which leader wrote which part of the log."""
        state = read_json_state(self._fs, self._path)
        if state is None:
            if self._fs.exists(self._path):
                raise self._damage()
            self.epochs = ()
            return
        try:
            epochs = tuple(Epoch(_count(epoch), _count(begin)) for epoch, begin in state["epochs"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._damage() from error
        if list(epochs) != sorted(set(epochs)) or len({epoch.epoch for epoch in epochs}) != len(epochs):
            raise self._damage()
        self.epochs = epochs

    def replace(self, epochs: Sequence[Epoch]) -> None:
        """Takes another table; it is on the disk when this returns."""
        if tuple(epochs) != self.epochs:
            state = {"epochs": [[epoch.epoch, epoch.begin_offset] for epoch in epochs]}
            write_json_state(self._fs, self._path, state)
            self.epochs = tuple(epochs)

    def begin(self, epoch: int, end_offset: int) -> None:
        """Begins an epoch at the end of the log (bytes); it is on the disk when this returns."""
        kept = [known for known in self.epochs if known.begin_offset <= end_offset and known.epoch < epoch]
        self.replace([*kept, Epoch(epoch, end_offset)])

    def cut(self, end_offset: int) -> None:
        """Forgets epochs that begin at or behind an offset (bytes), where the log was cut."""
        self.replace([epoch for epoch in self.epochs if epoch.begin_offset < end_offset])

    def _damage(self) -> StoreCorruptedError:
        return StoreCorruptedError(
            f"{self._path} is damaged: bring it back from a copy; without it this replica can only begin empty",
            file=self._path,
            offset=0,
        )


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


STORE_ID_NAME = "store_id.json"


def open_store_id(fs: FileSystem, directory: Path, epochs: EpochFile) -> str:
    """The id of this store; on the disk when this returns. To be called once in a life, before the log gets an epoch.

    Args:
        fs: the disk port.
        directory: `reput/commitlog`.
        epochs: of the log, loaded.
    """
    state = read_json_state(fs, directory / STORE_ID_NAME) or {}
    known = state.get("store_id")
    # A log with epochs and without an id is one of an earlier release, or its file was damaged.
    if isinstance(known, str) and known and epochs.epochs:
        return known
    made = uuid.uuid4().hex
    write_json_state(fs, directory / STORE_ID_NAME, {"store_id": made})
    return made
