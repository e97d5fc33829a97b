"""The facts of a commit log belong to the table that the caller was given, whoever asks at the same time."""

import sys
from types import FrameType
from typing import Any

import pytest

from gateway.ports.deadline import Deadline
from gateway.shards import store_facts
from gateway.shards.store_facts import RemoteStoreFacts
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.calling.port_calls import PORT_SECONDS
from store.errors import DeadlineExceededError


class Tables:
    """Gives the table that is set."""

    def __init__(self, *, is_fresh: bool) -> None:
        self.now = pb.ListTopicsResponse()
        self.is_fresh = is_fresh

    def fresh_table(self) -> pb.ListTopicsResponse | None:
        return self.now if self.is_fresh else None

    def table(self, timeout_seconds: float) -> pb.ListTopicsResponse:
        return self.now


@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_caller_with_the_table_before_a_deletion_gave_its_facts_to_another_one_that_knew_of_it(
    is_fresh: bool,
) -> None:
    """The other caller comes between any two lines; a record was answered without the mark of its deleted topic."""
    older, newer = pb.ListTopicsResponse(), pb.ListTopicsResponse(deleted_before={"t": 500})
    tables, other_count = Tables(is_fresh=is_fresh), 0
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


@pytest.mark.parametrize(("is_fresh", "count"), [(True, 0), (False, 1)])
def test_only_facts_that_are_asked_for_count_as_a_call(is_fresh: bool, count: int) -> None:
    facts = RemoteStoreFacts(Tables(is_fresh=is_fresh))  # type: ignore[arg-type]
    before = sum(PORT_SECONDS.of("commitlog.facts").read()[0])
    assert not facts.facts(None, Deadline.after(60)).deleted_before
    assert sum(PORT_SECONDS.of("commitlog.facts").read()[0]) - before == count


def test_facts_that_are_not_at_hand_are_not_asked_for_without_time() -> None:
    """A look without time fails, and its failure would be that of other callers for a second."""
    tables = Tables(is_fresh=False)
    tables.table = None  # type: ignore[assignment,method-assign]  # not to be called
    with pytest.raises(DeadlineExceededError):
        RemoteStoreFacts(tables).facts(None, Deadline.at_hand())  # type: ignore[arg-type]
    tables.is_fresh = True
    assert not RemoteStoreFacts(tables).facts(None, Deadline.at_hand()).deleted_before  # type: ignore[arg-type]
