"""What a starter of processes on one machine needs: signals, exit codes, a place for sockets, files replaced in one step."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping

from services.settings.setting_names import COMMAND_ENVIRONMENT_NAMES

SOCKET_PATH_BYTES_MAX = 100  # the kernel allows 107 (sockaddr_un); the rest is a reserve
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGHUP)
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ROOT = pathlib.Path(__file__).resolve().parent.parent


def environ_of_services(given: Mapping[str, str]) -> dict[str, str]:
    """The environment of the services: without the settings of the command, API keys among them; with our modules."""
    environ = {name: value for name, value in given.items() if name not in COMMAND_ENVIRONMENT_NAMES}
    return environ | {"PYTHONPATH": python_path(environ)}


def python_path(environ: Mapping[str, str]) -> str:
    """PYTHONPATH with the roots of our modules in front."""
    roots = [str(ROOT), str(ROOT / "protos"), *environ.get("PYTHONPATH", "").split(os.pathsep)]
    return os.pathsep.join(root for root in dict.fromkeys(roots) if root)


def say(text: str) -> None:
    """Print one line on stderr."""
    print(f"reput: {text}", file=sys.stderr, flush=True)


def exit_code_of(returncode: int) -> int:
    """The exit code for a child that ended unexpectedly: 128 + n for signal n, as in a shell; never 0."""
    return 128 - returncode if returncode < 0 else returncode or 1


def write_by_rename(path: pathlib.Path, text: str) -> None:
    """Replace a file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


@contextlib.contextmanager
def short_directory() -> Iterator[pathlib.Path]:
    """A private directory whose path leaves room for a socket's name."""
    path = tempfile.mkdtemp(prefix="reput-")
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX - len("consumequeue.sock"):
        os.rmdir(path)
        path = tempfile.mkdtemp(prefix="reput-", dir="/tmp")  # mkdtemp makes it private
    try:
        yield pathlib.Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A socket to read from, and one to write to; neither blocks."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    try:
        yield reader, writer
    finally:
        reader.close()
        writer.close()


@contextlib.contextmanager
def signals_to(writer: socket.socket) -> Iterator[None]:
    """Stop signals and ends of children arrive as bytes on a socket, so that one `select` waits for all of them.

    A signal of the terminal that this process was started to ignore stays ignored: `nohup` has SIGHUP so, a shell SIGINT of a
    job in the background.
    """
    before = {number: signal.getsignal(number) for number in (*STOP_SIGNALS, signal.SIGCHLD)}
    for number in TERMINAL_SIGNALS:
        if before[number] is signal.SIG_IGN:
            del before[number]
    for number in before:
        signal.signal(number, lambda _number, _frame: None)
    wakeup_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup_before)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_as_bytes() -> Iterator[socket.socket]:
    """See `signals_to`; the socket to read from."""
    with socket_pair() as (reader, writer), signals_to(writer):
        yield reader
