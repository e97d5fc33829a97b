"""Faults from outside the process: disks that fail, fill up, lose power or keep a log of their blocks.

All of them need root. Nothing stays behind, also when the test process is killed: mounts are made in a mount namespace of
this process and its children, loop devices detach with their last descriptor, FUSE processes die with their parent.
Two runs at once never meet: each has its own namespace, and the kernel hands out loop devices.

    REASON = why_missing("fuse", "loop", "ext4")
    pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
"""

import ctypes
import errno
import importlib.util
import os
import shutil
import signal
import time
from pathlib import Path

CLONE_NEWNS = 0x00020000
MS_REC, MS_SLAVE = 0x4000, 1 << 19
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
BUSY_SECONDS_MAX = 20.0  # the kernel closes a killed process's files a little after its end

_libc = ctypes.CDLL(None, use_errno=True)
_namespace_of_pid = 0
_namespace_before = -1  # a descriptor of the mount namespace that this process was started in


def why_missing(*needs: str) -> str | None:
    """What this machine lacks of `fuse`, `loop`, `ext4` and `xfs` (root always), in words; None when all is there."""
    lacks = []
    if os.geteuid() != 0:
        lacks.append("root (to mount)")
    if "fuse" in needs and not os.access("/dev/fuse", os.R_OK | os.W_OK):
        lacks.append("/dev/fuse")
    if "fuse" in needs and (importlib.util.find_spec("fuse") is None or not _has_library("libfuse.so.2")):
        lacks.append("fusepy and libfuse2")
    if "loop" in needs and not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        lacks.append("/dev/loop-control")
    lacks += [f"mkfs.{kind}" for kind in ("ext4", "xfs") if kind in needs and mkfs_path(kind) is None]
    return f"needs {', '.join(lacks)}" if lacks else None


def mkfs_path(kind: str) -> str | None:
    """The program that makes file systems of a kind, also where /sbin is not searched."""
    return shutil.which(f"mkfs.{kind}", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def enter_own_namespace() -> None:
    """From here on this process, and what it starts, mounts for itself alone; the kernel unmounts at their end."""
    global _namespace_of_pid, _namespace_before  # noqa: PLW0603  # a process has one
    if _namespace_of_pid == os.getpid():
        return
    _namespace_before = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    _check(_libc.unshare(CLONE_NEWNS), "unshare")
    _check(_libc.mount(None, b"/", None, MS_REC | MS_SLAVE, None), "mount / as slave")
    _namespace_of_pid = os.getpid()


def namespace_before() -> int:
    """A descriptor of the namespace from before `enter_own_namespace`, for `leave_to_namespace` in a child."""
    enter_own_namespace()
    return _namespace_before


def leave_to_namespace(descriptor: int) -> None:
    """This process, which has one thread, leaves the namespace that it was started in.

    Who serves a FUSE file system must not be in a namespace with a disk on it: as the last one there it would have to
    unmount that disk at its own end, when it does not serve it any more, and would wait for itself for ever.
    """
    _check(_libc.setns(descriptor, CLONE_NEWNS), "setns")


def mount(source: str, target: Path, kind: str, options: str = "", flags: int = 0) -> None:
    """mount(2) in our own namespace; OSError when refused."""
    enter_own_namespace()
    done = _libc.mount(source.encode(), os.fsencode(target), kind.encode(), flags, options.encode() or None)
    _check(done, f"mount {source} on {target} as {kind}")


def unmount(target: Path) -> None:
    """Unmounts, waiting for processes that are just ending; OSError when others keep files open there."""
    deadline = time.monotonic() + BUSY_SECONDS_MAX
    while _libc.umount2(os.fsencode(target), 0) != 0:
        number = ctypes.get_errno()
        if number != errno.EBUSY or time.monotonic() > deadline:
            raise OSError(number, os.strerror(number), str(target))
        time.sleep(0.002)  # the kernel says nothing when the last file there is closed


def unmount_lazily(target: Path) -> None:
    """Takes a mount out of sight, whatever its state; no error when there is none."""
    _libc.umount2(os.fsencode(target), MNT_DETACH)


def die_with_parent() -> None:
    """This process gets SIGKILL when its parent ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
