"""A plugin of pytest: no test leaves structlog configured for those after it, and a traceback in a log costs no time.

`structlog.testing.capture_logs` does, and a stack of this process then takes that for the program's own configuration: its logs
go to stdout, into what a test reads there.

By default structlog has rich draw each traceback, with the source in colours and all variables: 30 to 200 ms of CPU.
"""

import pytest
import structlog

from services.observing.telemetry import LIBRARY_LOGS

structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Go back to structlog's defaults, unless a stack of this process has configured it."""
    if structlog.is_configured() and not LIBRARY_LOGS.is_used:
        structlog.reset_defaults()
