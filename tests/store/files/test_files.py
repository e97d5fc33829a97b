"""The disk door, fixed-size files as one address space, locks, marker and small state."""

import contextlib
import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.errors import StoreCorruptedError, StoreLockedError
from store.files.file_system import RealFileSystem
from store.files.json_state import read_json_state, write_json_state
from store.files.locks import (
    BrokerLock,
    OwnerLock,
    create_abort_marker,
    has_abort_marker,
    is_held_by_other,
    refuse_foreign_broker,
    remove_abort_marker,
)
from store.files.mapped_files import MappedFileQueue
from store.files.overlay_file_system import OverlayFileSystem
from tests.support.faulty_file_system import FaultyFileSystem

REAL = RealFileSystem()
# What Java's FileChannel.tryLock(0, 1, false) asks of the kernel, held until stdin ends.
JAVA_LIKE_HOLDER = (
    "import fcntl,os,sys;fd=os.open(sys.argv[1],os.O_RDWR|os.O_CREAT);"
    "fcntl.lockf(fd,fcntl.LOCK_EX|fcntl.LOCK_NB,1,0);print('held',flush=True);sys.stdin.read()"
)


_opened: list[MappedFileQueue] = []


@pytest.fixture(autouse=True)
def _files_are_closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def queue(directory: Path, size: int = 100, **options: object) -> MappedFileQueue:
    files = MappedFileQueue(REAL, directory, size, **options)  # type: ignore[arg-type]
    _opened.append(files)
    files.load()
    return files


def test_writes_and_reads_cross_files(tmp_path: Path) -> None:
    files = queue(tmp_path / "log")
    for _ in range(3):
        files.add_next()
    data = bytes(range(250))

    files.write(20, data)

    assert data == files.read(20, 250)
    assert data[75:90] == files.read(95, 15)
    assert ["0" * 20, f"{100:020d}", f"{200:020d}"] == REAL.listdir(tmp_path / "log")


def test_a_queue_starts_where_it_is_told(tmp_path: Path) -> None:
    files = queue(tmp_path)
    files.add_next(700)

    assert (700, 800) == (files.first_offset, files.last_offset)
    assert files.find(699) is None
    assert files.find(800) is None


def test_existing_files_decide_their_size(tmp_path: Path) -> None:
    queue(tmp_path, 64).add_next()

    assert 64 == queue(tmp_path, 4096).file_size_bytes


def test_a_missing_file_between_two_others_is_named(tmp_path: Path) -> None:
    files = queue(tmp_path)
    for _ in range(3):
        files.add_next()
    (tmp_path / f"{100:020d}").unlink()

    with pytest.raises(StoreCorruptedError):
        queue(tmp_path)


@pytest.mark.parametrize("missing", [100, 200, 300])
def test_any_missing_file_is_named_and_no_other(tmp_path: Path, missing: int) -> None:
    """Without the second file the first two names are two files apart."""
    for offset in range(0, 500, 100):
        if offset != missing:
            (tmp_path / f"{offset:020d}").write_bytes(bytes(100))
    with pytest.raises(StoreCorruptedError) as found:
        queue(tmp_path)
    assert found.value.metadata["file"] == str(tmp_path / f"{missing:020d}")


def test_of_three_files_the_missing_middle_one_is_named(tmp_path: Path) -> None:
    for offset in (0, 200):
        (tmp_path / f"{offset:020d}").write_bytes(bytes(100))
    with pytest.raises(StoreCorruptedError, match="00000000000000000100 is missing"):
        queue(tmp_path)


def test_names_of_no_log_file_and_directories_are_left_out(tmp_path: Path) -> None:
    for offset in (0, 100):
        (tmp_path / f"{offset:020d}").write_bytes(bytes(100))
    (tmp_path / f"{1000:020d}").mkdir()
    (tmp_path / ("9" * 20)).write_bytes(b"planted")
    (tmp_path / "stray").write_bytes(b"planted")
    assert [file.first_offset for file in queue(tmp_path).files] == [0, 100]


def test_a_directory_called_abort_counts_as_the_marker_and_stays(tmp_path: Path) -> None:
    (tmp_path / "abort").mkdir()
    create_abort_marker(REAL, tmp_path)
    assert has_abort_marker(REAL, tmp_path)
    remove_abort_marker(REAL, tmp_path)
    assert (tmp_path / "abort").is_dir()


