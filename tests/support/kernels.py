"""Kernels in tests: every table runs with them and without."""

from collections.abc import Iterator

import pytest

from store.compiled import loading


@pytest.fixture(params=[loading.OFF, loading.EAGER])
def kernel_mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test with kernels off, and with each loaded when it is first asked for."""
    before = loading.switch(request.param)
    yield request.param
    loading.switch(before)


@pytest.fixture
def with_kernels() -> Iterator[None]:
    """Runs the test with kernels."""
    before = loading.switch(loading.EAGER)
    yield
    loading.switch(before)
