"""A pytest plugin (`-p tests.support.no_skips`) for runs in which a skipped test, or none at all, is a failure."""

import pytest

_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember each skipped test."""
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Remember each skipped module."""
    if report.skipped:
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn a run with skips into a failure, one that running the failed tests once more does not mend."""
    if _skipped:
        print(f"\nskipped, but nothing may be skipped here: {', '.join(_skipped)}")
        is_sound = session.exitstatus == pytest.ExitCode.OK
        session.exitstatus = pytest.ExitCode.TESTS_FAILED if is_sound else pytest.ExitCode.INTERNAL_ERROR
