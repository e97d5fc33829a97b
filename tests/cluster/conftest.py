"""What the tests of one file share: a shard, whole at the begin of each test, and what a case is measured by."""

import re
from collections.abc import Iterator

import pytest

from tests.cluster.shard import Shard, running_shard


@pytest.fixture(scope="module")
def shared_shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    """Three replicas, one for all tests of a file."""
    with running_shard(tmp_path_factory.mktemp("shard")) as shard:
        yield shard


@pytest.fixture
def shard(shared_shard: Shard) -> Shard:
    """The same, with all replicas in sync."""
    shared_shard.wait_until_whole()
    return shared_shard


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of this test's own."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", str(request.node.name))[-100:]
