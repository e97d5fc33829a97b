"""Decoded records of the broker fixture, and shards made of them."""

from pathlib import Path

import pytest

from gateway.ports.deadline import Deadline
from gateway.ports.shards import FanOut
from gateway.queries.page import PageTokens
from store.format.record import Record, decode_record
from tests.support.fixture_stores import walk_frames


@pytest.fixture(scope="session")
def records(broker_store: Path) -> list[Record]:
    """The whole log, oldest first."""
    return [decode_record(frame, commit_log_offset=offset) for offset, frame in walk_frames(broker_store)]


@pytest.fixture
def fan_out():
    pool = FanOut(4)
    yield pool
    pool.close()


@pytest.fixture
def tokens() -> PageTokens:
    return PageTokens("a secret")


@pytest.fixture
def deadline() -> Deadline:
    """Longer than a test may take: some ask hundreds of questions with it, on a machine that is busy."""
    return Deadline.after(600)
