"""One installation for the tests of consumers: each test has topics and groups of its own."""

from collections.abc import Iterator

import pytest

from tests.support.stack import HostedStack, hosted_stack


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("consuming") / "store") as running:
        yield running
