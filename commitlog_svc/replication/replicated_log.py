"""ReplicatedLog and ReplicaLimits: the parts of a log, and the settings, that the replication uses."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from commitlog_svc.append.group_commit import GroupCommit
from commitlog_svc.config_files import ConfigShare
from commitlog_svc.confirm_offset import ConfirmOffset
from commitlog_svc.replication.epochs import EpochFile
from commitlog_svc.replication.log_copy import LogCopy
from store.files.file_system import FileSystem
from store.files.mapped_files import MappedFileQueue

FETCH_COUNT_MAX = 8  # fetches that a leader serves to one replica at the same time


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """Settings of the replication.

    Attributes:
        min_in_sync: least number of in-sync replicas, the leader among them, with which `replicated` appends are taken.
        lag_seconds_max: a replica that lags more leaves the in-sync set.
        bytes_per_second_max: of the log to one follower, over its stream and its fetches; 0: no limit.
        fetch_count: whole files that this replica fetches at the same time while it is far behind.
    """

    min_in_sync: int = 2
    lag_seconds_max: float = 5.0
    bytes_per_second_max: int = 0
    fetch_count: int = 3


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
        store_id: see epochs.py.
        config: the files of `config/` that go with the log.
        end_of_writes: waits for a write under way and returns the end of the log (bytes).
        begin_copy: lets the log grow by the bytes of a leader.
        show_now: has the followers get at once what they do not have yet.
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
    show_now: Callable[[], None]
