"""Measures which branches of the pure rooms their own tests run: `-p tests.support.measuring`, beside pytest-xdist or alone.

The rooms are `source` of `[tool.coverage.run]`, and the own tests of `store/walk` are those in `tests/store/walk`. A tracer is
slow, so it is on while these tests run, and while a process imports the rooms before anything else does. Each process of a
run writes a file of its own; `coverage combine` puts them together.

The same branches are found each time, in whatever order and beside whatever tests: what a function keeps (`lru_cache`) of
tests of other rooms is forgotten before. Inputs that hypothesis draws are others in each run, so a branch that not almost any
input reaches needs an `@example`, which always runs.
"""

import fnmatch
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

# Each process has one, from its options on to its end.
_MEASURED = pytest.StashKey["Measured"]()
# In the names of tests that reach no further branch and are slow under a tracer: many inputs, kernels as plain Python.
UNMEASURED = ("thousands_of", "uncompiled")


class Measured:
    """The measured rooms of a project, and the tracer of this process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tracer = coverage.Coverage(config_file=str(root / "pyproject.toml"))
        self.rooms: list[str] = self.tracer.get_option("run:source")  # type: ignore[assignment]
        self._omitted: list[str] = self.tracer.get_option("run:omit")  # type: ignore[assignment]
        self._is_on = False

    def switch(self, is_on: bool) -> None:
        """Start or stop to trace."""
        if is_on and not self._is_on:
            self._forget()
            self.tracer.start()
        elif self._is_on and not is_on:
            self.tracer.stop()
        self._is_on = is_on

    def import_rooms(self) -> None:
        """Import every module of the rooms: what runs then runs once in a process, whichever test is the first."""
        for path in sorted(path for room in self.rooms for path in (self.root / room).rglob("*.py")):
            if not any(fnmatch.fnmatch(path.name, pattern) for pattern in self._omitted):
                importlib.import_module(self._name_of(path))

    def is_own(self, item: pytest.Item) -> bool:
        """Whether the branches that a test runs count."""
        is_in_room = any(item.path.is_relative_to(self.root / "tests" / room) for room in self.rooms)
        return is_in_room and not any(part in item.name for part in UNMEASURED)

    def _forget(self) -> None:
        prefixes = tuple(room.replace("/", ".") for room in self.rooms)
        for name, module in list(sys.modules.items()):
            if name.startswith(prefixes):
                for value in vars(module).values():
                    if callable(forget := getattr(value, "cache_clear", None)):
                        forget()

    def _name_of(self, path: Path) -> str:
        parts = path.relative_to(self.root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Import the rooms before anything else does; xdist's main process does it for the others, which have no such moment."""
    early_config.stash[_MEASURED] = measured = Measured(early_config.rootpath)
    measured.switch(True)
    measured.import_rooms()
    measured.switch(False)


def pytest_configure(config: pytest.Config) -> None:
    """Be ready in xdist's processes."""
    config.stash.setdefault(_MEASURED, Measured(config.rootpath))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Trace the rooms' own tests, with what is set up and torn down for them."""
    measured = item.config.stash[_MEASURED]
    measured.switch(measured.is_own(item))
    return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Write what was found."""
    measured = config.stash[_MEASURED]
    measured.switch(False)
    measured.tracer.save()
