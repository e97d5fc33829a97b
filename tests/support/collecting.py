"""Collects thousands of tests with less work: `-p tests.support.collecting`, beside pytest-xdist or alone.

Every process of a run imports all test modules. In a fresh clone each of them would also rewrite the assertions of all
modules, which takes longer than the import. So each process first imports another part of what is not rewritten yet, and
then finds the rest as the others have written it.

What is collected lives until the end: the garbage collector does not look at it again and again.
"""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import this process's part of the new modules; the collection follows."""
    config = session.config
    if config.pluginmanager.hasplugin("dsession"):
        return  # xdist's main process collects nothing
    gc.disable()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")  # such as gw3
    if worker and not sys.dont_write_bytecode:
        count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        import_part(config.rootpath, config.getini("testpaths"), int(worker.removeprefix("gw")), count)


def pytest_collection_finish() -> None:
    """Leave what is there now to no collection of garbage."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def import_part(root: Path, folders: Sequence[str], begin: int, step: int) -> None:
    """Import every `step`th test module from the `begin`th on that is not rewritten yet.

    Args:
        root: where the names of the modules begin.
        folders: below it, where tests are.
        begin: from 0.
        step: how many processes share the work.
    """
    paths = sorted(path for folder in folders for path in (root / folder).rglob("test_*.py"))
    for path in paths[begin::step]:
        if not is_rewritten(path):
            with contextlib.suppress(Exception, pytest.skip.Exception):  # it raises again when it is collected
                importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))


def is_rewritten(path: Path) -> bool:
    """Whether this pytest has written what it makes of a module, now or of an earlier state: a few changed ones cost little."""
    return any((path.parent / "__pycache__").glob(f"{path.stem}.*-pytest-{pytest.__version__}.pyc"))
