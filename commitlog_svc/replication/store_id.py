"""The id of a store: tells the disk of a replica from an empty one that took its place.

`reput/commitlog/store_id.json` gets a new random id whenever a replica starts with a log that no leader has written to: there
is no epoch in it. The id goes with the log from then on. The coordinator's record names the store of each in-sync replica; a
replica with another one lost what the record says it has, however much of the log it has copied since.
"""

import uuid
from pathlib import Path

from commitlog_svc.replication.epochs import EpochFile
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state

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
