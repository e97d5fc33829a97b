"""The images of the checkout, built once for all tests of a session that run them (`tests/support/scheduling.py`)."""

import contextlib
import secrets
from collections.abc import Iterator

import pytest

from tests.support import containers


@pytest.fixture(scope="session")
def serve_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image without Spark; removed at the end."""
    with _built("serve", tmp_path_factory) as name:
        yield name


@pytest.fixture(scope="session")
def whole_image(serve_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image with Spark, which goes on from the same layers; removed at the end."""
    with _built("reput", tmp_path_factory) as name:
        yield name


@contextlib.contextmanager
def _built(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    name = f"localhost/reput-test-{target}:{secrets.token_hex(4)}"
    layers = containers.build(target, name, tmp_path_factory.mktemp("images"))
    with containers.removed_afterwards(("image", name), *(("image", layer) for layer in layers)):
        yield name
