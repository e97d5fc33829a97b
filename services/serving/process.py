"""A service in a process of its own: everything that belongs to the process and not to the service.

`main` reads flags, environment and files (exit code 2 and one line on stderr for a wrong setting), sets up the process (`own`),
calls `serve` (exit code 1 and a log line when the store is another process's), opens the port, writes the address file and
stays until SIGTERM or SIGINT. When the parent process was killed it ends at once instead (services/serving/parent_watch.py).
"""

import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, TypeVar

import structlog

from services.observing import tracing
from services.observing.telemetry import configure_logging
from services.serving import parent_watch
from services.serving.server import Service, ServiceServer, tell_ignored
from services.settings.service_settings import ServiceSettings, load_from_process, print_and_exit
from store.compiled import loading
from store.errors import InvalidSettingError, StoreError
from store.files.open_files import DESCRIPTOR_COUNT_FEW, open_standard_descriptors, raise_open_file_limit
from store.files.umask import set_umask

Settings = TypeVar("Settings", bound=ServiceSettings)


def own(component: str, settings: ServiceSettings, logs_as: str = "") -> None:
    """Set up this process as the settings say: umask, limit of open files, logs, kernels, traces.

    Args:
        component: whose process it is.
        settings: of the component.
        logs_as: see `configure_logging`; empty: as the component.

    Raises:
        InvalidSettingError: a setting cannot be used here.
    """
    set_umask(settings.umask)
    descriptor_count_max = raise_open_file_limit()
    configure_logging(logs_as or component, settings.log_level)
    loading.switch(settings.kernels)
    tell_meaningless(component, settings)
    tracing.switch_on(component, settings.otlp_endpoint)
    if descriptor_count_max < DESCRIPTOR_COUNT_FEW:
        hint = "raise the hard limit of open files (ulimit -Hn, LimitNOFILE=)"
        structlog.get_logger(f"reput.{component}").warning(
            "descriptors.few", limit=descriptor_count_max, enough=DESCRIPTOR_COUNT_FEW, hint=hint
        )


def tell_meaningless(component: str, settings: ServiceSettings) -> None:
    """Log a setting that is accepted and changes nothing."""
    if "kernels" in settings.model_fields_set and settings.kernels != loading.OFF:
        hint = loading.NO_LONGER_A_CHOICE.format(mode=settings.kernels)
        structlog.get_logger(f"reput.{component}").warning("settings.no_meaning", hint=hint)


def main(service: Service[Settings], argv: Sequence[str] | None = None, *, logs_as: str = "") -> NoReturn:
    """Run the process of a service; see the top of this file, and `own` for `logs_as`."""
    gc.freeze()  # what was imported lives until the end
    gc.enable()  # see services/light_imports.py
    open_standard_descriptors()
    component = service.component
    try:
        settings, origins = load_from_process(component, service.settings, argv)
        own(component, settings, logs_as)
    except InvalidSettingError as error:
        print_and_exit(error)
    if settings.parent_pid is not None:
        parent_watch.die_with_parent(settings.parent_pid)
    tell_ignored(component, origins)
    try:
        server = ServiceServer(component, settings)
        server.stop_signal.give_on_signals()
        server.on_stop(tracing.switch_off)
        service.serve(server, settings, origins)
        server.start()
    except InvalidSettingError as error:
        print_and_exit(error)
    except StoreError as error:  # the store is another process's, or is none: this one must not listen
        server.log_failure("start", error)
        server.leave_cause(error.message)
        sys.exit(1)
    leave(server.serve_until_stopped())


def leave(exit_code: int) -> NoReturn:
    """End the process by `os._exit`: the interpreter's own end would wait for every worker thread, also for a stuck one.

    The `on_stop` callbacks have saved what must be kept.
    """
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(exit_code)
