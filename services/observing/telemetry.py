"""Logs: one JSON object a line on stderr, coloured text where stderr is a terminal.

Event names are `component.noun.verb`; everything else is a field. Domain files use `structlog.get_logger("reput.commitlog")`
and import nothing from here.
"""

import contextlib
import logging
import re
import sys
import threading
from collections.abc import Iterator

import structlog

from services.observing import tracing
from services.observing.meters import OTHER, CounterFamily
from services.settings.setting_names import COMPONENTS
from store.errors import InvalidSettingError

# The component of a process in which all services run.
SINGLE_PROCESS = "reput"
LEVELS = ("debug", "info", "warning", "error")
# Levels that are counted; a serving service logs little else.
COUNTED_LEVELS = frozenset({"warning", "error", "critical"})
# Warnings and errors of this process by level and event, for its metrics page; a library's own text is not an event name.
EVENTS = CounterFamily("log_events", "Warnings and errors logged, by event.", ("level", "event"))
_EVENT_NAME = re.compile(r"[a-z_]+(\.[a-z_]+)+")


def configure_logging(component: str, level: str = "info") -> None:
    """Set up logging for this process, once, at the start.

    Args:
        component: stands in each line as `service`; `reput`: the component that the logger's name has, if it has one.
        level: one of `LEVELS`.

    Raises:
        InvalidSettingError: the level is unknown.
    """
    if level not in LEVELS:
        raise InvalidSettingError(
            f"log_level is {level!r}, but only {', '.join(LEVELS)} are possible", name="REPUT_LOG_LEVEL", source="value"
        )

    def add_service(logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        named = getattr(logger, "name", "").removeprefix("reput.")
        event.setdefault("service", named if component == SINGLE_PROCESS and named in COMPONENTS else component)
        ids = tracing.current_ids()
        if ids is not None:
            event["trace_id"], event["span_id"] = ids
        level = event.get("level", "")
        if level in COUNTED_LEVELS:
            name = str(event.get("event", ""))
            EVENTS.of(level, name if _EVENT_NAME.fullmatch(name) else OTHER).add()
        return event

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        add_service,
    ]
    render: list[structlog.typing.Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if sys.stderr.isatty():
        render.append(structlog.dev.ConsoleRenderer())
    else:
        render += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=render))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


class LibraryLogs:
    """The logs of services that a program hosts: lines of `logging`, as those of any library.

    The program's own handlers and levels decide what becomes of them; without any, warnings appear on stderr. A program that
    has configured structlog keeps its configuration.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._user_count = 0
        self._factory = structlog.stdlib.LoggerFactory()

    @property
    def is_used(self) -> bool:
        """Whether structlog is configured by this, for one that hosts services now."""
        return bool(self._user_count)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """For the block, which may run in several threads at the same time; after the last one all is as before."""
        with self._lock:
            is_ours = bool(self._user_count) or not structlog.is_configured()
            if is_ours:
                self._user_count += 1
                if self._user_count == 1:
                    self._configure()
        try:
            yield
        finally:
            with self._lock:
                if is_ours:
                    self._user_count -= 1
                    # What the program has configured meanwhile stays.
                    if not self._user_count and structlog.get_config()["logger_factory"] is self._factory:
                        structlog.reset_defaults()

    def _configure(self) -> None:
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.processors.format_exc_info,
                structlog.processors.KeyValueRenderer(key_order=["event"]),
            ],
            logger_factory=self._factory,
            wrapper_class=structlog.stdlib.BoundLogger,
        )


# structlog's configuration belongs to the process.
LIBRARY_LOGS = LibraryLogs()


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger; `name` is `reput.<component>`."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(name)
    return logger


def get_audit_logger() -> structlog.stdlib.BoundLogger:
    """The logger of audit lines, which are written at every log level."""
    logging.getLogger("reput.audit").setLevel(logging.INFO)
    return get_logger("reput.audit")
