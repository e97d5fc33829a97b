"""Every error can be a log line, whatever its metadata holds."""

import ast
import functools
import inspect
import logging
from pathlib import Path

import pytest
import structlog

from store import errors
from store.errors import RESERVED, failure_fields

ROOT = Path(__file__).parents[2]
ROOMS = (
    *("store", "services", "commitlog_svc", "consumequeue_svc", "index_svc", "consumer_svc", "schedule_svc", "gateway"),
    *("console", "pipeline", "cli", "deploy"),
)
CLASSES = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, errors.StoreError)]
LOG_CALLS = ("debug", "info", "warning", "error", "exception", "critical")
# Own fields of the lines that this code base logs about errors, and what a line may be given at most.
OWN = {"offset": 17, "kind": "timers", "exc_info": None}


@functools.cache
def calls() -> list[tuple[Path, int, str, list[tuple[str | None, str]]]]:
    """Every call in the product: file, line, what is called, and the keywords with their values ("" where no test asks)."""
    found = []
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.keywords:
                keywords = [(each.arg, "" if each.arg else ast.unparse(each.value)) for each in node.keywords]
                found.append((path, node.lineno, ast.unparse(node.func), keywords))
    return found


@functools.cache
def metadata_keys() -> set[str]:
    """The keys that an error of the product may have, those that no log call can take, and all of `LogRecord`."""
    named = {
        keyword
        for _, _, called, keywords in calls()
        if called.split(".")[-1].endswith("Error")
        for keyword, _ in keywords
        if keyword is not None
    }
    record = logging.LogRecord("", 0, "", 0, "", (), None)
    return (
        named
        | set(RESERVED)
        | set(vars(record))
        | set(OWN)
        | {"error", "reason", "message", "asctime", "args", "event"}
    )


@pytest.fixture
def logged() -> list[logging.LogRecord]:
    """What a logger set up as `configure_logging` does hands to the standard library."""
    records: list[logging.LogRecord] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger = logging.getLogger("reput.test_failure_fields")
    logger.handlers[:], logger.propagate = [Handler()], False
    logger.setLevel(logging.DEBUG)
    return records


def logger() -> structlog.stdlib.BoundLogger:
    bound: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger("reput.test_failure_fields"),
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return bound


@pytest.mark.parametrize("error_class", CLASSES)
def test_the_report_of_an_error_never_raises_and_keeps_all_its_metadata(
    logged: list[logging.LogRecord], error_class: type[errors.StoreError]
) -> None:
    for key in sorted(metadata_keys()):
        error = error_class("what happened", **{key: f"value of {key}"})
        assert error.metadata == {key: f"value of {key}"}
        fields = failure_fields(error, **OWN)
        assert fields["error"] == "what happened"
        assert f"value of {key}" in fields.values()
        assert {name: fields[name] for name in OWN} == OWN
        logger().warning("test.failed", **fields)
        shown = logged[-1].msg
        assert isinstance(shown, dict)
        assert shown["event"] == "test.failed"
        assert f"value of {key}" in shown.values()
    assert len(logged) == len(metadata_keys())


def test_metadata_that_a_line_has_already_stands_beside_it_and_not_in_its_place() -> None:
    error = errors.StoreCorruptedError("damaged", file="000", offset=40, error_offset=41)
    fields = failure_fields(error, offset=7)
    assert fields == {
        "error": "damaged",
        "reason": "STORE_CORRUPTED",
        "offset": 7,
        "file": "000",
        "error_offset": "40",
        "error_error_offset": "41",
    }


def test_a_failed_system_call_names_its_file() -> None:
    assert failure_fields(FileNotFoundError(2, "No such file", "/x/y"))["file"] == "/x/y"
    assert failure_fields(ValueError("no number")) == {"error": "ValueError: no number"}


def test_no_log_call_of_the_product_spreads_fields_of_an_error_by_itself() -> None:
    wrong = []
    for path, line, called, keywords in calls():
        if "." not in called or called.split(".")[-1] not in LOG_CALLS:
            continue
        for keyword, spread in keywords:
            if keyword is None and ("metadata" in spread or "error" in spread) and "failure_fields" not in spread:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {spread}")
            if keyword == "extra":
                wrong.append(f"{path.relative_to(ROOT)}:{line}: extra=")
    assert wrong == []
