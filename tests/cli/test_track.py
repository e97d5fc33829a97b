"""`reput track` chooses what is tracked, also when a shard does not answer."""

import contextlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from cli import options
from cli.exits import Exit
from cli.options import OutputFormat
from cli.track import track
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import Completeness, MessageTracks
from reput_client.querying.answers import tracks_of


class Found(list[Any]):
    """The matches of a query, and its completeness."""

    completeness = Completeness.COMPLETE


class Client:
    """A QueryClient that finds messages of some topics; the id of each is its topic."""

    def __init__(self, completeness: Completeness, topics: Sequence[str] = ()) -> None:
        self._found = Found(SimpleNamespace(message=SimpleNamespace(offset_msg_id=each, topic=each)) for each in topics)
        self._found.completeness = completeness
        self.tracked: list[str] = []

    def track(self, offset_msg_id: str, **_: object) -> MessageTracks:
        self.tracked.append(offset_msg_id)
        message = {"offset_msg_id": offset_msg_id, "topic": offset_msg_id}
        return tracks_of(pb.TrackMessageResponse(message=message, state=pb.MESSAGE_STATE_STORED))

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


@pytest.mark.parametrize(
    ("found", "choice", "tracked"),
    [
        (["Orders", "RMQ_SYS_TRACE_TOPIC"], {}, ["Orders"]),
        (["Traces", "Orders"], {"trace_topic": "Traces"}, ["Orders"]),
        (["RMQ_SYS_TRACE_TOPIC"], {}, ["RMQ_SYS_TRACE_TOPIC"]),
        (["RMQ_SYS_TRACE_TOPIC"], {"topic": "RMQ_SYS_TRACE_TOPIC"}, ["RMQ_SYS_TRACE_TOPIC"]),
    ],
)
def test_what_clients_told_of_a_message_is_not_tracked_beside_it(
    monkeypatch: pytest.MonkeyPatch, found: list[str], choice: dict[str, str], tracked: list[str]
) -> None:
    client = Client(Completeness.COMPLETE, found)
    monkeypatch.setattr("cli.client.query_client", lambda *_: contextlib.nullcontext(client))
    track(text="order-1001", output=OutputFormat.JSONL, address=options.DEFAULT_ADDRESS, timeout=1.0, **choice)
    assert client.tracked == tracked
