"""A stack in this process, kept by a thread of its own: for tests, and for programs with a store of their own."""

import concurrent.futures.thread  # noqa: F401  # before `_stop_all` is registered, which has to run before its own end
import logging
import os
import pathlib
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from deploy.hosts import ThisProcess
from deploy.local import LocalStack
from services.observing.telemetry import LIBRARY_LOGS

if TYPE_CHECKING:
    from services.serving.server import ServiceServer


class BackgroundStack:
    """The six services on one store root, in threads of this process, from now on until `stop`.

    What it needs of the process it gives back at the end: threads, descriptors, files, locks. It touches no signal, umask,
    trace, module or environment variable. Its logs are lines of `logging` (services/observing/telemetry.py, LibraryLogs).
    A stack that still runs when the interpreter ends is stopped then; a `with` block stops it at its end. It belongs to the
    process that opened it: in a child of a fork, `stop` has no effect.

    Args:
        store: the store root.
        environ: the environment that settings come from; default: none, so all have their defaults.
        before_stop: called by the thread that stops the stack, while all services still answer.
        choices: others of `deploy.local.LocalStack`.

    Attributes:
        store: the store root.
        pid: the process that opened it.
        addresses: by service name; `console` too, if there is one.
        said: the lines that `reput serve` would print.
        exit_code: 0, or the code of a service that ended by itself or not at all; None while the stack runs.

    Raises:
        InvalidSettingError: a setting is unknown or unusable.
        ChildDiedError: a service could not start; nothing is left running.
    """

    def __init__(
        self,
        store: pathlib.Path,
        environ: Mapping[str, str] | None = None,
        *,
        before_stop: Callable[[], object] = lambda: None,
        **choices: Any,
    ) -> None:
        self._host = ThisProcess()
        self.store = store.absolute()
        self.said: list[str] = []
        self.exit_code: int | None = None
        self.before_stop = before_stop
        self.is_stopping = False
        self.pid = os.getpid()
        self._error: BaseException | None = None
        self._stack = LocalStack(store, environ=environ or {}, host=self._host, say=self.said.append, **choices)
        self._is_started = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="reput-stack", daemon=True)
        try:
            self._thread.start()
            self._is_started.wait()
            self.addresses = self._stack.addresses
            if self._error is not None:
                raise self._error
        except BaseException:  # no thread, or Ctrl-C: the caller gets no stack that it could stop
            self.begin_stop()
            if self._thread.is_alive():
                self._thread.join()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> int:
        """Stop the services in order; the exit code. Without effect when they have stopped."""
        if (
            not self.is_of_this_process
        ):  # a copy of the socket that stops the stack of the parent, and none of its threads
            return 0
        try:
            if not self.is_stopping:
                self.before_stop()
        finally:
            self.begin_stop()
            self._thread.join()
        assert self.exit_code is not None, "the thread has set it"
        return self.exit_code

    def server(self, name: str) -> "ServiceServer":
        """The server of a service, for calls without gRPC (`ServiceServer.direct_channel`)."""
        return self._host.servers[name]

    def begin_stop(self) -> None:
        """Have it stop; returns at once."""
        self.is_stopping = True
        if self.is_of_this_process:
            self._host.ask_to_stop()

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process opened it, not one that this process is a fork of."""
        return self.pid == os.getpid()

    def wait(self, seconds: float | None = None) -> int | None:
        """The exit code once the stack has stopped, by itself or not; None when the time is over first."""
        self._thread.join(seconds)
        return self.exit_code

    def _keep(self) -> None:
        exit_code = 1
        RUNNING.add(self)
        try:
            with LIBRARY_LOGS.used(), self._stack.started() as failure:
                if failure is None:
                    self._is_started.set()
                    exit_code = self._stack.wait()
                else:
                    exit_code, self._error = failure, self._stack.death
            exit_code = exit_code or self._stack.stop_exit_code
        except BaseException as error:
            self._error = error
        finally:
            self.exit_code = exit_code
            RUNNING.discard(self)
            self._is_started.set()


# Those whose thread runs.
RUNNING: set[BackgroundStack] = set()


def _stop_all() -> None:
    for stack in list(RUNNING):
        try:
            stack.stop()
        except Exception as error:  # the others are stopped all the same
            logging.getLogger("reput.stack").error("the stack on %s could not be stopped: %r", stack.store, error)


# The interpreter's end joins the threads of executors before it calls `atexit`, and those of the services serve until they are
# stopped: the program would never end. What is registered here last runs first.
threading._register_atexit(_stop_all)  # type: ignore[attr-defined]
