"""A log behind a local server, for the tests of both ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.local import client as local_client
from services.local.server import LocalServer
from services.serving.calls.open_work import OpenWork
from tests.services.local.support import WAIT_SECONDS_MAX, Log, serving


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a greeting may take longer than a caller that has gRPC as the other way waits for it."""
    monkeypatch.setattr(local_client, "CONNECT_SECONDS_MAX", WAIT_SECONDS_MAX)


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/s.sock"


@pytest.fixture
def path(address: str) -> str:
    return address.removeprefix("unix:") + ".appends"


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.release.set()


@pytest.fixture
def work() -> OpenWork:
    return OpenWork()


@pytest.fixture
def server(path: str, log: Log, work: OpenWork) -> Iterator[LocalServer]:
    with serving(path, log, work) as running:
        yield running
