"""pytest fixtures: stores inside the test process. Name the module in the `conftest.py` at the root of the tests:

    pytest_plugins = ["reput_embedded.testing"]

    reput_store             a store for the test alone, in its `tmp_path`; starts in a tenth of a second
    reput_session_store     one store for all tests of a process
    reput_topic             the name of a topic in it that no other test has
    reput_settings          settings of both, a mapping; override it where others are wanted

pytest does not load the module by itself: that would cost every run its import, also where no test needs a store.
"""

import itertools
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import reput_embedded

# Of the name of the test in that of its topic; RocketMQ allows 127 in all.
NAME_CHARACTERS_MAX = 100

_numbers = itertools.count(1)
_HAS_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """Note a failure for the fixtures below, which keep the files of a store after a failure, and remove them otherwise."""
    if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        item.stash[_HAS_FAILED] = True


@pytest.fixture(scope="session")
def reput_settings() -> Mapping[str, object]:
    """Settings of the stores, as `reput_embedded.open` takes them. One in its place needs `scope="session"`, too."""
    return {}


@pytest.fixture
def reput_store(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, reput_settings: Mapping[str, object]
) -> Iterator[reput_embedded.EmbeddedStore]:
    """An empty store, closed after the test; its files are in `tmp_path / "reput"`, and stay there if the test fails."""
    with reput_embedded.open(tmp_path / "reput", settings=reput_settings) as store:
        yield store
    if not request.node.stash.get(_HAS_FAILED, False):
        shutil.rmtree(store.directory, ignore_errors=True)


@pytest.fixture(scope="session")
def reput_session_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, reput_settings: Mapping[str, object]
) -> Iterator[reput_embedded.EmbeddedStore]:
    """A store that all tests of this process share; its files stay if one of them fails."""
    with reput_embedded.open(tmp_path_factory.mktemp("reput") / "store", settings=reput_settings) as store:
        yield store
    if not request.session.testsfailed:
        shutil.rmtree(store.directory, ignore_errors=True)


@pytest.fixture
def reput_topic(request: pytest.FixtureRequest) -> str:
    """A name for a topic, or for a consumer group, that no other test of this process has."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", request.node.name)[:NAME_CHARACTERS_MAX]
    return f"{name}_{next(_numbers)}"
