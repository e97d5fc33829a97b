"""Where the services of a stack run: each in a process of its own, or all in this one.

Both hosts start a service from the same environment, so what the services are told is decided in one place (deploy/local.py).
Both tell the stack by bytes on a socket: the number of SIGCHLD when a service has ended, of a stop signal when the stack shall
stop.

| | `Processes` | `ThisProcess` |
| --- | --- | --- |
| a service is | a fork, named `python -m <module>` (forks.py) | `SERVICE` of that module, served by threads (hosted.py) |
| its process | is set up by its settings | belongs to the program: no signal, umask, log or trace is touched |
| it dies | also alone, or with those beside it; with this process | with this process only |
| for | `reput serve`, every kind of store | tests, notebooks, programs with a store of their own; no replica of a shard |
"""

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from deploy import forks
from deploy.modules import MODULES
from deploy.processes import TERMINAL_SIGNALS, signals_as_bytes, signals_to, socket_pair

if TYPE_CHECKING:
    from services.serving.server import ServiceServer


class ChildDiedError(Exception):
    """A service ended unexpectedly.

    Args:
        name: the service.
        exit_code: its exit code; 128 + n when signal n ended it; never 0.
        cause: why, in its own words; empty when it left none.
        error: the same, typed, of a service in this process; None where it is not known.
    """

    def __init__(self, name: str, exit_code: int, cause: str = "", error: Exception | None = None) -> None:
        why = f": {cause}" if cause else f"; see the last lines of {name} above"
        super().__init__(f"{name} ended with exit code {exit_code}{why}")
        self.name = name
        self.exit_code = exit_code
        self.error = error


class Child(Protocol):
    """A service that was started; see `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """The process that it runs in."""

    def poll(self) -> int | None:
        """The exit code; None while it runs."""

    def terminate(self) -> None:
        """Begin its clean end."""

    def kill(self) -> None:
        """Wait for it no longer."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended; `subprocess.TimeoutExpired` when the time is over."""


class ServiceHost(Protocol):
    """Runs services.

    Attributes:
        has_processes: each service that is started has a process.
    """

    has_processes: bool

    def wakeups(self) -> contextlib.AbstractContextManager[socket.socket]:
        """In the block, the socket that the bytes come from."""

    def start(self, name: str, environ: Mapping[str, str], beside: Sequence[str] = ()) -> Child:
        """Start a service with the settings of an environment, and others in its process (deploy/beside.py).

        Raises:
            InvalidSettingError: a setting is unknown or unusable.
            ChildDiedError: it could not start.
        """


class Processes:
    """A service has a process, a child of this one, with those beside it; for the main thread, which takes the signals.

    This process imports a service and forks, so that what services share is imported once and is in memory once. A service that
    is started again is a new interpreter: meanwhile gRPC may have threads in this process, and no fork has those. So is one
    that cannot be imported: its own process tells why, and ends.
    """

    has_processes = True

    def __init__(self) -> None:
        self._forked: set[str] = set()
        self._threads_of_libraries: frozenset[str] = frozenset()

    def wakeups(self) -> contextlib.AbstractContextManager[socket.socket]:
        """See ServiceHost."""
        return signals_as_bytes()

    def start(self, name: str, environ: Mapping[str, str], beside: Sequence[str] = ()) -> Child:
        """See ServiceHost. What it cannot do is seen at its end."""
        # -P: a module in the working directory must not take a service's place.
        run = ["deploy.beside", name, *beside] if beside else [MODULES[name]]
        command = [sys.executable, "-P", "-m", *run]
        environ = {**environ, "REPUT_PARENT_PID": str(os.getpid())}
        if name not in self._forked and forks.can_fork(self._threads_of_libraries):
            with _no_search_for_garbage(), contextlib.suppress(_ImportFailedError):
                environ_of_fork = {**self._imported(name, *beside), **environ}
                self._forked.add(name)
                with _terminal_signals_blocked():
                    return forks.fork(lambda: main_of(name, beside), command, environ_of_fork)
        with _terminal_signals_blocked():
            return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL)

    def _imported(self, *names: str) -> Mapping[str, str]:
        """See `imported`; keeps which threads its libraries have started."""
        try:
            return imported(*names)
        except (Exception, SystemExit) as error:
            raise _ImportFailedError from error
        finally:
            self._threads_of_libraries = forks.threads()


class _ImportFailedError(Exception):
    """A service cannot be imported."""


@contextlib.contextmanager
def _terminal_signals_blocked() -> Iterator[None]:
    """Ctrl-C and a hang-up reach the whole process group. Children inherit them blocked: this process stops them in order."""
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


@contextlib.contextmanager
def _no_search_for_garbage() -> Iterator[None]:
    """Python searches for none in the block, and never among what is there at its end: so forks go on sharing its memory."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def imported(*names: str) -> Mapping[str, str]:
    """Import services in this process; the variables that a process of theirs has by default."""
    import ssl  # noqa: F401  # before asyncio, for the console's web server: see light_imports

    import services.light_imports  # before the others

    # isort: split
    import deploy.beside  # noqa: F401
    from deploy.modules import load_service

    for name in names:
        load_service(name)
    return services.light_imports.ENVIRONMENT


def main_of(name: str, beside: Sequence[str]) -> None:
    """What `python -m` does with the module of a service."""
    from deploy.beside import run

    run(name, beside)


class ThisProcess:
    """All services run in this process.

    Args:
        takes_signals: stop signals ask for the stop; for the main thread of a process that is only the stack.

    Attributes:
        servers: of the services, by name.
    """

    has_processes = False

    def __init__(self, *, takes_signals: bool = False) -> None:
        self._takes_signals = takes_signals
        self.servers: dict[str, ServiceServer] = {}
        self._lock = threading.Lock()
        self._writer: socket.socket | None = None
        self._is_asked_to_stop = False

    @contextlib.contextmanager
    def wakeups(self) -> Iterator[socket.socket]:
        """See ServiceHost."""
        with socket_pair() as (reader, writer):
            with self._lock:
                self._writer = writer
                is_asked_to_stop = self._is_asked_to_stop
            try:
                if is_asked_to_stop:
                    self._wake(signal.SIGTERM)
                with signals_to(writer) if self._takes_signals else contextlib.nullcontext():
                    yield reader
            finally:
                with self._lock:
                    self._writer = None

    def start(self, name: str, environ: Mapping[str, str], beside: Sequence[str] = ()) -> Child:
        """See ServiceHost."""
        from deploy.beside import service_with
        from services.serving.hosted import HostedService
        from store.errors import InvalidSettingError, StoreError

        service = service_with(name, beside, environ)
        try:
            hosted = HostedService(service, environ, lambda: self._wake(signal.SIGCHLD))
        except InvalidSettingError:
            raise
        except StoreError as error:
            raise ChildDiedError(name, 1, error.message, error) from error
        self.servers[name] = hosted.server
        return hosted

    def ask_to_stop(self) -> None:
        """Have the stack stop, as SIGTERM would; returns at once."""
        with self._lock:
            self._is_asked_to_stop = True  # also before it has begun
        self._wake(signal.SIGTERM)

    def _wake(self, number: int) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):  # it is full of such bytes
            if self._writer is not None:
                self._writer.send(bytes([number]))
