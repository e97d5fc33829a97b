"""ReplicatedLog: what the replication uses of a log."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from commitlog_svc.append.group_commit import GroupCommit
from commitlog_svc.confirm_offset import ConfirmOffset
from commitlog_svc.replication.copying.config_share import ConfigShare
from commitlog_svc.replication.copying.log_copy import LogCopy
from commitlog_svc.replication.epochs import EpochFile
from store.files.file_system import FileSystem
from store.files.mapped_file_queue import MappedFileQueue


@dataclass(frozen=True, slots=True)
class ReplicatedLog:
    """The parts of a recovered log.

    Attributes:
        fs: the disk port.
        directory: `reput/commitlog`.
        files: the log's files.
        commits: what is written and flushed.
        confirm: what may be shown.
        epochs: which leader wrote which part.
        store_id: see store_id.py.
        config: the files of `config/` that go with the log.
        end_of_writes: waits for a write under way and returns the end of the log (bytes).
        begin_copy: lets the log grow by the bytes of a leader.
    """

    fs: FileSystem
    directory: Path
    files: MappedFileQueue
    commits: GroupCommit
    confirm: ConfirmOffset
    epochs: EpochFile
    store_id: str
    config: ConfigShare
    end_of_writes: Callable[[], int]
    begin_copy: Callable[[], LogCopy]
