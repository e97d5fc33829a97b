"""End this process at once, without draining, when the process that started it was killed.

Two ways at once: the kernel's PDEATHSIG, which sends SIGKILL when the *thread* that forked this process ends (so a starter must
fork from a thread that lives as long as the starter), and a pidfd on the parent, which works for every living process.
"""

import contextlib
import ctypes
import os
import select
import signal
import threading

PR_SET_PDEATHSIG = 1
EXIT_CODE_ORPHANED = 137
POLL_MILLIS = 500


def die_with_parent(parent_pid: int) -> None:
    """Have this process end when `parent_pid` ends; end it now when that has already happened."""
    if os.getppid() == parent_pid:
        with contextlib.suppress(OSError, AttributeError):  # not on Linux: the other way remains
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:  # it ended before the prctl took effect
            os._exit(EXIT_CODE_ORPHANED)
    try:
        pidfd = os.pidfd_open(parent_pid)
    except ProcessLookupError:
        os._exit(EXIT_CODE_ORPHANED)
    except (OSError, AttributeError):
        pidfd = -1
    threading.Thread(target=_watch, args=(parent_pid, pidfd), name="parent-watch", daemon=True).start()


def _watch(parent_pid: int, pidfd: int) -> None:
    if pidfd >= 0:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        while not poller.poll(POLL_MILLIS):
            pass
    else:
        pause = threading.Event()
        while _is_alive(parent_pid):
            pause.wait(POLL_MILLIS / 1000)
    os._exit(EXIT_CODE_ORPHANED)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return os.getppid() == pid or os.getppid() > 1
