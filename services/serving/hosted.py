"""A service beside others in one process: it starts and stops, and the process lives on.

The program that hosts it decides about the process: umask, limit of open files, logs, kernels, traces, signals
(services/serving/process.py `own`). So the settings `umask`, `log_level`, `kernels`, `otlp_endpoint` and `parent_pid` have no
effect on a hosted service.
"""

import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from services.serving.server import Service, ServiceServer, tell_ignored
from services.settings.service_settings import load_settings
from store.errors import StoreError

# As of a process that was killed: the service did not end in its time, and its threads were left behind.
EXIT_CODE_ABANDONED = -9


class HostedService:
    """A service that serves from now on; has the methods of `subprocess.Popen` that its starter uses.

    Args:
        service: what to run.
        environ: the environment that its settings come from.
        ended: called in a thread of the service when it has ended, for whatever reason.

    Attributes:
        server: its server.

    Raises:
        InvalidSettingError: a setting is unknown or unusable.
        StoreError: the store is another's, or is none.
    """

    def __init__(self, service: Service[Any], environ: Mapping[str, str], ended: Callable[[], object]) -> None:
        settings, origins = load_settings(service.component, service.settings, environ=environ)
        tell_ignored(service.component, origins)
        self._ended = ended
        self._exit_code: int | None = None
        self.server = ServiceServer(service.component, settings, is_hosted=True)
        try:
            service.serve(self.server, settings, origins)
            self.server.start()
        except BaseException as error:
            if isinstance(error, StoreError):
                self.server.leave_cause(error.message)
            self.server.stop()
            self._serve()
            raise
        self._thread = threading.Thread(target=self._serve, name=f"{service.component}-life", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """This process."""
        return os.getpid()

    @property
    def failure(self) -> StoreError | None:
        """Why it ended by itself; None when there is no such error."""
        return self.server.failure

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._exit_code

    def terminate(self) -> None:
        """Begin its end, as SIGTERM does."""
        self.server.stop()

    def kill(self) -> None:
        """Wait for it no longer: a thread cannot be killed."""
        self.server.stop()
        if self._exit_code is None:
            structlog.get_logger(f"reput.{self.server.name}").error("server.abandoned")
            self._exit_code = EXIT_CODE_ABANDONED

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended; `subprocess.TimeoutExpired` when the time is over."""
        if self._exit_code is None:
            self._thread.join(timeout)
        if self._exit_code is None:
            raise subprocess.TimeoutExpired(self.server.name, timeout or 0.0)
        return self._exit_code

    def _serve(self) -> None:
        exit_code = 1
        try:
            exit_code = self.server.serve_until_stopped()
        finally:
            self.server.close()
            self._exit_code = exit_code
            self._ended()
