"""What a failed test prints besides its error: what the services of that test logged meanwhile, and its seed.

Services in this process log through `logging`, which pytest prints itself (pyproject.toml, `log_level`). Those with a process
of their own write files: `watch_log` names one, and a failure prints what was added to it since the test began.

Before each test `random` is seeded from the run's seed and the test's name; with TEST_SEED=n
a run draws as an earlier one did.
"""

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

RUN_SEED = "TEST_SEED"
PRINTED_BYTES_MAX = 16 << 10  # of each log, the last ones

# Files, and directories whose `*.log` files count; and how large each of them was when the running test began.
_WATCHED: set[Path] = set()
_BEGINS: dict[Path, int] = {}


def watch_log(path: Path) -> None:
    """From now on a failure prints what is added to this file, or to the logs in this directory; it may be made later."""
    _WATCHED.add(path)


def logged_since_the_test_began() -> Iterator[tuple[Path, str]]:
    """The watched files that have grown, each with the end of what was added."""
    for path, end in _sizes().items():
        begin = _BEGINS.get(path, 0)
        if end > begin:
            with path.open("rb") as file:
                file.seek(max(begin, end - PRINTED_BYTES_MAX))
                yield path, file.read().decode(errors="replace")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the run's seed, once for all processes of pytest-xdist: they inherit the environment."""
    os.environ.setdefault(RUN_SEED, str(random.SystemRandom().randrange(1 << 32)))


def pytest_report_header() -> str:
    """The seed, also when all pass."""
    return f"seed: {RUN_SEED}={os.environ[RUN_SEED]}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed what the test draws from, and note what the logs hold already."""
    random.seed(f"{os.environ[RUN_SEED]} {item.nodeid}")
    _WATCHED.difference_update([path for path in _WATCHED if not path.exists()])  # their stacks have gone
    _BEGINS.clear()
    _BEGINS.update(_sizes())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Add the logs and the seed to the report of a failure."""
    report: pytest.TestReport = yield  # type: ignore[misc, assignment]
    if report.failed:
        report.sections += [(f"{report.when}: added to {path}", text) for path, text in logged_since_the_test_began()]
        report.sections.append(("seed", f"{RUN_SEED}={os.environ[RUN_SEED]}"))
    return report  # type: ignore[return-value]


def _sizes() -> dict[Path, int]:
    sizes = {}
    for place in _WATCHED:
        for path in sorted(place.glob("*.log")) if place.is_dir() else [place]:
            with contextlib.suppress(FileNotFoundError):
                sizes[path] = path.stat().st_size
    return sizes
