"""Logs: one JSON object a line on stderr, coloured text where stderr is a terminal.

Event names are `component.noun.verb`; everything else is a field. Domain files just do
`structlog.get_logger("reput.commitlog")`: they need nothing from here.
"""

import logging
import sys

import structlog

from store.errors import InvalidSettingError

LEVELS = ("debug", "info", "warning", "error")


def configure_logging(component: str, level: str = "info") -> None:
    """Set up logging for this process, once, at the start.

    Args:
        component: stands in each line as `service`.
        level: one of `LEVELS`.

    Raises:
        InvalidSettingError: there is no such level.
    """
    if level not in LEVELS:
        raise InvalidSettingError(
            f"log_level is {level!r}, but only {', '.join(LEVELS)} are possible", name="REPUT_LOG_LEVEL", source="value"
        )

    def add_service(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event.setdefault("service", component)
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


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger; `name` is `reput.<component>`."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(name)
    return logger
