"""An error as the fields of a log line.

The metadata of an error may have any key, also one that the line has itself, or one that logging uses. So each log line of an
error goes through this function, and a rule of the house forbids to spread metadata into a log call directly.
"""

from typing import Any

from store.errors import StoreError

# Parameters of the loggers' methods, and what the processors of `services/observing/telemetry.py` and structlog write or read.
RESERVED = frozenset(
    {
        *("self", "method_name", "event", "level", "logger", "time", "timestamp", "service", "trace_id", "span_id"),
        *("exc_info", "exception", "stack_info", "stack", "stacklevel", "extra", "positional_args"),
        *("_record", "_from_structlog", "_logger", "_name"),
    }
)


def failure_fields(error: Exception, **own: Any) -> dict[str, Any]:
    """The fields of a log line about an error: `error` (its words), `reason`, its metadata, and the line's own fields.

    A field of the line keeps its name. A key of the metadata that is taken, or reserved, gets the prefix `error_`.

    Args:
        error: what is reported; of an OSError the file is named.
        own: further fields of the line; `exc_info` as well.
    """
    fields: dict[str, Any] = {"error": f"{type(error).__name__}: {error}"}
    metadata: dict[str, str] = {}
    if isinstance(error, StoreError):
        fields = {"error": error.message, "reason": error.reason()}
        metadata = error.metadata
    elif isinstance(error, OSError) and error.filename is not None:
        metadata = {"file": str(error.filename)}
    fields |= own
    for key, value in metadata.items():
        name = key
        while name in fields or name in RESERVED:
            name = f"error_{name}"
        fields[name] = value
    return fields
