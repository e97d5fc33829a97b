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
from collections.abc import Iterator, Mapping

import pytest

import reput_embedded

# Of the name of the test in that of its topic; RocketMQ allows 127 in all.
NAME_CHARACTERS_MAX = 100

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def reput_settings() -> Mapping[str, object]:
    """Settings of the stores, as `reput_embedded.open` takes them."""
    return {}


@pytest.fixture
def reput_store(tmp_path: pathlib.Path, reput_settings: Mapping[str, object]) -> Iterator[reput_embedded.EmbeddedStore]:
    """An empty store, closed after the test; its files are in `tmp_path / "reput"`."""
    with reput_embedded.open(tmp_path / "reput", settings=reput_settings) as store:
        yield store


@pytest.fixture(scope="session")
def reput_session_store(
    tmp_path_factory: pytest.TempPathFactory, reput_settings: Mapping[str, object]
) -> Iterator[reput_embedded.EmbeddedStore]:
    """A store that all tests of this process share."""
    with reput_embedded.open(tmp_path_factory.mktemp("reput") / "store", settings=reput_settings) as store:
        yield store


@pytest.fixture
def reput_topic(request: pytest.FixtureRequest) -> str:
    """A name for a topic, or for a consumer group, that no other test of this process has."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", request.node.name)[:NAME_CHARACTERS_MAX]
    return f"{name}_{next(_numbers)}"