def test_a_short_last_file_is_completed(tmp_path: Path) -> None:
    files = queue(tmp_path)
    files.add_next()
    files.add_next()
    files.write(0, b"x" * 120)
    files.close()
    os.truncate(tmp_path / f"{100:020d}", 20)

    files = queue(tmp_path)

    assert b"x" * 20 + bytes(80) == files.read(100, 100)


def test_truncate_zeros_the_rest_and_drops_later_files(tmp_path: Path) -> None:
    files = queue(tmp_path)
    for _ in range(3):
        files.add_next()
    files.write(0, b"x" * 300)

    files.truncate(130)

    assert 200 == files.last_offset
    assert b"x" * 130 + bytes(70) == files.read(0, 300)


def test_retire_never_takes_the_last_file_or_one_still_needed(tmp_path: Path) -> None:
    files = queue(tmp_path)
    for _ in range(3):
        files.add_next()

    assert [tmp_path / ("0" * 20)] == files.retire(150)
    assert 2 == len(files.retire(10_000)) + 1
    assert 200 == files.first_offset


def test_staged_files_appear_whole(tmp_path: Path) -> None:
    files = queue(tmp_path / "log", allocate=True, staging=tmp_path / "making")
    files.add_next()

    assert [] == REAL.listdir(tmp_path / "making")
    assert 100 == REAL.stat_size(tmp_path / "log" / ("0" * 20))


def test_a_second_owner_is_refused_and_the_first_can_let_go(tmp_path: Path) -> None:
    first, second = OwnerLock(tmp_path / "lock"), OwnerLock(tmp_path / "lock", wait_seconds=0)
    first.acquire()
    with pytest.raises(StoreLockedError):
        second.acquire()

    first.release()

    second.acquire()
    second.release()


def test_our_lock_and_a_brokers_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", JAVA_LIKE_HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert b"held\n" == holder.stdout.readline()
        assert is_held_by_other(path)
        with pytest.raises(StoreLockedError):
            BrokerLock(path, wait_seconds=0).acquire()
        with pytest.raises(StoreLockedError):
            refuse_foreign_broker(tmp_path, wait_seconds=0)
    finally:
        holder.communicate(b"")
    lock = BrokerLock(path)
    lock.acquire()

    assert not is_held_by_other(path)
    refused = subprocess.run(
        [sys.executable, "-c", JAVA_LIKE_HOLDER, str(path)], stdin=subprocess.DEVNULL, capture_output=True
    )
    assert 0 != refused.returncode
    lock.release()


def test_opening_the_lock_file_again_does_not_lose_the_lock(tmp_path: Path) -> None:
    lock = BrokerLock(tmp_path / "lock")
    lock.acquire()

    assert b"lock" == (tmp_path / "lock").read_bytes()

    with open(tmp_path / "lock", "r+b") as file, pytest.raises(BlockingIOError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    lock.release()


def test_the_abort_marker_comes_and_goes(tmp_path: Path) -> None:
    assert not has_abort_marker(REAL, tmp_path)
    create_abort_marker(REAL, tmp_path)
    assert has_abort_marker(REAL, tmp_path)
    remove_abort_marker(REAL, tmp_path)
    assert not has_abort_marker(REAL, tmp_path)


def test_state_is_replaced_and_damage_reads_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "own" / "state.json"
    assert read_json_state(REAL, path) is None
    write_json_state(REAL, path, {"a": 1})
    write_json_state(REAL, path, {"a": 2})
    assert {"a": 2} == read_json_state(REAL, path)
    assert ["state.json"] == REAL.listdir(path.parent)
    path.write_bytes(b'{"a"')
    assert read_json_state(REAL, path) is None


def test_the_overlay_never_writes_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"0123456789")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*")}
    overlay = OverlayFileSystem()
    overlay.mkdirs(tmp_path / "new" / "deep")
    fd = overlay.open(tmp_path / "new" / "deep" / "file", os.O_RDWR | os.O_CREAT)
    overlay.fallocate(fd, 0, 8)
    overlay.pwrite(fd, b"abc", 2)
    old = overlay.open(tmp_path / "old", os.O_RDWR)
    overlay.pwrite(old, b"XX", 4)
    overlay.rename(tmp_path / "old", tmp_path / "new" / "moved")

    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*")}
    assert ["new"] == overlay.listdir(tmp_path)
    assert ["deep", "moved"] == overlay.listdir(tmp_path / "new")
    moved = overlay.open(tmp_path / "new" / "moved", os.O_RDONLY)
    assert b"0123XX6789" == overlay.pread(moved, 100, 0)
    assert 8 == overlay.stat_size(tmp_path / "new" / "deep" / "file")
    overlay.unlink(tmp_path / "new" / "moved")
    assert not overlay.exists(tmp_path / "new" / "moved")


