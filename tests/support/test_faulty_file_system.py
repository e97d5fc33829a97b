"""The faulty file system fails what it is told to, and nothing else."""

import errno
import os
from pathlib import Path

import pytest

from store.errors import DiskFullError, FlushFailedError, ResourceBusyError
from tests.support.faulty_file_system import FaultyFileSystem


def open_new(fs: FaultyFileSystem, path: Path) -> int:
    return fs.open(path, os.O_RDWR | os.O_CREAT)


def test_only_the_nth_call_of_a_kind_on_a_path_fails(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    fd, other = open_new(fs, tmp_path / "a"), open_new(fs, tmp_path / "b")
    fault = fs.fail("pwrite", errno.ENOSPC, nth=2, path="/a", short_bytes=3)
    fs.pwrite(fd, b"first", 0)
    fs.pwrite(other, b"other", 0)
    with pytest.raises(DiskFullError):
        fs.pwrite(fd, b"SECOND", 0)
    fs.pwrite(fd, b"!", 5)
    assert fs.pread(fd, 9, 0) == b"SECst!"
    assert (fault.hits, fs.count("pwrite", "/a")) == (1, 3)


def test_a_lasting_fault_lasts_until_it_is_cleared(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    fs.fail("open", errno.EMFILE, lasting=True)
    for _ in range(3):
        with pytest.raises(ResourceBusyError):
            open_new(fs, tmp_path / "a")
    fs.clear()
    fs.close(open_new(fs, tmp_path / "a"))
    assert fs.open_paths() == []


def test_what_a_refused_flush_lost_is_seen_once_the_cache_is_dropped(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    fs.fail("fdatasync", errno.EIO, nth=2, loses=True)
    fd = open_new(fs, tmp_path / "a")
    fs.pwrite(fd, b"kept", 0)
    fs.fdatasync(fd)
    fs.pwrite(fd, b"LOST", 0)
    with pytest.raises(FlushFailedError):
        fs.fdatasync(fd)
    fs.fdatasync(fd)
    assert fs.pread(fd, 4, 0) == b"LOST"
    fs.drop_cache(fd, 0)
    assert fs.pread(fd, 4, 0) == b"kept"
