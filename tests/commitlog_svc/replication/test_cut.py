"""A diverged log is cut and what is cut is kept, whatever interrupts it."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from commitlog_svc.replication.cut import finish_cut, plan_cut, put_aside_bytes
from commitlog_svc.replication.epochs import Epoch, EpochFile
from store.errors import StoreCorruptedError
from store.files.json_state import write_bytes_atomic
from store.files.mapped_files import MappedFileQueue
from store.format.paths import commit_log_dir, own_state_dir
from tests.commitlog_svc.support import append, make_log, new_message
from tests.torture.memory_files import MemoryFileSystem

ROOT = Path(tempfile.mkdtemp(prefix="reput-test-cut-"))  # of the locks; all else is in memory
atexit.register(shutil.rmtree, ROOT, ignore_errors=True)
OWN = Path(own_state_dir(str(ROOT), "commitlog"))
LOG = Path(commit_log_dir(str(ROOT)))
FILE_BYTES = 4096
CHANGES = ("pwrite", "pwritev", "fdatasync", "fsync_dir", "rename", "unlink", "mkdirs", "fallocate")


class Killed(BaseException):
    """The process is gone."""


class MortalFileSystem:
    """Passes calls on until so many have changed something; from then on every call raises Killed."""

    def __init__(self, fs: MemoryFileSystem, change_count: int) -> None:
        self._fs = fs
        self.left_count = change_count

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._fs, name)

        def passed(*arguments: Any, **named: Any) -> Any:
            self.left_count -= name in CHANGES
            if self.left_count < 0:
                raise Killed
            return call(*arguments, **named)

        return passed


def log_bytes(fs: Any) -> tuple[int, bytes]:
    files = MappedFileQueue(fs, LOG, FILE_BYTES, writable=False)
    files.load()
    return files.first_offset, b"".join(
        data for _, data in files.iterate(files.first_offset, files.last_offset, 1 << 20)
    )


def diverged_store() -> tuple[MemoryFileSystem, list[int]]:
    """A log of several files that was killed, all of it flushed, and the offsets of its records."""
    fs = MemoryFileSystem()
    log = make_log(ROOT, fs, file_size_bytes=FILE_BYTES)  # type: ignore[arg-type]  # it has all calls of the port
    log.recover()
    offsets = [append(log, new_message(b"%d" % number * 250))[0].commit_log_offset for number in range(25)]
    log.epochs.replace([Epoch(1, 0), Epoch(2, offsets[3]), Epoch(3, offsets[12])])
    log._safe_points.write()
    found = fs.copy()
    log.close()
    return found, offsets


def cut(fs: Any) -> None:
    files = MappedFileQueue(fs, LOG, FILE_BYTES, allocate=True, staging=OWN)
    try:
        finish_cut(fs, OWN, files)
    finally:
        files.close()


def kept_bytes(fs: Any, offset: int, end_offset: int) -> bytes:
    """What was put aside of the log, as one piece."""
    (aside,) = (OWN / name for name in fs.listdir(OWN) if name.startswith("cut-"))
    data = bytearray(end_offset - offset)
    for name in fs.listdir(aside):
        fd = fs.open(aside / name, os.O_RDONLY)
        part = fs.pread(fd, fs.stat_size(aside / name), 0)
        fs.close(fd)
        data[int(name) - offset : int(name) - offset + len(part)] = part
    return bytes(data)


# A rename to another directory is one step of the journals of ext4 and xfs; the disk in memory takes its two names one by one.
@pytest.mark.parametrize(("record", "power_is_cut"), [(0, False), (1, False), (12, False), (24, False), (24, True)])
def test_a_cut_that_is_interrupted_at_any_step_ends_as_one_that_is_not(record: int, power_is_cut: bool) -> None:
    before, offsets = diverged_store()
    offset = offsets[record]
    _, whole = log_bytes(before)
    plan_cut(before, OWN, offset)  # type: ignore[arg-type]  # as above
    for change_count in range(1000):
        fs = before.copy()
        mortal = MortalFileSystem(fs, change_count)
        try:
            cut(mortal)
        except Killed:
            found = fs.power_cut(change_count, ROOT) if power_is_cut else fs.copy()
            cut(found)
        else:
            break
        left = log_bytes(found)[1]
        assert left[:offset] == whole[:offset], change_count
        assert not left[offset:].strip(b"\0"), change_count
        assert kept_bytes(found, offset, len(whole)) == whole[offset:], change_count
        log = make_log(ROOT, found, file_size_bytes=FILE_BYTES)  # type: ignore[arg-type]  # as above
        log.recover()
        assert log.opened.found.end_offset == (offset if record else 0)
        assert all(epoch.begin_offset < offset for epoch in log.epochs.epochs)
        assert "cut.json" not in found.listdir(OWN)
        log.close()
    else:
        pytest.fail("the cut never ends")
    assert change_count > 3


def test_a_log_that_began_later_and_is_put_aside_whole_starts_again_empty() -> None:
    fs, offsets = diverged_store()
    files = MappedFileQueue(fs, LOG, FILE_BYTES)  # type: ignore[arg-type]  # as above
    files.load()
    files.retire(2 * FILE_BYTES)
    files.close()
    plan_cut(fs, OWN, 2 * FILE_BYTES)  # type: ignore[arg-type]  # as above
    cut(fs)
    for _ in range(2):
        log = make_log(ROOT, fs, file_size_bytes=FILE_BYTES)  # type: ignore[arg-type]  # as above
        log.recover()
        assert (log.status.first_offset, log.opened.found.end_offset) == (0, 0)
        known = [
            epoch for epoch in (Epoch(1, 0), Epoch(2, offsets[3]), Epoch(3, offsets[12])) if epoch.begin_offset < 8192
        ]
        assert list(log.epochs.epochs) == known
        fs = fs.copy()
        log.close()


def test_a_store_without_a_planned_cut_is_left_as_it_is() -> None:
    fs, _ = diverged_store()
    before = {path: fs.bytes_of(path) for path in fs.paths()}
    cut(fs)
    assert {path: fs.bytes_of(path) for path in fs.paths()} == before


@pytest.mark.parametrize("content", [b"", b"{}", b'{"offset":-1,"aside":"cut-1"}', b'{"offset":1,"aside":"/etc"}'])
def test_a_damaged_plan_stops_the_start_and_changes_nothing(content: bytes) -> None:
    fs, _ = diverged_store()
    write_bytes_atomic(fs, OWN / "cut.json", content)  # type: ignore[arg-type]  # as above
    before = log_bytes(fs)
    with pytest.raises(StoreCorruptedError, match=r"cut\.json is damaged"):
        cut(fs)
    assert log_bytes(fs) == before


def test_a_cut_leaves_epochs_that_begin_before_it() -> None:
    fs, offsets = diverged_store()
    plan_cut(fs, OWN, offsets[12])  # type: ignore[arg-type]  # as above
    cut(fs)
    epochs = EpochFile(fs, OWN)  # type: ignore[arg-type]  # as above
    epochs.load()
    assert [epoch.epoch for epoch in epochs.epochs] == [1, 2]


def test_what_was_put_aside_is_counted_until_somebody_removes_it(tmp_path: Path) -> None:
    assert put_aside_bytes(tmp_path) == 0
    for name, size_bytes in (("cut-4096-20260131-120000", 300), ("cut-8192-20260201-120000", 20)):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020}").write_bytes(b"x" * size_bytes)
    (tmp_path / "epochs.json").write_bytes(b"{}")
    assert put_aside_bytes(tmp_path) == 320

    shutil.rmtree(tmp_path / "cut-4096-20260131-120000")
    assert put_aside_bytes(tmp_path) == 20