def open_descriptors(directory: Path) -> list[str]:
    """Names of the files below a directory that this process holds open, removed ones included."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{fd}")
            if target.startswith(str(directory)):
                found.append(target.removeprefix(f"{directory}/"))
    return sorted(found)


def test_a_retired_file_is_closed_once_its_last_reader_lets_go(tmp_path: Path) -> None:
    files = queue(tmp_path)
    for _ in range(4):
        files.add_next()
    files.write(0, b"x" * 400)
    held = files.find(150)
    assert held is not None

    files.retire(300)

    assert b"x" * 100 == held.read(100, 100)
    assert [f"{100:020d} (deleted)", f"{300:020d}"] == open_descriptors(tmp_path)
    del held
    assert [f"{300:020d}"] == open_descriptors(tmp_path)
    files.close()
    assert [] == open_descriptors(tmp_path)


def test_retire_takes_no_more_files_than_asked_for(tmp_path: Path) -> None:
    files = queue(tmp_path)
    for _ in range(4):
        files.add_next()

    assert [tmp_path / ("0" * 20)] == files.retire(10_000, count_max=1)
    assert [] == files.retire(10_000, count_max=0)
    assert 100 == files.first_offset


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_file_that_cannot_be_removed_is_not_forgotten(tmp_path: Path, nth: int) -> None:
    fs = FaultyFileSystem()
    files = MappedFileQueue(fs, tmp_path, 100)
    for _ in range(4):
        files.add_next()
    fs.fail("unlink", errno.EIO, nth=nth)

    with pytest.raises(OSError, match="Input/output"):
        files.retire(300)

    assert [f.path.name for f in files.files] == REAL.listdir(tmp_path)
    assert (nth - 1) * 100 == files.first_offset
    files.retire(300)
    assert [f"{300:020d}"] == REAL.listdir(tmp_path)


def test_retire_takes_the_oldest_first_and_drop_from_the_newest(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    files = MappedFileQueue(fs, tmp_path, 100)
    for _ in range(6):
        files.add_next()
    fs.calls.clear()
    files.retire(200)
    files.drop_from(300)

    removed = [int(Path(call.path).name) for call in fs.calls if call.kind == "unlink"]
    assert [0, 100, 500, 400, 300] == removed
    assert [f"{200:020d}"] == REAL.listdir(tmp_path)


def test_a_file_that_somebody_else_removed_is_gone_for_us_too(tmp_path: Path) -> None:
    files = queue(tmp_path)
    for _ in range(3):
        files.add_next()
    (tmp_path / f"{0:020d}").unlink()

    files.retire(200)

    assert 200 == files.first_offset


def test_retiring_while_another_thread_adds_loses_neither(tmp_path: Path) -> None:
    files = queue(tmp_path)
    count = 150
    for _ in range(count):
        files.add_next()
    adding = threading.Thread(target=lambda: [files.add_next() for _ in range(count)])
    adding.start()
    for retired in range(count):
        files.retire(retired * 100)
    adding.join()

    assert 2 * count * 100 == files.last_offset
    assert [f.path.name for f in files.files] == REAL.listdir(tmp_path)
    assert len(files.files) * 100 == files.last_offset - files.first_offset
    assert REAL.listdir(tmp_path) == open_descriptors(tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "link to nothing"])
def test_what_has_the_name_of_a_log_file_and_is_none_stops_no_load_without_a_reason(tmp_path: Path, kind: str) -> None:
    queue = MappedFileQueue(REAL, tmp_path, 4096)
    queue.add_next()
    queue.close()
    path = tmp_path / f"{8192:020d}"
    if kind == "pipe":
        os.mkfifo(path)
        queue.load()
        assert [file.first_offset for file in queue.files] == [0]
        queue.close()
    else:
        path.symlink_to("/nowhere/at/all")
        with pytest.raises(StoreCorruptedError, match="is a link to nothing"):
            queue.load()
