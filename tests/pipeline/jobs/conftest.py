"""Kernels on or off for the tests of jobs."""

from collections.abc import Iterator

import pytest

from store.kernels import loading


@pytest.fixture
def kernels_off() -> Iterator[None]:
    """Runs the test with plain code alone."""
    before = loading.switch(loading.OFF)
    yield
    loading.switch(before)
