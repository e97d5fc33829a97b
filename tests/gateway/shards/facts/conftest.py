import pytest

from gateway.search.cel_sandbox import CelSandbox


@pytest.fixture(scope="session")
def sandbox():
    """One for all tests that leave it as it was."""
    shared = CelSandbox()
    yield shared
    shared.close()
