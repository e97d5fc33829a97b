"""The cut of a diverged log: what this replica has and its leader has not is put aside, then the log ends where both agree.

    cut.json      {"offset": N, "aside": "cut-N-20260131-120000"}     written by the life that finds it, which then ends
    cut-N-.../    the bytes from N on, in files with the names of log files; the first one is named by N

A follower learns in the handshake where the logs agree. It cannot cut while its log is open and followed, so it notes the
place and its process ends; the next start cuts before it recovers the log. Every step can be repeated: a crash between two of
them is finished by the next start. Nothing of a cut log is deleted; remove `cut-...` when it is not needed.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from commitlog_svc.recovery.safe_point import SNAPSHOT_NAME, DurableMark, read_durable_mark
from commitlog_svc.replication.epochs import EpochFile
from store.errors import StoreCorruptedError
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes, read_json_state, write_json_state
from store.files.mapped_files import MappedFile, MappedFileQueue
from store.format.checkpoint import CONFIRMED_MARK_NAME, DURABLE_MARK_NAME
from store.format.paths import log_file_name

CUT_NAME = "cut.json"
COPY_BYTES = 1 << 20

_log = structlog.get_logger("reput.commitlog")


def plan_cut(fs: FileSystem, directory: Path, offset: int, now: time.struct_time | None = None) -> None:
    """Notes that the next start has to cut the log at an offset (bytes); on the disk when this returns."""
    stamp = time.strftime("%Y%m%d-%H%M%S", now or time.gmtime())
    write_json_state(fs, directory / CUT_NAME, {"offset": offset, "aside": f"cut-{offset}-{stamp}"})


def finish_cut(fs: FileSystem, directory: Path, files: MappedFileQueue) -> None:
    """Makes a planned cut, if there is one. To be called before the log is recovered, with its locks held.

    Args:
        fs: the disk port.
        directory: `reput/commitlog`.
        files: the log; it is loaded when this returns.

    Raises:
        StoreCorruptedError: `cut.json` is damaged, or the log's files are.
    """
    files.load()
    plan = _read_plan(fs, directory)
    if plan is None:
        return
    offset, aside = plan
    fs.mkdirs(aside)
    _log.warning("log.diverged_part_cut", offset=offset, end_offset=files.last_offset, kept_in=str(aside))
    for file in reversed(files.files):
        if file.first_offset >= offset:
            fs.rename(file.path, aside / file.path.name)
            fs.fsync_dir(aside)
            fs.fsync_dir(files.directory)
    files.load()
    cut_file = files.find(offset)
    if cut_file is not None:
        kept = aside / log_file_name(offset)
        if not fs.exists(kept):
            _copy(fs, cut_file, offset, kept)
        files.truncate(offset)
    # A log without a file ends at 0, wherever it began before.
    _forget_behind(fs, directory, offset, offset if files.files else 0)
    fs.unlink(directory / CUT_NAME)
    fs.fsync_dir(directory)


def put_aside_bytes(directory: Path) -> int:
    """The size of everything that cuts have put aside in `reput/commitlog`, and that nobody has removed."""
    size_bytes = 0
    for path in directory.glob("cut-*/*"):
        with suppress(OSError):  # removed meanwhile
            size_bytes += path.stat().st_size
    return size_bytes


def _read_plan(fs: FileSystem, directory: Path) -> tuple[int, Path] | None:
    path = directory / CUT_NAME
    if read_bytes(fs, path) is None:
        return None
    state: dict[str, Any] = read_json_state(fs, path) or {}
    offset, aside = state.get("offset"), state.get("aside")
    if not isinstance(offset, int) or offset < 0 or not isinstance(aside, str) or not aside.startswith("cut-"):
        raise StoreCorruptedError(
            f"{path} is damaged: remove it, the replica then finds out again where its log and the leader's agree",
            file=path,
            offset=0,
        )
    return offset, directory / Path(aside).name


def _copy(fs: FileSystem, file: MappedFile, offset: int, target: Path) -> None:
    """Copies the rest of a file; zeros at its end are left out."""
    making = target.with_name(f"{target.name}.tmp")
    fd = fs.open(making, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        for begin, end in file.data_ranges(offset):
            for position in range(begin, end, COPY_BYTES):
                data = file.read(position, min(COPY_BYTES, end - position))
                if data.strip(b"\0"):
                    fs.pwrite(fd, data, position - offset)
        fs.fdatasync(fd)
    finally:
        fs.close(fd)
    fs.rename(making, target)
    fs.fsync_dir(target.parent)


def _forget_behind(fs: FileSystem, directory: Path, offset: int, end_offset: int) -> None:
    """Removes the marks behind `end_offset`, which would stop the recovery as damage; epochs are cut at `offset`."""
    for name in (DURABLE_MARK_NAME, CONFIRMED_MARK_NAME):
        marked = read_durable_mark(fs, directory, name)
        if marked is not None and marked > end_offset:
            mark = DurableMark(fs, directory, name)
            try:
                mark.begin(end_offset)
            finally:
                mark.close()
    snapshot = directory / SNAPSHOT_NAME
    state = read_json_state(fs, snapshot)
    if state is not None and not (
        isinstance(state.get("commit_log_offset"), int) and state["commit_log_offset"] <= end_offset
    ):
        fs.unlink(snapshot)
        fs.fsync_dir(directory)
    epochs = EpochFile(fs, directory)
    epochs.load()
    epochs.cut(offset)
