"""The tools do what their names say, two at once, and leave nothing behind when the test is killed."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from tests.torture.tools import why_missing
from tests.torture.tools.block_log import Replay, read_epochs, some_of
from tests.torture.tools.fuse_fault import Fault, FaultyMount
from tests.torture.tools.loop_disk import LoopDisk, make_image
from tests.torture.tools.power_cut import cut_power
from tests.torture.tools.tmpfs import Ballast, tmpfs

REASON = why_missing("fuse", "loop", "ext4", "xfs")
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

ROOT = Path(__file__).parents[2]
GONE_SECONDS_MAX = 60.0
HOLDER = """
import sys
from pathlib import Path
from tests.torture.tools.fuse_fault import FaultyMount
from tests.torture.tools.loop_disk import LoopDisk, make_image
from tests.torture.tools.tmpfs import tmpfs
work = Path(sys.argv[1])
with tmpfs(work / "ram", 64 << 20) as ram:
    (ram / "backing").mkdir()
    make_image(ram / "backing" / "image", "ext4", 16 << 20)
    with (
        FaultyMount(ram / "backing", work / "fuse") as faults,
        LoopDisk(work / "fuse" / "image", work / "disk", direct_io=True) as disk,
    ):
        (disk.mount_point / "dirty").write_bytes(b"x" * 1_000_000)
        print(faults._process.pid, disk._device.path, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "ram", 1 << 30) as directory:
        yield directory


def write_file(path: Path, data: bytes, *, flush: bool) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        if flush:
            os.fsync(file.fileno())


def test_a_tmpfs_is_as_large_as_asked_and_ballast_takes_and_gives_its_room(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", 1 << 20) as directory:
        ballast = Ballast(directory)
        ballast.take_all(but_bytes=8192)
        write_file(directory / "fits", b"x" * 8192, flush=False)
        with pytest.raises(OSError, match="No space left"):
            write_file(directory / "fits not", b"x", flush=False)
        ballast.give_back()
        write_file(directory / "fits now", b"x" * 500_000, flush=False)
    assert list((tmp_path / "small").iterdir()) == []


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_power_cut_keeps_what_was_flushed_and_nothing_else(kind: str, ram: Path, tmp_path: Path) -> None:
    with LoopDisk(make_image(ram / "image", kind), tmp_path / "disk", kind) as disk:
        write_file(disk.mount_point / "kept", b"k" * 5000, flush=True)
        write_file(disk.mount_point / "lost", b"l" * 5000, flush=False)
        cut_power(disk.mount_point)
        with pytest.raises(OSError, match="Input/output error"):
            write_file(disk.mount_point / "kept", b"n" * 5000, flush=True)
        disk.remount()

        assert (disk.mount_point / "kept").read_bytes() == b"k" * 5000
        lost = disk.mount_point / "lost"
        assert not lost.exists() or lost.read_bytes() == b""


def test_two_disks_at_once_do_not_meet(ram: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_image(ram / name, "xfs")
    with (
        LoopDisk(ram / "a", tmp_path / "disk-a", "xfs") as first,
        LoopDisk(ram / "b", tmp_path / "disk-b", "xfs") as second,
    ):
        write_file(first.mount_point / "file", b"a", flush=True)
        write_file(second.mount_point / "file", b"b", flush=True)
        cut_power(first.mount_point)
        write_file(second.mount_point / "file", b"bb", flush=True)


def test_faults_begin_and_end_while_the_file_system_runs(ram: Path, tmp_path: Path) -> None:
    (ram / "backing").mkdir()
    with FaultyMount(ram / "backing", tmp_path / "fuse") as disk:
        path = tmp_path / "fuse" / "file"
        write_file(path, b"before", flush=True)

        full = disk.add(Fault("write", errno.ENOSPC, path_end="file", skip=1, count=1))
        write_file(path, b"one", flush=True)
        with pytest.raises(OSError, match="No space left"):
            write_file(path, b"two", flush=True)
        write_file(path, b"three", flush=True)
        assert disk.hits(full) == 1

        disk.add(Fault("fsync", errno.EIO))
        with pytest.raises(OSError, match="Input/output error"):
            write_file(path, b"four", flush=True)
        disk.clear()
        write_file(path, b"five!", flush=True)

        disk.add(Fault("read", kind="flip", contains=b"five", flip_at=4))
        assert path.read_bytes() == b"five "
        disk.clear()
        assert path.read_bytes() == b"five!"

        disk.add(Fault("write", kind="torn", count=1))
        write_file(path, b"12345678", flush=True)
        assert path.read_bytes() == b"1234"


def test_a_block_log_plays_the_disk_as_it_was_at_each_flush(ram: Path, tmp_path: Path) -> None:
    import random

    backing = ram / "backing"
    backing.mkdir()
    image = make_image(backing / "image", "ext4", 16 << 20)
    base = ram / "base"
    base.write_bytes(image.read_bytes())
    flushed_at = []
    with (
        FaultyMount(backing, tmp_path / "fuse", record=ram / "blocks") as faults,
        LoopDisk(faults.mount_point / "image", tmp_path / "disk", direct_io=True) as disk,
    ):
        for number in range(5):
            write_file(disk.mount_point / f"file-{number}", b"%d" % number * 5000, flush=True)
            flushed_at.append((ram / "blocks").stat().st_size)

    replay, dice, epochs = Replay(base, ram), random.Random(5), read_epochs(ram / "blocks")
    assert epochs[-1].end_bytes == (ram / "blocks").stat().st_size
    flushed_bytes = 0
    for epoch in epochs:
        there = [number for number, at in enumerate(flushed_at) if at <= flushed_bytes]
        for writes in ([], some_of(epoch.writes, dice)):
            with LoopDisk(replay.image(writes), tmp_path / "replayed") as disk:
                for number in there:
                    assert (disk.mount_point / f"file-{number}").read_bytes() == b"%d" % number * 5000
        replay.advance(epoch)
        flushed_bytes = epoch.end_bytes
    assert flushed_bytes >= flushed_at[-1]


def test_a_killed_test_leaves_no_mount_no_device_and_no_process(tmp_path: Path) -> None:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos")))}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        pid, device = holder.stdout.readline().split()
        assert Path(f"/proc/{pid}").exists()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    backing_file = Path("/sys/block") / Path(device).name / "loop" / "backing_file"

    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the FUSE process is gone")
    wait_until(
        lambda: not backing_file.exists() or str(tmp_path) not in backing_file.read_text(), "the loop device is gone"
    )
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
