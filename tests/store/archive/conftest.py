"""The fixture stores, archived once a session."""

from pathlib import Path

import pytest

from tests.support.archives import Archived, archived
from tests.support.fixture_stores import STORE_NAMES


@pytest.fixture(scope="session", params=STORE_NAMES)
def fixture_archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Archived:
    """One of the fixture stores and its archive; not to be written to."""
    store: Path = request.getfixturevalue(f"{request.param}_store")
    return archived(store, tmp_path_factory.mktemp("archives") / request.param)
