"""Kernels in tests: every table runs with them and without."""

from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from store.compiled import built, loading

LoadKernel = Callable[[str], ModuleType]
_load = built.load


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


def compiled(name: str) -> ModuleType:
    """A kernel of Cython, compiled; a test is skipped where nothing could compile it."""
    module = _load(name)
    if module is None:
        pytest.skip(f"{name} is not compiled: {built.HOW_TO_BUILD}")
    return module


FORMS: dict[str, LoadKernel] = {"compiled": compiled, "uncompiled": built.load_source}


@pytest.fixture(params=FORMS)
def load_kernel(request: pytest.FixtureRequest) -> LoadKernel:
    """Runs the test with a kernel of Cython compiled, and with the same source as plain Python; it takes the kernel's name."""
    return FORMS[request.param]


@pytest.fixture(params=["plain twin", *FORMS])
def kernel_form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Runs the test without kernels, and with each kernel of Cython that it comes by in both its forms."""
    monkeypatch.setattr(loading, "_kernels", {})
    if request.param in FORMS:
        monkeypatch.setattr(built, "load", FORMS[request.param])
    before = loading.switch(loading.AUTO if request.param in FORMS else loading.OFF)
    yield request.param
    loading.switch(before)
