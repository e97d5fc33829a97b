"""Services as forks of one process that has imported them: an interpreter less for each, and what they share is in memory once.

Imports take most of the time of a start, and a third of the memory of an idle service. A fork has both from its parent.

ADR 0140 has the reasons and the figures.

- Only a process without threads of Python and without a started gRPC may fork here: a fork has none of its parent's threads,
  and finds their locks as they were. That of numpy's library is no matter, because it ends and begins again with a fork.
- A fork is what `subprocess.Popen` makes, except for the interpreter: signals have their defaults, no descriptor of the parent
  is open, standard input is empty, the environment is the given one.
- The command that would start it stands in the list of processes (`ps`, `pgrep -f`).
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

# Descriptors behind standard error; the kernel closes a range in one call.
FIRST_DESCRIPTOR, DESCRIPTOR_MAX = 3, 2**31 - 1
# Fields of /proc/self/stat behind the name of the process: where the words of its command begin and end in memory (proc(5)).
ARGUMENTS_BEGIN, ARGUMENTS_END = 48 - 3, 49 - 3


class Fork:
    """A child of this process; the same as `subprocess.Popen` has.

    Args:
        pid: of the child.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative: of the signal; None while it runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended; `subprocess.TimeoutExpired` when the time is over."""
        if self.poll() is None:
            watched = os.pidfd_open(self.pid)
            try:
                poll = select.poll()
                poll.register(watched, select.POLLIN)
                poll.poll(None if timeout is None else timeout * 1000)
            finally:
                os.close(watched)
        code = self.poll()
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def terminate(self) -> None:
        """Begin its clean end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:  # its pid is still its own
            os.kill(self.pid, number)


def can_fork() -> bool:
    """Whether this process may: it is one of Linux, and has one thread of Python."""
    return hasattr(os, "pidfd_open") and threading.active_count() == 1


def fork(run: Callable[[], object], command: Sequence[str], environ: Mapping[str, str]) -> Fork:
    """A child that runs a function and ends.

    Args:
        run: what it does; it may end by SystemExit.
        command: its words in the list of processes.
        environ: its environment.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _end_with(run, command, environ)
    return Fork(pid)


def _end_with(run: Callable[[], object], command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    code = 1
    try:
        _be_new(command, environ)
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:  # what called `fork` in the parent must not go on here
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _be_new(command: Sequence[str], environ: Mapping[str, str]) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.closerange(FIRST_DESCRIPTOR, DESCRIPTOR_MAX)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(environ)
    _show_command(command)


def _show_command(command: Sequence[str]) -> None:
    """Writes the words over those of the parent, as far as there is room."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        begin, end = int(fields[ARGUMENTS_BEGIN]), int(fields[ARGUMENTS_END])
        words = b"\0".join(map(os.fsencode, command))[: max(end - begin - 1, 0)]
        if begin and end > begin:
            ctypes.memmove(begin, words.ljust(end - begin, b"\0"), end - begin)
