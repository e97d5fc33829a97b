"""The facts of a commit log belong to the table that the caller was given, whoever asks at the same time."""

import sys
from types import FrameType
from typing import Any

from gateway.ports.deadline import Deadline
from gateway.shards import store_facts
from gateway.shards.store_facts import RemoteStoreFacts
from reput.commitlog.v1 import commitlog_service_pb2 as pb


class Tables:
    """Gives the table that is set."""

    def __init__(self) -> None:
        self.now = pb.ListTopicsResponse()

    def table(self, timeout_seconds: float) -> pb.ListTopicsResponse:
        return self.now


def test_a_caller_with_the_table_before_a_deletion_gave_its_facts_to_another_one_that_knew_of_it() -> None:
    """The other caller comes between any two lines; a record was answered without the mark of its deleted topic."""
    older, newer = pb.ListTopicsResponse(), pb.ListTopicsResponse(deleted_before={"t": 500})
    tables, other_count = Tables(), 0
    facts = RemoteStoreFacts(tables)  # type: ignore[arg-type]

    def other(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal other_count
        if frame.f_code.co_filename != store_facts.__file__ or frame.f_code.co_name != "facts":
            return None
        if event == "line":
            other_count += 1
            tables.now = older
            assert not facts.facts(None, Deadline.after(60)).deleted_before
            tables.now = newer
        return other

    tables.now = newer
    before = sys.gettrace()
    sys.settrace(other)
    try:
        answer = facts.facts(None, Deadline.after(60))
    finally:
        sys.settrace(before)
    assert other_count > 1
    assert dict(answer.deleted_before) == {"t": 500}
