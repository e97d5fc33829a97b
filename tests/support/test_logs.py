"""What a test does to structlog ends with it, in a pytest of its own."""

import sys

import pytest

PROGRAM = """
import structlog
from services.observing.telemetry import LIBRARY_LOGS

def test_one_captures_logs():
    with structlog.testing.capture_logs():
        pass
    assert structlog.is_configured()

def test_the_next_finds_structlog_as_it_was():
    assert not structlog.is_configured()
    keeps.__enter__()

def test_a_stack_of_the_module_keeps_its_logs():
    assert structlog.is_configured()

keeps = LIBRARY_LOGS.used()
"""


def test_a_stack_wrote_its_logs_into_what_a_later_test_read_on_stdout(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    pytester.makepyfile(test_program=PROGRAM)
    result = pytester.runpytest_subprocess("-p", "tests.support.logs", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=3)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-k", "one_captures or next_finds")
    result.assert_outcomes(passed=1, failed=1)
