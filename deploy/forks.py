"""Services as forks of one process that has imported them: an interpreter less for each, and what they share is in memory once.

Imports take most of the time of a start, and a third of the memory of an idle service. A fork has both from its parent.

ADR 0140 has the reasons and the figures.

- A fork has none of its parent's threads, and finds their locks as they were. So only a process with one thread may fork here:
  gRPC must have none in it. The threads that numpy's library starts at its import are allowed: the library ends them before
  each fork, and starts them again when it has work for them.
- A fork is what `subprocess.Popen` makes, except for the interpreter: signals have their defaults, no descriptor of the parent
  is open, standard input is empty, the environment is the given one.
- The command that would start it stands in the list of processes (`ps`, `pgrep -f`).
"""

import contextlib
import ctypes
import faulthandler
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NoReturn

STANDARD_INPUT, STANDARD_ERROR = 0, 2
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
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send a signal to it; without effect when it has ended."""
        if self.poll() is None:  # its pid is still its own
            os.kill(self.pid, number)


def threads() -> frozenset[str]:
    """The numbers of this process's threads, also of those that C libraries have started, which Python does not know.

    Raises:
        OSError: there is no /proc here.
    """
    return frozenset(os.listdir("/proc/self/task"))


def can_fork(libraries: AbstractSet[str] = frozenset()) -> bool:
    """Whether this process may: it has one thread, and the kernel has what a fork is watched and set up with.

    Args:
        libraries: threads that libraries have started at their import, and that do not count; see `threads`.
    """
    try:
        os.close(os.pidfd_open(os.getpid()))  # an older kernel, and a container's filter of calls, refuse it
        return not threads() - libraries - {str(threading.get_native_id())}
    except (OSError, AttributeError):
        return False


def fork(run: Callable[[], object], command: Sequence[str], environ: Mapping[str, str]) -> Fork:
    """A child that runs a function and ends.

    Args:
        run: what it does; it may end by SystemExit.
        command: its words in the list of processes.
        environ: its environment.
    """
    _flush_output()
    # A signal that reached the child before it has its own handlers would go to those of the parent, and be lost.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _run_and_exit(run, command, environ, mask)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return Fork(pid)


def _run_and_exit(
    run: Callable[[], object], command: Sequence[str], environ: Mapping[str, str], mask: AbstractSet[int]
) -> NoReturn:
    code = 1
    try:
        _reset_process(command, environ, mask)
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if not isinstance(end.code, int | None) and sys.stderr is not None:
            print(end.code, file=sys.stderr)  # as the end of an interpreter does
    except BaseException:
        traceback.print_exc()
    finally:  # what called `fork` in the parent must not go on here
        try:
            _flush_output()
        finally:
            os._exit(code)


def _reset_process(command: Sequence[str], environ: Mapping[str, str], mask: AbstractSet[int]) -> None:
    """Gives the child what a new interpreter has: signals (`mask`: the blocked ones), descriptors, environment, name."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    _reset_descriptors()
    os.environ.clear()
    os.environ.update(environ)
    show_command(command)


def _reset_descriptors() -> None:
    """Closes what an interpreter that was started would not have; the null device takes the place of what is then missing."""
    # Not a range of numbers: where the kernel has no call for a range, CPython closes each number of it.
    for number in map(int, os.listdir("/proc/self/fd")):  # the one that reads the list is closed by now
        if number > STANDARD_ERROR:
            with contextlib.suppress(OSError):
                os.close(number)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.set_inheritable(nothing, True)
    for number in range(STANDARD_ERROR + 1):
        if number == STANDARD_INPUT or not _is_inherited(number):
            os.dup2(nothing, number)
    if nothing > STANDARD_ERROR:
        os.close(nothing)
    if faulthandler.is_enabled():  # the parent may have given it a descriptor that is another file's from now on
        faulthandler.enable(STANDARD_ERROR)


def _is_inherited(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:
        return False  # it is closed


def _flush_output() -> None:
    """Writes what is buffered, which the child would write once more; without standard output or errors there is none."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()


def show_command(command: Sequence[str]) -> None:
    """Show these words for this process in the list of processes, as far as there is room where its parent's were."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        begin, end = int(fields[ARGUMENTS_BEGIN]), int(fields[ARGUMENTS_END])
        words = b"\0".join(map(os.fsencode, command))[: max(end - begin - 1, 0)]
        if begin and end > begin:
            ctypes.memmove(begin, words.ljust(end - begin, b"\0"), end - begin)
