"""`reput track` when a shard does not answer."""

import contextlib
from typing import Any

import pytest

from cli import options
from cli.exits import Exit
from cli.options import OutputFormat
from cli.track import track
from reput_client import Completeness


class Found(list[Any]):
    """The matches of a query, and its completeness."""

    completeness = Completeness.COMPLETE


class Client:
    """A QueryClient that finds nothing."""

    def __init__(self, completeness: Completeness) -> None:
        self._found = Found()
        self._found.completeness = completeness

    def track(self, *_: object, **__: object) -> None:
        raise AssertionError("nothing was found to track")

    def find(self, *_: object, **__: object) -> Found:
        return self._found


@pytest.mark.parametrize(
    ("completeness", "code"),
    [(Completeness.PARTIAL, Exit.PARTIAL), (Completeness.COMPLETE, Exit.NOTHING_FOUND)],
)
def test_a_track_that_a_shard_did_not_answer_is_partial_and_not_nothing_found(
    monkeypatch: pytest.MonkeyPatch, completeness: Completeness, code: Exit
) -> None:
    client = Client(completeness)
    monkeypatch.setattr("cli.client.query_client", lambda *_: contextlib.nullcontext(client))
    ended = track(text="order-1001", output=OutputFormat.TABLE, address=options.DEFAULT_ADDRESS, timeout=1.0)
    assert ended is code
