"""ext4 and xfs on a loop device on a file: a real file system whose block device is ours.

The device detaches itself when nobody has it open or mounted any more (LO_FLAGS_AUTOCLEAR), so a killed test leaves none.
With `direct_io` each block that the file system writes reaches the file at once, past the page cache: needed where the file
lies on a FUSE file system that injects faults or keeps a log.
"""

import fcntl
import os
import struct
import subprocess
from pathlib import Path
from types import TracebackType

from tests.torture.tools import mkfs_path, mount, unmount, unmount_lazily

LOOP_CTL_GET_FREE, LOOP_CONFIGURE = 0x4C82, 0x4C0A
LO_FLAGS_AUTOCLEAR, LO_FLAGS_DIRECT_IO = 4, 16
# loop_config: u32 fd, u32 block_size, loop_info64 (u64 x5, u32 number/encrypt/key_size/flags, 64+64+32 bytes, u64 x2), u64 x8
LOOP_CONFIG = struct.Struct("=II 5Q 4I 64s 64s 32s 2Q 8Q")
TRY_COUNT_MAX = 200  # another process may take the free device that we were told of
IMAGE_BYTES = {"ext4": 32 << 20, "xfs": 320 << 20}  # xfs wants 300 MiB; the file is sparse
MKFS_FLAGS = {"ext4": ("-q", "-F", "-E", "lazy_itable_init=1,nodiscard"), "xfs": ("-q", "-f", "-K")}
# ext4 writes nothing of its own accord; copies of an xfs image have one uuid
MOUNT_OPTIONS = {"ext4": "noinit_itable", "xfs": "nouuid"}


def make_image(path: Path, kind: str, size_bytes: int = 0) -> Path:
    """A file with an empty file system of a kind (`ext4`, `xfs`) in it."""
    program = mkfs_path(kind)
    assert program is not None, kind
    with path.open("wb") as image:
        image.truncate(size_bytes or IMAGE_BYTES[kind])
    subprocess.run([program, *MKFS_FLAGS[kind], str(path)], check=True, capture_output=True)
    return path


class LoopDevice:
    """A block device made of a file, until closed.

    Args:
        image: the file.
        direct_io: past the page cache of the file.
    """

    def __init__(self, image: Path, *, direct_io: bool = False) -> None:
        flags = LO_FLAGS_AUTOCLEAR | (LO_FLAGS_DIRECT_IO if direct_io else 0)
        file = os.open(image, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.path, self._fd = _configure(file, flags)
        finally:
            os.close(file)

    def close(self) -> None:
        """Lets go of it; it is gone once it is not mounted either."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _configure(file: int, flags: int) -> tuple[str, int]:
    config = LOOP_CONFIG.pack(file, 0, *[0] * 5, 0, 0, 0, flags, b"", b"", b"", 0, 0, *[0] * 8)
    for _ in range(TRY_COUNT_MAX):
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
        try:
            path = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
        finally:
            os.close(control)
        device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(device, LOOP_CONFIGURE, config)
        except OSError:
            os.close(device)
            continue
        return path, device
    raise RuntimeError("no loop device can be had: all are taken")


class LoopDisk:
    """A file system on a loop device, mounted or not.

    Args:
        image: a file with a file system in it.
        mount_point: where it is to be mounted; made if missing.
        kind: `ext4` or `xfs`.
        direct_io: see LoopDevice.
    """

    def __init__(self, image: Path, mount_point: Path, kind: str = "ext4", *, direct_io: bool = False) -> None:
        self.mount_point = mount_point
        self.kind = kind
        mount_point.mkdir(parents=True, exist_ok=True)
        self._device = LoopDevice(image, direct_io=direct_io)

    def mount(self) -> None:
        """Mounts it, which replays its journal."""
        mount(self._device.path, self.mount_point, self.kind, MOUNT_OPTIONS[self.kind])

    def unmount(self) -> None:
        """Unmounts it; all that it had in memory is written or, after a power cut, forgotten."""
        unmount(self.mount_point)

    def remount(self) -> None:
        """Unmounts and mounts it: nothing is in the page cache afterwards."""
        self.unmount()
        self.mount()

    def close(self) -> None:
        """Unmounts it, if it is, and gives the device back."""
        unmount_lazily(self.mount_point)
        self._device.close()

    def __enter__(self) -> "LoopDisk":
        self.mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
