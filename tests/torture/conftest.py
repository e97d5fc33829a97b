"""Each test of this folder has the marker `torture`, by which `make ci` chooses it among the marked suites."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them, before `-m` chooses."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("torture")
