"""Services and stacks as forks of one process beside the tests that has imported all of them, as `reput serve` starts its
services (ADR 0140).

An interpreter for each costs 0.75 s of CPU more; a stack has two, of which one takes the place of the other. The process of the
tests has threads and cannot fork: `python -m tests.support.service_forks` does it instead, which has one thread, and ends with
the tests.
"""

import contextlib
import functools
import gc
import io
import json
import os
import pathlib
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from deploy import forks
from deploy.hosts import imported, main_of
from deploy.modules import MODULES

ROOT = pathlib.Path(__file__).parents[2]
# The words of a fork are written over those of its parent, so these make room for the longest ones.
ROOM_FOR_WORDS = " " * 4096


class ServiceFork(forks.Fork):
    """A service or a stack; the child of the process that forks, which alone can ask for its exit code."""

    def __init__(self, pid: int, forking: "_Forking") -> None:
        super().__init__(pid)
        self._forking = forking

    def poll(self) -> int | None:
        """See Fork."""
        if self.returncode is None:
            self.returncode = self._forking.ask(poll=self.pid)
        return self.returncode


class _Forking:
    """The process that forks, as the tests have it."""

    def __init__(self) -> None:
        self.namespace = _namespace()
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        environ = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
        environ["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(ROOT / "protos")))
        command = [sys.executable, "-P", "-m", "tests.support.service_forks", str(theirs.fileno()), str(os.getpid())]
        command.append(ROOM_FOR_WORDS)
        with theirs:
            subprocess.run(command, stdin=subprocess.DEVNULL, env=environ, pass_fds=(theirs.fileno(),), check=True)
        self._answers = self._socket.makefile("r")

    def ask(self, **order: object) -> Any:
        """What it answers."""
        with self._lock:
            self._socket.sendall(json.dumps(order).encode() + b"\n")
            answer = self._answers.readline()
        assert answer, "the process that forks services has ended"
        return json.loads(answer)


@functools.cache
def _forking() -> _Forking:
    return _Forking()


def _namespace() -> str:
    return os.readlink("/proc/self/ns/mnt")


def start(name: str, environ: Mapping[str, str], log: pathlib.Path) -> ServiceFork | None:
    """A service that was forked; None where this process has mounts of its own, which the forked would not see.

    Args:
        name: of the service.
        environ: its environment. Nothing is loaded anew: of this process's variables only `REPUT_...` may be others.
        log: a file for what it prints.
    """
    return _fork(environ, log, name=name)


def start_stack(command: Sequence[str], environ: Mapping[str, str], log: pathlib.Path) -> ServiceFork | None:
    """The same for the process of `python -m cli.main serve ...`, whose services are its children."""
    return _fork(environ, log, command=command)


def _fork(environ: Mapping[str, str], log: pathlib.Path, **what: object) -> ServiceFork | None:
    forking = _forking()
    if forking.namespace != _namespace():
        return None
    status = pathlib.Path("/proc/self/status").read_text()
    umask = int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)
    pid = forking.ask(environ=dict(environ), log=str(log), directory=os.getcwd(), umask=umask, **what)
    return ServiceFork(pid, forking)


def _main(connection: socket.socket, parent_pid: int) -> None:
    """Does what it is asked for until the tests end. It is no child of theirs: those they look for among their own."""
    if os.fork() > 0:
        os._exit(0)
    ours = imported(*MODULES)
    with contextlib.redirect_stdout(io.StringIO()):
        _reput(["serve", "--help"])  # imports what the command line needs
    children: dict[int, forks.Fork] = {}
    parent = os.pidfd_open(parent_pid)
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    poll.register(parent, select.POLLIN)
    orders = connection.makefile("r")
    while any(number == connection.fileno() for number, _ in poll.poll()):
        line = orders.readline()
        if not line:
            break
        order = json.loads(line)
        if "poll" in order:
            answer = children[order["poll"]].poll()
        else:
            environ = {**ours, **order["environ"]}
            if "command" in order:
                command, run = order["command"], _run_stack
            else:
                command, run = [sys.executable, "-P", "-m", MODULES[order["name"]]], _run_service
                environ["REPUT_PARENT_PID"] = str(os.getpid())
            child = forks.fork(functools.partial(_begin, order, run), command, environ)
            children[child.pid] = child
            answer = child.pid
        connection.sendall(json.dumps(answer).encode() + b"\n")


def _begin(order: Mapping[str, Any], run: Callable[[Mapping[str, Any]], None]) -> None:
    log = os.open(order["log"], os.O_WRONLY)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    os.chdir(order["directory"])
    os.umask(order["umask"])
    tempfile.tempdir = None  # the directory of its own environment
    run(order)


def _run_service(order: Mapping[str, Any]) -> None:
    main_of(order["name"], ())


def _run_stack(order: Mapping[str, Any]) -> NoReturn:
    gc.enable()  # a service does it itself when it has imported everything

    def go_on(_: str, command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
        """In place of a new interpreter for `python -P -m cli.serving ...`."""
        from cli import serving

        os.environ.clear()
        os.environ.update(environ)
        forks.show_command(command)
        sys.argv = list(command[command.index("cli.serving") :])
        sys.exit(serving.main())

    os.execve = go_on
    sys.exit(_reput(order["command"][order["command"].index("cli.main") + 1 :]))


def _reput(arguments: Sequence[str]) -> int:
    import cli.main  # after the services, which are to be imported first
    import cli.serving

    return cli.main.main(arguments)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        _main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
